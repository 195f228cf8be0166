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
    std::size_t count = 0;
    bool floats = true;
    feedback::each_tensor_in(tensors, {p.first, p.n}, [&](std::size_t k, std::size_t, std::size_t) {
      ++count;
      floats = floats && tensors[k].dtype == DType::kF32;
    });
    // In a reduce-scatter the ranges of other owners must stay unchanged, so nothing may work on them in place.
    const FeedbackPolicy& policy = p.spec.feedback;
    const bool works_on_others =
        plan.kind == RoundKind::kReduceScatter && (p.strategy->sums_on_the_way || policy.clip > 0 ||
                                                   (policy.kind == Feedback::kMomentum && policy.nesterov));
    out.push_back(count > 1 || !floats || works_on_others);
  }
  return out;
}

PartValues::PartValues(std::span<const TensorLayout> tensors, const Plan& plan, const Program& program,
                       const Conversions& by)
    : tensors_(tensors), convert_(by), bucket_(tensors.size()), staged_values_(program.staged_values) {
  const std::vector<bool> copied = may_be_copied(tensors, plan);
  for (std::size_t p = 0; p < plan.parts.size(); ++p) {
    Run run{.slice = {plan.parts[p].first, plan.parts[p].n},
            .shares = {},
            .values = {},
            .staged_at = program.parts[p].staged_at,
            .may_be_in_place = !copied[p] || plan.kind == RoundKind::kAllReduce};
    feedback::each_tensor_in(tensors_, run.slice, [&](std::size_t k, std::size_t from, std::size_t to) {
      run.shares.push_back({k, from, to});
    });
    runs_.push_back(std::move(run));
  }
}

// A part's values are used in place if its tensors are fp32 and adjacent in memory in this round. All others are
// staged.
void PartValues::begin(std::span<const Tensor> bucket, const std::vector<bool>& elsewhere) {
  for (std::size_t k = 0; k < tensors_.size(); ++k) bucket_[k] = bucket[tensors_[k].index];
  for (std::size_t p = 0; p < runs_.size(); ++p) {
    Run& run = runs_[p];
    run.values = {};
    if (!elsewhere.empty() && elsewhere[p]) continue;
    float* first = nullptr;
    run.in_place = run.may_be_in_place;
    for (const Share& s : run.shares) {
      const Tensor& t = bucket_[s.tensor];
      float* at = static_cast<float*>(t.data) + (s.from - tensors_[s.tensor].first);
      if (first == nullptr) first = at;
      run.in_place = run.in_place && t.dtype == DType::kF32 && at == first + (s.from - run.slice.first);
      if (!run.in_place) break;
    }
    if (!run.in_place && staged_.empty()) staged_.resize(staged_values_);
    run.values = {run.in_place ? first : staged_.data() + run.staged_at, run.slice.n};
  }
}

std::vector<Tensor> PartValues::bucket() const {
  std::vector<Tensor> out(tensors_.size());
  for (std::size_t k = 0; k < tensors_.size(); ++k) out[tensors_[k].index] = bucket_[k];
  return out;
}

// Calls body(tensor, offset in the tensor, address in the run, count) for each share of the values.
template <typename Body>
void PartValues::each_share(const Run& run, std::size_t first, std::size_t n, Body body) const {
  const std::size_t begin = run.slice.first + first, end = begin + n;
  auto at = std::partition_point(run.shares.begin(), run.shares.end(),
                                 [&](const Share& s) { return s.to <= begin; });
  for (; at != run.shares.end() && at->from < end; ++at) {
    const std::size_t from = std::max(at->from, begin), to = std::min(at->to, end);
    body(bucket_[at->tensor], from - tensors_[at->tensor].first, run.values.data() + (from - run.slice.first),
         to - from);
  }
}

void PartValues::load(int part, std::size_t first, std::size_t n) {
  const Run& run = at(part);
  if (run.in_place) return;
  each_share(run, first, n, [&](const Tensor& t, std::size_t skip, float* into, std::size_t count) {
    if (t.dtype == DType::kF32)
      std::copy_n(static_cast<const float*>(t.data) + skip, count, into);
    else
      (t.dtype == DType::kBF16 ? convert_.bf16_to_floats : convert_.fp16_to_floats)(
          static_cast<const std::uint16_t*>(t.data) + skip, count, into);
  });
}

void PartValues::unload(int part, std::size_t first, std::size_t n) {
  const Run& run = at(part);
  if (run.in_place) return;
  each_share(run, first, n, [&](const Tensor& t, std::size_t skip, const float* from, std::size_t count) {
    if (t.dtype == DType::kF32)
      std::copy_n(from, count, static_cast<float*>(t.data) + skip);
    else
      (t.dtype == DType::kBF16 ? convert_.floats_to_bf16 : convert_.floats_to_fp16)(
          from, count, static_cast<std::uint16_t*>(t.data) + skip);
  });
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
