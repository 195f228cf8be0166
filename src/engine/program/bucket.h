// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bucket that was handed over, and its layout: validation, comparison with known layouts, and the order of its
// tensors in its parts.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/device/device_parts.h"
#include "feedback/value_range.h"
#include "tithe/session.h"

namespace tithe::engine {

struct TensorLayout {
  std::string key;
  std::size_t n = 0;
  DType dtype = DType::kF32;
  std::size_t first = 0;                 // offset of its values in the bucket
  std::size_t index = 0;                 // index in the caller's list
  std::size_t row = 0;                   // Tensor::row
  std::vector<std::size_t> bounds = {};  // Tensor::bounds
  feedback::ValueRange slice() const { return {first, n}; }
};

// kInvalid: a tensor has no key or no data or is not aligned, its rows or bounds do not fit, or the bucket has too
// many values.
Status check_bucket(std::span<const Tensor> bucket, RoundKind kind, int world);

// A hash of the kind, and of keys, sizes, types, rows and bounds, in order.
std::uint64_t layout_hash(std::span<const Tensor> bucket, RoundKind kind);
bool same_layout(std::span<const TensorLayout> layout, std::span<const Tensor> bucket);

// kInvalid if a key occurs twice.
Status check_keys(std::span<const Tensor> bucket);

Plan plan_of(std::span<const Tensor> bucket, const Choices& choices, RoundKind kind = RoundKind::kAllReduce);
// The tensors in the plan's order.
std::vector<TensorLayout> lay_out(std::span<const Tensor> bucket, std::span<const std::size_t> order);
// The shares of a part with these values of the bucket, in order.
std::vector<PartShare> shares_of(std::span<const TensorLayout> tensors, feedback::ValueRange part);

}  // namespace tithe::engine
