// SPDX-License-Identifier: Apache-2.0
// A part whose values are on a GPU (engine/device/device_parts.h): only payloads are in host memory. The values and the
// residual change on the GPU alone, so a step copies payloads and nothing else. A failure of this rank's GPU names this
// rank.
//
// A GPU takes parts of codecs with one phase whose payloads are decoded one by one (laws decode and concat). Other
// laws, clipping and momentum need the values in host memory, so the host takes those parts on every GPU.
#include <fmt/format.h>

#include <algorithm>

#include "engine/program/unit_state.h"

namespace tithe::engine {
namespace {

class DevicePart final : public PartRunner {
 public:
  explicit DevicePart(DeviceParts& gpu) : gpu_(gpu) {}
  Status load(const StepContext& w) const override {
    return w.ours(gpu_.load(w.lane, w.step.part, w.first, w.n));
  }
  Result<Encoded> encode(const StepContext& w, Bytes out) const override {
    const Result<Encoded> done =
        gpu_.encode(w.lane, w.step.part, w.call(), w.first, w.n,
                    w.unit.feedback.device_view(w.step.part, w.step.chunk, w.last_phase), out);
    if (!done.ok()) return w.ours(done.status());
    if (!done->finite) w.chunk.poisoned = true;
    return done;
  }
  // The kernels do not validate payloads, so each payload is checked here.
  Status decode(const StepContext& w, PayloadViews payloads) const override {
    const bool is_merge = w.step.kind == StepKind::kMerge;
    const Call c = w.call();
    for (const ByteView payload : payloads)
      if (const Status s = w.codec.impl->check(c, w.n, payload); !s.ok())
        return blame(s, w.culprit(payloads));
    float largest = 0;
    TITHE_TRY(w.ours(gpu_.decode(w.lane, w.step.part, c, payloads, is_merge, is_merge ? 1.0F : w.unit.divide,
                                 w.first, w.n, is_merge ? nullptr : &largest)));
    w.see_largest(largest);
    return {};
  }
  Status unload(const StepContext& w) const override {
    return w.ours(gpu_.unload(w.lane, w.step.part, w.first, w.n));
  }

 private:
  DeviceParts& gpu_;
};

// The reason why the host must process a part on every GPU; empty: none.
std::string host_alone(const Part& part, std::span<const Law> laws, bool works) {
  if (part.strategy->sums_on_the_way)
    return "its strategy adds in the ranges of other owners, which must stay unchanged";
  const FeedbackPolicy& feedback = part.spec.feedback;
  if (!works) return "this rank is a server";
  if (part.inside) return "ranks of one host use their own codec";
  if (feedback.kind != Feedback::kNone && feedback.kind != Feedback::kResidual)
    return fmt::format("its feedback is {}", name(feedback.kind));
  if (feedback.clip > 0) return "its gradient is clipped";
  if (laws.size() > 1) return fmt::format("{} has phases", part.spec.codec->name);
  if (laws[0] != Law::kDecode && laws[0] != Law::kConcat)
    return fmt::format("its payloads combine by the {} law", name(laws[0]));
  return {};
}

}  // namespace

std::unique_ptr<const PartRunner> device_part(DeviceParts& gpu) { return std::make_unique<DevicePart>(gpu); }

std::unique_ptr<DeviceParts> device_parts(const UnitState& unit) {
  std::vector<DeviceParts::PlannedPart> made;
  for (std::size_t p = 0; p < unit.plan.parts.size(); ++p) {
    const Part& part = unit.plan.parts[p];
    const PartLayout& layout = unit.program.parts[p];
    DeviceParts::PlannedPart of{.spec = part.spec,
                                .why = host_alone(part, layout.laws, unit.member.place().works()),
                                .copied = layout.copied,
                                .n = part.n,
                                .staged_at = layout.staged_at,
                                .shares = shares_of(unit.tensors, {part.first, part.n})};
    for (Chunk c = 0; c < layout.chunks; ++c) of.largest_chunk = std::max(of.largest_chunk, layout.size(c));
    made.push_back(std::move(of));
  }
  return std::make_unique<DeviceParts>(std::move(made), unit.program.staged_values, unit.member.gpus);
}

}  // namespace tithe::engine
