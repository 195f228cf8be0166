// SPDX-License-Identifier: Apache-2.0
#include "engine/program/bucket.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"
#include "tithe/limits.h"

namespace tithe::engine {

std::uint64_t layout_hash(std::span<const Tensor> bucket, RoundKind kind) {
  std::uint64_t h = mix64(bucket.size()) + static_cast<std::uint64_t>(kind);
  for (const Tensor& t : bucket) {
    for (const char c : t.key) h = mix64(h ^ static_cast<unsigned char>(c));
    h = mix64(h ^ t.n) + static_cast<std::uint64_t>(t.dtype);
    h = mix64(h ^ t.row);
    for (const std::size_t bound : t.bounds) h = mix64(h ^ bound);
  }
  return h;
}

bool same_layout(std::span<const TensorLayout> layout, std::span<const Tensor> bucket) {
  return bucket.size() == layout.size() &&
         std::all_of(layout.begin(), layout.end(), [&](const TensorLayout& l) {
           const Tensor& t = bucket[l.index];
           return t.key == l.key && t.n == l.n && t.dtype == l.dtype && t.row == l.row &&
                  std::ranges::equal(t.bounds, l.bounds);
         });
}

namespace {

Status check_bounds(const Tensor& t, RoundKind kind, int world) {
  if (t.bounds.empty()) return {};
  if (kind == RoundKind::kAllReduce)
    return {Code::kInvalid,
            fmt::format("tensor '{}' has bounds: pass bounds only to reduce_scatter and all_gather", t.key)};
  const auto entries = static_cast<std::size_t>(world) + 1;
  if (t.bounds.size() != entries)
    return {Code::kInvalid, fmt::format("tensor '{}' has {} bounds: {} ranks need {} bounds, from 0 to {}",
                                        t.key, t.bounds.size(), world, entries, t.n)};
  if (t.bounds.front() != 0 || t.bounds.back() != t.n)
    return {Code::kInvalid, fmt::format("tensor '{}' has bounds from {} to {}; bounds must go from 0 to {}",
                                        t.key, t.bounds.front(), t.bounds.back(), t.n)};
  if (const auto falls = std::ranges::is_sorted_until(t.bounds); falls != t.bounds.end())
    return {Code::kInvalid, fmt::format("tensor '{}' has bound {} after bound {}; bounds must not decrease",
                                        t.key, *falls, *(falls - 1))};
  return {};
}

}  // namespace

Status check_bucket(std::span<const Tensor> bucket, RoundKind kind, int world) {
  std::size_t values = 0;
  for (const Tensor& t : bucket) {
    if (t.key.empty()) return {Code::kInvalid, "a tensor has no key"};
    if (t.n > kMaxValues || (values += t.n) > kMaxValues)
      return {Code::kInvalid, fmt::format("tensor '{}' has {} values; a bucket holds at most {} in total",
                                          t.key, t.n, kMaxValues)};
    if (t.n > 0 && t.data == nullptr) return {Code::kInvalid, fmt::format("tensor '{}' has no data", t.key)};
    if (t.row > 0 && t.n % t.row != 0)
      return {Code::kInvalid,
              fmt::format("tensor '{}': {} values are not a whole number of rows of {}", t.key, t.n, t.row)};
    const std::uintptr_t align = bytes_of(t.dtype);
    if (reinterpret_cast<std::uintptr_t>(t.data) % align != 0)
      return {Code::kInvalid, fmt::format("tensor '{}' is not aligned to its type", t.key)};
    TITHE_TRY(check_bounds(t, kind, world));
  }
  return {};
}

Status check_keys(std::span<const Tensor> bucket) {
  std::vector<std::string_view> keys;
  for (const Tensor& t : bucket) keys.push_back(t.key);
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end())
    return {Code::kInvalid, fmt::format("key '{}' occurs twice in a bucket", *twice)};
  return {};
}

Plan plan_of(std::span<const Tensor> bucket, const Choices& choices, RoundKind kind) {
  std::vector<PlanTensor> tensors;
  for (const Tensor& t : bucket) tensors.push_back({t.key, t.n, t.row, t.bounds});
  return make_plan(tensors, choices, kind);
}

std::vector<TensorLayout> lay_out(std::span<const Tensor> bucket, std::span<const std::size_t> order) {
  std::vector<TensorLayout> layout;
  std::size_t first = 0;
  for (const std::size_t k : order) {
    const Tensor& t = bucket[k];
    layout.push_back({std::string(t.key), t.n, t.dtype, first, k, t.row, {t.bounds.begin(), t.bounds.end()}});
    first += t.n;
  }
  return layout;
}

std::vector<PartShare> shares_of(std::span<const TensorLayout> tensors, feedback::ValueRange part) {
  std::vector<PartShare> out;
  feedback::each_tensor_in(tensors, part, [&](std::size_t k, std::size_t from, std::size_t to) {
    out.push_back(
        {tensors[k].index, from - tensors[k].first, from - part.first, to - from, tensors[k].dtype});
  });
  return out;
}

}  // namespace tithe::engine
