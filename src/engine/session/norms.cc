// SPDX-License-Identifier: Apache-2.0
#include "engine/session/norms.h"

#include <cmath>

#include "base/fold.h"
#include "engine/program/convert.h"

namespace tithe::engine {
namespace {

template <typename T, typename ToFloat>
double norm_of(const T* values, std::size_t n, ToFloat to_float) {
  Fold<double> squares;
  for (std::size_t i = 0; i < n; ++i) {
    const double v = to_float(values[i]);
    squares.add(i, v * v);
  }
  return std::sqrt(squares.total());
}

}  // namespace

double norm(std::span<const float> values) {
  return norm_of(values.data(), values.size(), [](float v) { return v; });
}

double norm(const Tensor& tensor) {
  if (tensor.dtype == DType::kF32) return norm({static_cast<const float*>(tensor.data), tensor.n});
  const auto* halves = static_cast<const std::uint16_t*>(tensor.data);
  return tensor.dtype == DType::kBF16 ? norm_of(halves, tensor.n, from_bf16)
                                      : norm_of(halves, tensor.n, from_fp16);
}

Norms::Pair Norms::of(std::string_view key) const {
  const auto at = tensors_.find(key);
  return at == tensors_.end() ? Pair{} : at->second.last;
}

bool Norms::is_side(std::string_view key) const {
  const auto at = tensors_.find(key);
  return at != tensors_.end() && at->second.side;
}

Norms::Pair Norms::total() const {
  Pair squares;
  for (const auto& [key, t] : tensors_) {
    if (t.side) continue;
    squares.gradient += t.last.gradient * t.last.gradient;
    squares.residual += t.last.residual * t.last.residual;
  }
  return {std::sqrt(squares.gradient), std::sqrt(squares.residual)};
}

}  // namespace tithe::engine
