// SPDX-License-Identifier: Apache-2.0
#include "engine/program/part_values.h"

#include <algorithm>
#include <limits>

namespace tithe::engine {

// True for a part that may need staging memory: several tensors, tensors other than fp32, or work that would change
// the ranges of other owners.
std::vector<bool> may_be_copied(std::span<const TensorLayout> tensors, const Plan& plan) {
  std::vector<bool> out;
  for (const Part& p : plan.parts) {
    const std::vector<PartShare> shares = shares_of(tensors, {p.first, p.n});
    // In a reduce-scatter the ranges of other owners must stay unchanged, so nothing may work on them in place.
    const FeedbackPolicy& policy = p.spec.feedback;
    const bool works_on_others =
        plan.kind == RoundKind::kReduceScatter && (p.strategy->sums_on_the_way || policy.clip > 0 ||
                                                   (policy.kind == Feedback::kMomentum && policy.nesterov));
    out.push_back(shares.size() != 1 || shares[0].dtype != DType::kF32 || works_on_others);
  }
  return out;
}

PartValues::PartValues(std::span<const TensorLayout> tensors, const Plan& plan, const Program& program,
                       const Conversions& by)
    : convert_(by), bucket_(tensors.size()), staged_values_(program.staged_values) {
  for (std::size_t p = 0; p < plan.parts.size(); ++p)
    runs_.push_back({.shares = shares_of(tensors, {plan.parts[p].first, plan.parts[p].n}),
                     .staged_at = program.parts[p].staged_at,
                     .may_be_in_place = !program.parts[p].copied || plan.kind == RoundKind::kAllReduce});
}

// A part's values are used in place if its tensors are fp32 and adjacent in memory in this round. All others are
// staged.
void PartValues::begin(std::span<const Tensor> bucket, DeviceParts* gpu) {
  gpu_ = gpu;
  bucket_.assign(bucket.begin(), bucket.end());
  for (std::size_t p = 0; p < runs_.size(); ++p) {
    Run& run = runs_[p];
    run.values = {};
    if (run.shares.empty() || (gpu != nullptr && gpu->takes(static_cast<int>(p)))) continue;
    run.in_place = run.may_be_in_place && adjacent(bucket_, run.shares);
    if (!run.in_place && staged_.empty()) staged_.resize(staged_values_);
    float* const first =
        run.in_place ? reinterpret_cast<float*>(run.shares[0].data(bucket_)) : &staged_[run.staged_at];
    run.values = {first, run.shares.back().at + run.shares.back().n};
  }
}

Status PartValues::load(int part, std::size_t first, std::size_t n) {
  const Run& run = at(part);
  if (run.in_place) return {};
  return each_share(run.shares, first, n, [&](const PartShare& s) {
    const void* from = s.data(bucket_);
    if (s.dtype == DType::kF32)
      std::copy_n(static_cast<const float*>(from), s.n, &run.values[s.at]);
    else
      (s.dtype == DType::kBF16 ? convert_.bf16_to_floats : convert_.fp16_to_floats)(
          static_cast<const std::uint16_t*>(from), s.n, &run.values[s.at]);
    return Status();
  });
}

Status PartValues::unload(int lane, int part, std::size_t first, std::size_t n) {
  const Run& run = at(part);
  if (!run.in_place)
    TITHE_TRY(each_share(run.shares, first, n, [&](const PartShare& s) {
      void* to = s.data(bucket_);
      if (s.dtype == DType::kF32)
        std::copy_n(&run.values[s.at], s.n, static_cast<float*>(to));
      else
        (s.dtype == DType::kBF16 ? convert_.floats_to_bf16 : convert_.floats_to_fp16)(
            &run.values[s.at], s.n, static_cast<std::uint16_t*>(to));
      return Status();
    }));
  return gpu_ == nullptr ? Status{} : gpu_->take_back(lane, part, first, n);
}

void PartValues::fill_with_nan() {
  for (const Tensor& t : bucket_) {
    if (t.dtype == DType::kF32) {
      std::fill_n(static_cast<float*>(t.data), t.n, std::numeric_limits<float>::quiet_NaN());
    } else {
      const std::uint16_t nan = t.dtype == DType::kBF16 ? 0x7fc0 : 0x7e00;
      std::fill_n(static_cast<std::uint16_t*>(t.data), t.n, nan);
    }
  }
}

}  // namespace tithe::engine
