// SPDX-License-Identifier: Apache-2.0
#pragma once
// Draws from a seed.
#include <numeric>
#include <random>

#include "base/rng.h"
#include "chaos/scenario.h"

namespace tithe::chaos {

class Random {
 public:
  explicit Random(std::uint64_t seed) : rng_(mix64(seed + 0x9e3779b97f4a7c15ULL)) {}
  std::uint64_t of(std::uint64_t n) { return rng_() % n; }  // 0 .. n-1
  bool one_in(std::uint64_t n) { return of(n) == 0; }
  template <typename T>
  T any(std::initializer_list<T> list) {
    return *(list.begin() + of(list.size()));
  }
  double fraction() { return static_cast<double>(of(1U << 20)) / (1U << 20); }
  std::uint64_t word() { return rng_(); }
  template <typename T>
  void shuffle(std::vector<T>& v) {
    for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[of(i)]);
  }

 private:
  std::mt19937_64 rng_;
};

inline Buckets group(Random& random, std::size_t tensors) {
  std::vector<std::size_t> all(tensors);
  std::iota(all.begin(), all.end(), std::size_t{0});
  random.shuffle(all);
  Buckets out;
  for (const std::size_t t : all) {
    if (out.empty() || random.one_in(2)) out.emplace_back();
    out.back().push_back(t);
  }
  return out;
}

}  // namespace tithe::chaos
