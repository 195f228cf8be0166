// SPDX-License-Identifier: Apache-2.0
#pragma once
// The meaning of a graph's operations under each law: one row per law. docs/inside/flow.md prints the texts;
// compile() and the steps of a Unit use the other fields.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/seam/graph.h"
#include "tithe/seam/spec.h"

namespace tithe::engine {

class Unit;
struct Step;
struct StepContext;

// The payload of a finished frame.
struct FrameBody {
  std::uint8_t flags = 0;
  std::uint16_t parts = 1;
  std::size_t bytes = 0;
};

struct LawRow {
  Law law;
  std::string_view encode, merge, store;  // texts

  bool own_first;  // the own payload is made first, and payloads of other ranks are merged into it
  bool joins;      // a frame may contain the payloads of several ranks, one after the other
  bool adds;       // payloads combine as arrays (Phase::combine), in the order of ranks
  bool one_leads;  // one rank's payload is the result for all; another rank leads in each round
  bool last;       // allowed for a codec's last phase: the result can be decoded
  bool before;     // allowed for an earlier phase: the result is one payload, the context of later phases

  // encode(c) after frames were merged into c. Without merged frames, the own values are encoded under every law.
  Result<FrameBody> (Unit::*encode_merged)(const Step&, const StepContext&, int lane);
  Status (Unit::*merge_frames)(const Step&, const StepContext&, int lane);
  // store(c, F): the payloads that make the result.
  Status (Unit::*result_of)(const Step&, const StepContext&, int lane, std::span<const ByteView>& payloads);
};

const LawRow& row_of(Law law);
inline constexpr Law kAllLaws[] = {Law::kDecode, Law::kSum, Law::kMax, Law::kConcat, Law::kLeader};
std::string laws_as_text();  // the table of docs/inside/flow.md

// Chooses the law of each phase: the first law of the strategy that the codec's phase supports. kInvalid if there is
// none; kUnsupported if the order of phases cannot be executed.
Result<std::vector<Law>> choose_laws(const Spec& spec, const Strategy& strategy);

}  // namespace tithe::engine
