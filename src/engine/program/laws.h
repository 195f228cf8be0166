// SPDX-License-Identifier: Apache-2.0
#pragma once
// The meaning of a graph's verbs under each law: one row per law. docs/inside/flow.md prints its words; compile() and
// the steps of a Unit go by the rest.
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

// A frame's payload as it was made.
struct FrameBody {
  std::uint8_t flags = 0;
  std::uint16_t parts = 1;
  std::size_t bytes = 0;
};

struct LawRow {
  Law law;
  std::string_view encode, merge, store;  // in words

  bool own_first;  // others' payloads come to this rank's own, so that is made before they are merged
  bool joins;      // a frame may hold the payloads of several ranks, side by side
  bool adds;       // payloads combine as arrays (Phase::combine), in the order of ranks
  bool one_leads;  // a single rank's payload is everybody's: that of another one each round
  bool last;       // a codec's last phase may combine so: the result can be decoded
  bool before;     // a phase before others may: what comes out is one payload, their context

  // encode(c), where frames were merged into c. Where none were, the own values are encoded, whatever the law.
  Result<FrameBody> (Unit::*encode_merged)(const Step&, const StepContext&, int lane);
  Status (Unit::*merge_frames)(const Step&, const StepContext&, int lane);
  // store(c, F): the payloads that the result is made of.
  Status (Unit::*result_of)(const Step&, const StepContext&, int lane, std::span<const ByteView>& payloads);
};

const LawRow& row_of(Law law);
inline constexpr Law kAllLaws[] = {Law::kDecode, Law::kSum, Law::kMax, Law::kConcat, Law::kLeader};
std::string laws_as_text();  // the table of docs/inside/flow.md

// The laws by which the phases of a part combine: the strategy's first that the codec's phase knows.
// kInvalid where there is none; kUnsupported where phases stand in an order that no engine can run.
Result<std::vector<Law>> choose_laws(const Spec& spec, const Strategy& strategy);

}  // namespace tithe::engine
