// SPDX-License-Identifier: Apache-2.0
// A part whose values are on a GPU (engine/device/device_parts.h): only payloads are in host memory. The values and the
// residual change on the GPU alone, so a step copies payloads and nothing else. Steps run in groups (step_groups.h). A
// failure of this rank's GPU names this rank.
//
// A GPU takes parts of codecs with one phase whose payloads are decoded one by one (laws decode and concat). Other
// laws, clipping and momentum need the values in host memory, so the host takes those parts on every GPU.
#include <fmt/format.h>

#include <algorithm>

#include "engine/program/unit_state.h"

namespace tithe::engine {
namespace {

DeviceParts::PartRange range_of(const StepContext& w) { return {w.step.part, w.first, w.n}; }

Status encode(DeviceParts& gpu, std::span<const StepContext> group,
              std::span<const DeviceParts::PartRange> loads) {
  std::vector<DeviceParts::Encoding> items;
  std::vector<const StepContext*> of;
  const bool own = group[0].step.kind == StepKind::kOwn;
  for (const StepContext& w : group) {
    if (w.chunk.poisoned) continue;
    items.push_back({.of = range_of(w),
                     .call = w.call(),
                     .kept = w.unit.feedback.device_view(w.step.part, w.step.chunk, w.last_phase),
                     .out = w.unit.frames.room(own ? w.step.own_slot : w.step.slot)});
    of.push_back(&w);
  }
  TITHE_TRY(group[0].ours(gpu.encode(loads, items)));
  std::size_t k = 0;
  for (const StepContext& w : group) {
    Encoded done = {.finite = false};
    if (k < of.size() && of[k] == &w) {
      const Result<Encoded>& made = items[k++].done;
      if (!made.ok()) return w.ours(made.status());
      done = *made;
      if (!done.finite) w.chunk.poisoned = true;
    }
    if (own)
      w.keep_own(done);
    else
      TITHE_TRY(w.seal(done.finite ? FrameBody{.bytes = done.bytes} : FrameBody{.flags = kFlagNonFinite}));
  }
  return {};
}

// The kernels do not validate payloads, so each payload is checked here.
Status decode(DeviceParts& gpu, std::span<const StepContext> group,
              std::span<const DeviceParts::PartRange> loads) {
  std::vector<DeviceParts::Decoding> items;
  std::vector<const StepContext*> of;
  const bool is_merge = group[0].step.kind == StepKind::kMerge;
  for (const StepContext& w : group) {
    if (is_merge) w.chunk.checksum.reset();
    TITHE_TRY(w.check_frames(w.frames()));
    if (w.meets_nonfinite(w.frames())) continue;
    const Result<PayloadViews> payloads = w.law.result_of(w);
    if (!payloads.ok()) return payloads.status();
    const Call c = w.call();
    for (const ByteView payload : *payloads)
      if (const Status s = w.codec.impl->check(c, w.n, payload); !s.ok())
        return blame(s, w.culprit(*payloads));
    items.push_back({.of = range_of(w),
                     .call = c,
                     .payloads = {payloads->begin(), payloads->end()},
                     .is_merge = is_merge,
                     .divide = is_merge ? 1.0F : w.unit.divide});
    of.push_back(&w);
  }
  TITHE_TRY(group[0].ours(gpu.decode(loads, items)));
  if (is_merge) return {};
  for (std::size_t k = 0; k < of.size(); ++k) of[k]->see_largest(items[k].largest);
  for (const StepContext& w : group)
    if (w.chunk.poisoned) w.unit.finite = false;
  return {};
}

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

Status run_on_device(DeviceParts& gpu, std::span<const StepContext> group) {
  std::vector<DeviceParts::PartRange> loads;
  const StepKind kind = group[0].step.kind;
  for (const StepContext& w : group)
    if (w.step.loads || kind == StepKind::kLoad) loads.push_back(range_of(w));
  if (kind == StepKind::kLoad) return group[0].ours(gpu.load(loads));
  return kind == StepKind::kOwn || kind == StepKind::kEncode ? encode(gpu, group, loads)
                                                             : decode(gpu, group, loads);
}

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
    for (Chunk c = 0; c < layout.chunks; ++c) of.chunks.push_back(layout.size(c));
    made.push_back(std::move(of));
  }
  return std::make_unique<DeviceParts>(std::move(made), unit.program.staged_values, unit.program.max_views,
                                       unit.member.gpus);
}

}  // namespace tithe::engine
