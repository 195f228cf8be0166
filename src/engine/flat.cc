// SPDX-License-Identifier: Apache-2.0
#include "engine/flat.h"

#include <algorithm>
#include <limits>

#include "engine/convert.h"

namespace tithe::engine {

Flat::Flat(std::span<const TensorLayout> tensors, const Plan& plan)
    : tensors_(tensors), bucket_(tensors.size()) {
  for (const Part& p : plan.parts) runs_.push_back({.slice = {p.first, p.n}, .values = {}, .staged = {}});
}

template <typename Body>
void Flat::each_tensor(const Run& run, Body body) const {
  carry::each_tensor_in(tensors_, run.slice, [&](std::size_t k, std::size_t from, std::size_t to) {
    body(bucket_[k], tensors_[k], from, to);
  });
}

void Flat::begin(std::span<const Tensor> bucket) {
  for (std::size_t k = 0; k < tensors_.size(); ++k) bucket_[k] = bucket[tensors_[k].index];
  for (Run& run : runs_) {
    float* first = nullptr;
    run.in_place = true;
    each_tensor(run, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t) {
      float* at = static_cast<float*>(t.data) + (from - l.first);
      if (first == nullptr) first = at;
      run.in_place = run.in_place && t.dtype == DType::kF32 && at == first + (from - run.slice.first);
    });
    if (!run.in_place) run.staged.resize(run.slice.n);
    run.values = {run.in_place ? first : run.staged.data(), run.slice.n};
  }
}

void Flat::load(int part) {
  const Run& run = at(part);
  if (run.in_place) return;
  each_tensor(run, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t to) {
    float* into = run.values.data() + (from - run.slice.first);
    const std::size_t n = to - from;
    if (t.dtype == DType::kF32) {
      std::copy_n(static_cast<const float*>(t.data) + (from - l.first), n, into);
      return;
    }
    const std::uint16_t* half = static_cast<const std::uint16_t*>(t.data) + (from - l.first);
    std::transform(half, half + n, into, t.dtype == DType::kBF16 ? from_bf16 : from_fp16);
  });
}

void Flat::unload(int part) {
  const Run& run = at(part);
  if (run.in_place) return;
  each_tensor(run, [&](const Tensor& t, const TensorLayout& l, std::size_t from, std::size_t to) {
    const float* values = run.values.data() + (from - run.slice.first);
    const std::size_t n = to - from;
    if (t.dtype == DType::kF32) {
      std::copy_n(values, n, static_cast<float*>(t.data) + (from - l.first));
      return;
    }
    std::uint16_t* half = static_cast<std::uint16_t*>(t.data) + (from - l.first);
    std::transform(values, values + n, half, t.dtype == DType::kBF16 ? to_bf16 : to_fp16);
  });
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
