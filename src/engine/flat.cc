// SPDX-License-Identifier: Apache-2.0
#include "engine/flat.h"

#include <algorithm>
#include <limits>

namespace tithe::engine {

Flat::Flat(std::span<const TensorLayout> tensors, const Plan& plan, const Conversions& by)
    : tensors_(tensors), convert_(by), bucket_(tensors.size()) {
  for (const Part& p : plan.parts) {
    Run run{.slice = {p.first, p.n}, .shares = {}, .values = {}, .staged = {}};
    carry::each_tensor_in(tensors_, run.slice, [&](std::size_t k, std::size_t from, std::size_t to) {
      run.shares.push_back({k, from, to});
    });
    runs_.push_back(std::move(run));
  }
}

void Flat::begin(std::span<const Tensor> bucket) {
  for (std::size_t k = 0; k < tensors_.size(); ++k) bucket_[k] = bucket[tensors_[k].index];
  for (Run& run : runs_) {
    float* first = nullptr;
    run.in_place = true;
    for (const Share& s : run.shares) {
      const Tensor& t = bucket_[s.tensor];
      float* at = static_cast<float*>(t.data) + (s.from - tensors_[s.tensor].first);
      if (first == nullptr) first = at;
      run.in_place = run.in_place && t.dtype == DType::kF32 && at == first + (s.from - run.slice.first);
      if (!run.in_place) break;
    }
    if (!run.in_place) run.staged.resize(run.slice.n);
    run.values = {run.in_place ? first : run.staged.data(), run.slice.n};
  }
}

void Flat::load(int part) {
  const Run& run = at(part);
  if (run.in_place) return;
  for (const Share& s : run.shares) {
    const Tensor& t = bucket_[s.tensor];
    const std::size_t skip = s.from - tensors_[s.tensor].first;
    const std::size_t n = s.to - s.from;
    float* into = run.values.data() + (s.from - run.slice.first);
    if (t.dtype == DType::kF32)
      std::copy_n(static_cast<const float*>(t.data) + skip, n, into);
    else
      (t.dtype == DType::kBF16 ? convert_.bf16_to_floats : convert_.fp16_to_floats)(
          static_cast<const std::uint16_t*>(t.data) + skip, n, into);
  }
}

void Flat::unload(int part) {
  const Run& run = at(part);
  if (run.in_place) return;
  for (const Share& s : run.shares) {
    const Tensor& t = bucket_[s.tensor];
    const std::size_t skip = s.from - tensors_[s.tensor].first;
    const std::size_t n = s.to - s.from;
    const float* values = run.values.data() + (s.from - run.slice.first);
    if (t.dtype == DType::kF32)
      std::copy_n(values, n, static_cast<float*>(t.data) + skip);
    else
      (t.dtype == DType::kBF16 ? convert_.floats_to_bf16 : convert_.floats_to_fp16)(
          values, n, static_cast<std::uint16_t*>(t.data) + skip);
  }
}

void Flat::fill_with_nan() {
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
