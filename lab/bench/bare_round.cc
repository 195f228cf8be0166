// SPDX-License-Identifier: Apache-2.0
#include "bare_round.h"

#include <algorithm>
#include <array>

#include "engine/program/laws.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/frame.h"

namespace tithe::bench {

using engine::Step;
using engine::StepKind;

namespace {

// Sends in a bare round do not wait for receives. If the outgoing frame of a step is in the memory of a received frame
// (forwarded, or Step::onto), the step uses a copy of the slot, behind the arena.
void separate_sent_frames(engine::Program& program) {
  const std::size_t count = program.slots.size();
  for (std::size_t k = 0; k < count; ++k)
    program.slots.push_back({program.arena_bytes + program.slots[k].offset, program.slots[k].bytes});
  program.arena_bytes *= 2;
  std::vector<bool> received(count);
  for (Step& step : program.steps) {
    if (step.kind == StepKind::kRecv) received[static_cast<std::size_t>(step.slot)] = true;
    if ((step.kind == StepKind::kEncode || step.kind == StepKind::kSend) &&
        received[static_cast<std::size_t>(step.slot)])
      step.slot += static_cast<int>(count);
  }
}

}  // namespace

BareRank::BareRank(std::unique_ptr<Transport> transport, std::span<const Plan> plans)
    : transport_(std::move(transport)) {
  std::uint32_t first_part = 0;
  for (const Plan& plan : plans) {
    Bucket b{.plan = plan,
             .program = engine::compile(plan, {transport_->rank(), transport_->world()}, {}),
             .first_part = first_part,
             .memory = {},
             .values = {},
             .scratch = {},
             .bytes = {}};
    first_part += static_cast<std::uint32_t>(plan.parts.size());
    separate_sent_frames(b.program);
    b.memory.resize(b.program.arena_bytes);
    b.scratch.resize(b.program.scratch_bytes);
    b.values.resize(plan.parts.empty() ? 0 : plan.parts.back().first + plan.parts.back().n, 1.0F);
    for (const engine::Slot& slot : b.program.slots) b.bytes.push_back(slot.bytes);
    views_.resize(std::max(views_.size(), b.program.max_views));
    for (const Step& step : b.program.steps)  // forwarded frames, which no step of this rank makes
      if (step.kind == StepKind::kSend) static_cast<void>(make(b, step, true, true));
    buckets_.push_back(std::move(b));
  }
}

std::span<float> BareRank::values(Bucket& b, const Step& step) {
  const auto p = static_cast<std::size_t>(step.part);
  const engine::PartLayout& layout = b.program.parts[p];
  return std::span(b.values).subspan(b.plan.parts[p].first + layout.at(step.chunk), layout.size(step.chunk));
}

Status BareRank::make(Bucket& b, const Step& step, bool encodes, bool seals) {
  const Part& part = b.plan.parts[static_cast<std::size_t>(step.part)];
  const std::span<const float> in = values(b, step);
  const Bytes out = frame(b, step.slot);
  std::size_t payload = out.size() - kFrameHeaderBytes;
  if (encodes) {
    const Call call{.settings = part.spec.settings, .phase = step.phase, .scratch = b.scratch};
    const Result<Encoded> done =
        part.spec.codec->best(this_machine())
            .encode(call, {in.data(), nullptr, nullptr, in.size()}, out.subspan(kFrameHeaderBytes));
    if (!done.ok()) return done.status();
    payload = done->bytes;
  }
  return seals ? seal_frame({.codec = id_of(*part.spec.codec), .values = in.size(), .payload_bytes = payload},
                            out)
               : Status{};
}

Status BareRank::post(Bucket& b, const Step& step) {
  const Channel channel = b.first_part + static_cast<std::uint32_t>(step.part) + 1;
  ++in_flight_;
  return step.kind == StepKind::kSend ? transport_->send(step.peer, channel, frame(b, step.slot), in_flight_)
                                      : transport_->recv(step.peer, channel, frame(b, step.slot), in_flight_);
}

Status BareRank::drain() {
  std::array<Completion, 64> done;
  while (in_flight_ > 0) {
    const std::size_t count = transport_->poll(done, std::chrono::seconds(10));
    for (std::size_t k = 0; k < count; ++k) TITHE_TRY(done[k].status);
    in_flight_ -= count;
  }
  return {};
}

// Checks a received frame, and decodes a created or received payload into the values.
Status BareRank::use(Bucket& b, const Step& step) {
  if (step.kind == StepKind::kRecv) return parse_frame(frame(b, step.slot)).status();
  const Part& part = b.plan.parts[static_cast<std::size_t>(step.part)];
  const Impl& impl = part.spec.codec->best(this_machine());
  const std::span<const int> frames =
      std::span(b.program.indices).subspan(step.frames.first, step.frames.count);
  const Call call{.settings = part.spec.settings, .phase = step.phase, .scratch = b.scratch};
  const Law law = b.program.parts[static_cast<std::size_t>(step.part)].laws[step.phase];
  const std::span<float> out = values(b, step);
  if (step.kind == StepKind::kMerge && engine::rule_of(law).adds) {
    for (const int f : frames) {
      const ByteView own(reinterpret_cast<const std::uint8_t*>(out.data()), sizeof(float) * out.size());
      TITHE_TRY(impl.combine(call, out.size(), frame(b, step.slot).subspan(kFrameHeaderBytes),
                             step.onto && f == step.slot ? own : frame(b, f).subspan(kFrameHeaderBytes),
                             nullptr)
                    .status());
    }
    return {};
  }
  for (std::size_t k = 0; k < frames.size(); ++k) views_[k] = frame(b, frames[k]).subspan(kFrameHeaderBytes);
  return impl.decode(call, std::span<const ByteView>(views_).first(frames.size()), {}, out);
}

Status BareRank::round() {
  for (Bucket& b : buckets_)
    for (const Step& step : b.program.steps) {
      if (step.kind == StepKind::kRecv || step.kind == StepKind::kSend) TITHE_TRY(post(b, step));
      if (step.kind == StepKind::kOwn) TITHE_TRY(make(b, step, true, false));
      if (step.kind == StepKind::kEncode) TITHE_TRY(make(b, step, step.direct, true));
    }
  TITHE_TRY(drain());
  for (Bucket& b : buckets_)
    for (const Step& step : b.program.steps)
      if (step.kind == StepKind::kRecv || step.kind == StepKind::kMerge || step.kind == StepKind::kStore)
        TITHE_TRY(use(b, step));
  return {};
}

}  // namespace tithe::bench
