// SPDX-License-Identifier: Apache-2.0
#include "engine/program/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/rng.h"

namespace tithe::engine {
namespace {

// Encodes the own payload, into which payloads of other ranks are merged.
Status encode_own(const StepContext& w) {
  if (w.chunk.poisoned || !w.leads()) return {};
  const Result<Encoded> done = w.part.encode(w, w.unit.frames.room(w.step.own_slot));
  if (!done.ok()) return done.status();
  w.keep_own(*done);
  return {};
}

// Makes the frame of a chunk.
Status encode(const StepContext& w) {
  if (w.chunk.poisoned) return w.seal({.flags = kFlagNonFinite});
  const Result<FrameBody> made = w.law.encode(w);
  return made.ok() ? w.seal(*made) : made.status();
}

}  // namespace

std::string Unit::needs(const Member& member, std::span<const TensorLayout> tensors, const Plan& plan,
                        std::span<const double> ratios) {
  const Program program = compile(plan, member.place(), ratios, member.tagging, member.makers.get(),
                                  may_be_copied(tensors, plan));
  const auto megabytes = [](std::size_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const double carried = megabytes(feedback::ErrorFeedback::bytes(feedback_parts(plan, program, member.me)));
  const double frames = megabytes(program.arena_bytes);
  const double others = megabytes(program.scratch_bytes * static_cast<std::size_t>(member.workers) +
                                  sizeof(float) * program.staged_values);
  const auto largest = std::ranges::max_element(tensors, {}, &TensorLayout::n);
  return fmt::format(
      "{:.1f} MB in addition to the gradients of {} tensors (the largest is '{}' with {} values): {:.1f} MB "
      "for residuals, {:.1f} MB for frames, {:.1f} MB for copies and scratch",
      carried + frames + others, tensors.size(), largest->key, largest->n, carried, frames, others);
}

// ---- Rounds

void Unit::use_ratio(double ratio) {
  for (std::size_t i = 0; i < state_.plan.parts.size(); ++i)
    if (state_.plan.parts[i].scheduled)
      state_.between[i].settings = with_ratio(state_.plan.parts[i].spec, ratio);
  state_.round_hash = mix64(state_.plan_hash ^ std::bit_cast<std::uint64_t>(ratio));
}

void Unit::touch(std::span<const Tensor> bucket) {
  state_.frames.touch();
  // The communication lane runs few steps, so its scratch memory is not touched.
  for (int lane = 0; lane < std::max(1, state_.member.workers - 1); ++lane)
    engine::touch(state_.scratch[static_cast<std::size_t>(lane)], state_.program.scratch_bytes);
  if (std::ranges::all_of(bucket, [](const Tensor& t) { return t.data != nullptr || t.n == 0; }))
    state_.part_values.begin(bucket);
}

Status Unit::place(std::span<const Tensor> bucket, const Origin& origin) {
  const bool on_host = origin.device < 0;
  if (on_host && gpu_ == nullptr) return {};
  if (gpu_ == nullptr) gpu_ = device_parts(state_);
  if (!on_host) TITHE_TRY(state_.feedback.lost());
  if (on_host) gpu_->leave();
  const Status placed = on_host ? state_.feedback.to_host() : gpu_->begin(bucket, origin, state_.feedback);
  std::vector<bool> taken;
  for (std::size_t p = 0; p < state_.plan.parts.size(); ++p)
    taken.push_back(gpu_->takes(static_cast<int>(p)));
  if (taken != std::exchange(on_device_, taken))
    groups_ = group_steps(state_.program, [&](int part) { return taken[static_cast<std::size_t>(part)]; });
  return placed;
}

void Unit::begin(std::span<const Tensor> bucket, std::uint32_t round) {
  if (is_on_device())
    state_.part_values.begin(gpu_->mirror(), gpu_.get());
  else
    state_.part_values.begin(bucket);
  state_.round = round;
  state_.finite = true;
  state_.excessive = false;
  for (ChunkState& c : state_.chunks) c = {};
}

Status Unit::read(std::size_t index, Tensor& tensor, std::vector<std::uint8_t>& room) {
  if (tensor.n == 0) return {};
  TITHE_TRY(gpu_->read(index, room));
  tensor.data = room.data();
  return {};
}

void Unit::fill_with_nan() {
  if (!is_on_device()) return state_.part_values.fill_with_nan();
  Status filled = blame(gpu_->fill_with_nan(), state_.member.me);
  if (trouble_.ok()) trouble_ = std::move(filled);
}

double Unit::commit(bool keep, bool for_good) {
  const double forgotten = keep ? state_.feedback.commit(for_good) : 0;
  if (!keep && state_.finite) fill_with_nan();
  if (for_good) state_.feedback.lend_next();
  state_.frames.lend();
  state_.part_values.lend();
  return forgotten;
}

// ---- Steps

Status PartRunner::merge(const StepContext& w) const {
  TITHE_TRY(w.check_frames(w.frames()));
  return w.meets_nonfinite(w.frames()) ? Status{} : w.law.merge(w);
}

Status PartRunner::store(const StepContext& w) const {
  TITHE_TRY(w.check_frames(w.frames()));
  if (w.meets_nonfinite(w.frames())) return {};
  const Result<PayloadViews> payloads = w.law.result_of(w);
  if (!payloads.ok()) return payloads.status();
  if (w.chunk.poisoned) return {};
  if (w.last_phase) return decode(w, *payloads);
  w.chunk.context = (*payloads)[0];
  w.chunk.own_bytes = 0;
  w.chunk.present = false;
  return {};
}

std::span<const int> Unit::together(const int& step) const {
  const int group = groups_.at(step);
  return group < 0 ? std::span(&step, 1)
                   : std::span<const int>(groups_.steps[static_cast<std::size_t>(group)]);
}

Status Unit::run(int number, int lane) {
  const auto step_of = [&](int s) -> const Step& {
    return state_.program.steps[static_cast<std::size_t>(s)];
  };
  if (groups_.at(number) >= 0) {
    std::vector<StepContext> group;
    for (const int s : together(number)) group.emplace_back(state_, step_of(s), lane);
    return run_on_device(*gpu_, group);
  }
  const Step& step = step_of(number);
  const StepContext w(state_, step, lane);
  if (step.loads || step.kind == StepKind::kLoad) TITHE_TRY(w.part.load(w));
  switch (step.kind) {
    case StepKind::kLoad:
      return {};
    case StepKind::kOwn:
      return encode_own(w);
    case StepKind::kEncode:
      return encode(w);
    case StepKind::kCheck:
      return w.check();
    case StepKind::kMerge:
      w.chunk.checksum.reset();
      return w.part.merge(w);
    case StepKind::kStore:
      TITHE_TRY(w.part.store(w));
      if (w.chunk.poisoned) state_.finite = false;
      return w.last_phase && !w.chunk.poisoned ? w.part.unload(w) : Status{};
    case StepKind::kSend:
    case StepKind::kRecv:
      break;
  }
  TITHE_ASSERT(false);
  return {};
}

}  // namespace tithe::engine
