// SPDX-License-Identifier: Apache-2.0
// A part whose values are in host memory, with any codec and law. PartValues provides the values as one range of fp32,
// ErrorFeedback the residual, and the codec's Impl does the rest. The codec checks a payload before it writes a value,
// so a bad payload leaves the values unchanged.
//
// The gradient that encode reads (ChunkState::source) is the range that load() returned until payloads are added; from
// then on it is the values themselves.
#include <algorithm>

#include "codec/shared/common/magnitude.h"
#include "engine/program/unit_state.h"

namespace tithe::engine {

Status HostPart::load(const StepContext& w) const {
  UnitState& unit = w.unit;
  TITHE_TRY(w.ours(unit.part_values.fetch(w.lane, w.step.part, w.first, w.n)));
  // In an all-gather only the own chunk has values. On a GPU, the wait for the caller's work above is needed for all
  // chunks.
  if (unit.plan.kind == RoundKind::kAllGather && w.step.chunk != unit.member.me) return {};
  TITHE_TRY(unit.part_values.load(w.step.part, w.first, w.n));
  if (!unit.member.place().works()) std::ranges::fill(w.values(), 0.0F);
  const float* source = unit.feedback.load(w.step.part, w.first, w.values());
  for (Chunk c = w.begin; c < w.end; ++c)
    unit.chunks[static_cast<std::size_t>(w.layout.first_chunk) + static_cast<std::size_t>(c)].source =
        source + (w.layout.at(c) - w.first);
  return {};
}

Result<Encoded> HostPart::encode(const StepContext& w, Bytes out) const {
  const Result<Encoded> done = w.codec.impl->encode(w.call(), w.input(), out);
  if (!done.ok()) return w.ours(done.status());
  if (!done->finite)
    w.chunk.poisoned = true;
  else if (w.last_phase)
    w.unit.feedback.update_residual(w.step.part, w.step.chunk, *w.codec.impl, out.first(done->bytes));
  return done;
}

// The sum of finite payloads may not be finite. All ranks have the same bits, so all detect it.
Status HostPart::decode(const StepContext& w, PayloadViews payloads) const {
  const bool is_merge = w.step.kind == StepKind::kMerge;
  Call c = w.call();
  if (!is_merge) c.next_memory = w.unit.feedback.next_memory(w.step.part, w.step.chunk);
  const Merge merge = is_merge ? Merge{.base = w.chunk.source} : Merge{.divide = w.unit.divide};
  const Status s = w.codec.impl->decode(c, payloads, merge, w.values());
  if (!s.ok()) return blame(s, w.culprit(payloads));
  if (is_merge)
    w.chunk.source = w.values().data();
  else
    w.see_largest(codec::largest_magnitude(w.values()));
  return {};
}

Status HostPart::unload(const StepContext& w) const {
  return w.ours(w.unit.part_values.unload(w.lane, w.step.part, w.first, w.n));
}

}  // namespace tithe::engine
