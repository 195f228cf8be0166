// SPDX-License-Identifier: Apache-2.0
#pragma once
// Buffers of exactly their size, and values compared bit by bit.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <limits>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace tithe::harness {

using Payload = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

// Bytes or floats in a heap block of exactly their size, so that a sanitizer detects the first access outside it;
// displaced by `shift` elements of T, so that vectors are not aligned.
template <typename T>
class Exact {
 public:
  explicit Exact(std::size_t n, std::size_t shift = 0)
      : n_(n), shift_(shift), data_(std::make_unique<T[]>(n + shift)) {}
  Exact(const T* from, std::size_t n, std::size_t shift = 0) : Exact(n, shift) {
    if (n != 0) std::memcpy(data(), from, n * sizeof(T));
  }
  T* data() { return data_.get() + shift_; }
  std::span<T> span() { return {data(), n_}; }
  std::vector<T> copy(std::size_t n) { return {data(), data() + n}; }
  std::vector<T> copy() { return copy(n_); }

 private:
  std::size_t n_;
  std::size_t shift_;
  std::unique_ptr<T[]> data_;
};

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// The first difference between two buffers, with the expected and the actual value; empty if all bits are equal.
template <typename T>
std::string first_difference(const std::vector<T>& got, const std::vector<T>& want) {
  std::ostringstream out;
  out << std::setprecision(9);
  for (std::size_t i = 0; i < got.size() && i < want.size(); ++i)
    if (std::memcmp(&got[i], &want[i], sizeof(T)) != 0) {
      out << (sizeof(T) == 1 ? "byte " : "value ") << i << ": expected " << +want[i] << ", got " << +got[i];
      return out.str();
    }
  if (got.size() != want.size()) out << "expected " << want.size() << " of them, got " << got.size();
  return out.str();
}

// Bitwise equal, except for NaN payloads.
inline bool same_values(const Floats& a, const Floats& b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return a.size() == b.size();
}

// Distance to the next float away from zero, at least the smallest denormal.
inline float ulp(float v) {
  const float a = std::min(std::abs(v), std::numeric_limits<float>::max());
  return a - std::nextafter(a, 0.0F) + std::numeric_limits<float>::denorm_min();
}

}  // namespace tithe::harness
