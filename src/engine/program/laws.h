// SPDX-License-Identifier: Apache-2.0
#pragma once
// A law combines the payloads of several ranks. A LawRule describes a law to compile(), to the simulator and to
// docs/inside/flow.md, and does the part of a step that depends on the law: it reads and writes frames, and leaves the
// values to the part's runner. A rule has no state.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/seam/graph.h"
#include "tithe/seam/spec.h"

namespace tithe::engine {

struct StepContext;
using PayloadViews = std::span<const ByteView>;

// The payload of a finished frame.
struct FrameBody {
  std::uint8_t flags = 0;
  std::uint16_t parts = 1;
  std::size_t bytes = 0;
};

struct LawTraits {
  Law law;
  std::string_view encode_text, merge_text, store_text;

  bool own_first = false;  // the own payload is made first, and payloads of other ranks are merged into it
  bool joins = false;      // a frame may contain the payloads of several ranks, one after the other
  bool adds = false;       // payloads combine as arrays (Phase::combine), in the order of ranks
  bool one_leads = false;  // one rank's payload is the result for all; another rank leads in each round
  bool last = false;       // allowed for a codec's last phase: the result can be decoded
  bool before = false;     // allowed for an earlier phase: the result is one payload, later phases' context
};

class LawRule : public LawTraits {
 public:
  explicit constexpr LawRule(const LawTraits& traits) : LawTraits(traits) {}
  // encode(c): the payload of the step's frame. If nothing was merged, that is the own values under every law.
  Result<FrameBody> encode(const StepContext& w) const;
  // merge(c, F), after the frames were checked.
  virtual Status merge(const StepContext& w) const = 0;
  // store(c, F): the payloads that make the result.
  virtual Result<PayloadViews> result_of(const StepContext& w) const = 0;

 protected:
  ~LawRule() = default;
  virtual Result<FrameBody> encode_merged(const StepContext& w) const;
};

const LawRule& rule_of(Law law);
inline constexpr Law kAllLaws[] = {Law::kDecode, Law::kSum, Law::kMax, Law::kConcat, Law::kLeader};
std::string laws_as_text();  // the table of docs/inside/flow.md

// Chooses the law of each phase: the first law of the strategy that the codec's phase supports. kInvalid if there is
// none; kUnsupported if the order of phases cannot be executed.
Result<std::vector<Law>> choose_laws(const Spec& spec, const Strategy& strategy);

}  // namespace tithe::engine
