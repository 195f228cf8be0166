// SPDX-License-Identifier: Apache-2.0
// A unit whose bucket is on a GPU: the requirements for device parts, and the steps that differ from steps.cc and
// laws.cc (engine/device/device_parts.h).
#include <fmt/format.h>

#include <algorithm>

#include "engine/program/unit.h"

namespace tithe::engine {
namespace {

// The reason why the host must process a part on every GPU; empty: none.
std::string host_alone(const Part& part, std::span<const Law> laws, bool works) {
  if (part.strategy->sums_on_the_way)
    return "its strategy adds in the ranges of other owners, which must stay unchanged";
  const Codec& codec = *part.spec.codec;
  const FeedbackPolicy& feedback = part.spec.feedback;
  if (!works) return "this rank is a server";
  if (part.inside) return "ranks of one host use their own codec";
  if (feedback.kind != Feedback::kNone && feedback.kind != Feedback::kResidual)
    return fmt::format("its feedback is {}", name(feedback.kind));
  if (feedback.clip > 0) return "its gradient is clipped";
  if (laws.size() > 1) return fmt::format("{} has phases", codec.name);
  if (laws[0] != Law::kDecode && laws[0] != Law::kConcat)
    return fmt::format("its payloads combine by the {} law", name(laws[0]));
  return {};
}

}  // namespace

std::unique_ptr<DeviceParts> Unit::device_parts() const {
  const std::vector<bool> copied = may_be_copied(tensors_, plan_);
  std::vector<DeviceParts::PlannedPart> made;
  for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
    const Part& part = plan_.parts[p];
    const PartLayout& layout = program_.parts[p];
    DeviceParts::PlannedPart of{.spec = part.spec,
                                .why = host_alone(part, layout.laws, member_.place().works()),
                                .copied = copied[p],
                                .n = part.n,
                                .staged_at = layout.staged_at,
                                .shares = {}};
    for (Chunk c = 0; c < layout.chunks; ++c) of.largest_chunk = std::max(of.largest_chunk, layout.size(c));
    feedback::each_tensor_in(
        tensors_, {part.first, part.n}, [&](std::size_t k, std::size_t from, std::size_t to) {
          if (from == part.first) of.begins = from == tensors_[k].first;
          of.shares.push_back({tensors_[k].index, from - tensors_[k].first, from - part.first, to - from});
        });
    made.push_back(std::move(of));
  }
  return std::make_unique<DeviceParts>(std::move(made), program_.staged_values, member_.gpus);
}

Status Unit::place(std::span<const Tensor> bucket, const Origin& origin) {
  if (origin.device < 0) {
    if (gpu_ == nullptr) return {};
    gpu_->leave();
    return feedback_.to_host();
  }
  if (gpu_ == nullptr) gpu_ = device_parts();
  TITHE_TRY(feedback_.lost());
  return gpu_->begin(bucket, origin, feedback_);
}

void Unit::begin_on_device() {
  std::vector<bool> elsewhere(plan_.parts.size());
  for (std::size_t p = 0; p < elsewhere.size(); ++p) elsewhere[p] = gpu_->takes(static_cast<int>(p));
  part_values_.begin(gpu_->mirror(), elsewhere);
}

Status Unit::read(std::size_t index, Tensor& tensor, std::vector<std::uint8_t>& room) {
  if (tensor.n == 0) return {};
  TITHE_TRY(gpu_->read(index, room));
  tensor.data = room.data();
  return {};
}

void Unit::fill_with_nan() {
  if (!is_on_device()) return part_values_.fill_with_nan();
  Status filled = ours(gpu_->fill_with_nan());
  if (trouble_.ok()) trouble_ = std::move(filled);
}

Result<Encoded> Unit::encode_on_device(const Step& step, const StepContext& w, int lane, Bytes out) {
  const Result<Encoded> done =
      gpu_->encode(lane, step.part, call(step, w, lane), w.layout.at(step.chunk), w.n,
                   feedback_.device_view(step.part, step.chunk, w.last_phase), out);
  if (!done.ok()) return ours(done.status());
  if (!done->finite) w.chunk.poisoned = true;
  return done;
}

// The kernels do not validate payloads, so each payload is checked here.
Status Unit::decode_on_device(const Step& step, const StepContext& w, int lane,
                              std::span<const ByteView> payloads, bool onto, float divide, float* largest) {
  const Call c = call(step, w, lane);
  for (const ByteView payload : payloads)
    if (const Status s = impl(step).check(c, w.n, payload); !s.ok())
      return Status(s.code(), s.what(), culprit(step, w, payloads));
  return ours(
      gpu_->decode(lane, step.part, c, payloads, onto, divide, w.layout.at(step.chunk), w.n, largest));
}

}  // namespace tithe::engine
