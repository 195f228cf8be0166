// SPDX-License-Identifier: Apache-2.0
// A radix-2 transform in place. Only additions and multiplications in a fixed order, and tables from series, so the
// result has the same bits on every machine.
#include "base/fourier.h"

#include <array>
#include <mutex>
#include <numbers>

namespace tithe::fourier {
namespace {

// cos and sin of angles up to pi / 4 by their series, since no two C libraries agree on every bit of theirs.
struct Sides {
  double cos, sin;
};
Sides sides(double angle) {
  double cos = 1, sin = angle, of_cos = 1, of_sin = angle;
  for (int j = 1; j <= 9; ++j) {
    of_cos *= -angle * angle / (2 * j * (2 * j - 1));
    of_sin *= -angle * angle / (2 * j * (2 * j + 1));
    cos += of_cos;
    sin += of_sin;
  }
  return {cos, sin};
}

Tables make(int m) {
  Tables t;
  t.length = std::size_t{1} << m;
  for (std::size_t k = 0; 2 * k < t.length; ++k) {
    const bool low = 4 * k <= t.length;  // up to pi / 4
    const std::size_t from_axis = low ? k : t.length / 2 - k;
    const Sides s = sides(std::numbers::pi * static_cast<double>(from_axis) / static_cast<double>(t.length));
    t.turn.push_back({static_cast<float>(low ? s.cos : s.sin), -static_cast<float>(low ? s.sin : s.cos)});
  }
  for (std::size_t j = 0; j < t.length; ++j) {
    std::uint32_t reversed = 0;
    for (int bit = 0; bit < m; ++bit) reversed |= static_cast<std::uint32_t>(j >> bit & 1U) << (m - 1 - bit);
    t.bit_reversed.push_back(reversed);
  }
  return t;
}

}  // namespace

const Tables& tables(int m) {
  static std::array<std::once_flag, kMaxLog + 1> made;
  static std::array<Tables, kMaxLog + 1> all;
  const auto at = static_cast<std::size_t>(m);
  std::call_once(made[at], [&] { all[at] = make(m); });
  return all[at];
}

void transform(const Tables& tables, std::span<Complex> z) {
  for (std::size_t half = 1; half < z.size(); half *= 2)
    for (std::size_t start = 0; start < z.size(); start += 2 * half)
      for (std::size_t k = 0; k < half; ++k) {
        const Complex a = z[start + k];
        const Complex t = turned(tables, z[start + k + half], k, half);
        z[start + k] = {a.re + t.re, a.im + t.im};
        z[start + k + half] = {a.re - t.re, a.im - t.im};
      }
}

}  // namespace tithe::fourier
