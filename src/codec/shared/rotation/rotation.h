// SPDX-License-Identifier: Apache-2.0
#pragma once
// A random rotation of a block: random signs, then the Walsh-Hadamard transform H without its factor 1 / sqrt(width).
// H H = width I, so H is its own inverse up to that factor. The rotated values are nearly normal for any block.
//
//   transform   the butterflies in one fixed order, which vectors of any size can follow: value pairs 1 apart, then 2,
//               4 .. width / 2. So all impls round floats alike; integers are exact
//   signs       32 signs are one draw from a key that all ranks share
#include <cstddef>
#include <cstdint>

#include "base/rng.h"

namespace tithe::rotation {

// `width` is a power of two.
template <typename T>
void transform(T* x, std::size_t width) {
  for (std::size_t half = 1; half < width; half *= 2)
    for (std::size_t first = 0; first < width; first += 2 * half)
      for (std::size_t i = first; i < first + half; ++i) {
        const T a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
}

// The signs of values 32 k .. 32 k + 31 of a chunk: bit j belongs to value 32 k + j; 1 means minus.
inline std::uint32_t signs(std::uint64_t key, std::size_t k) {
  return draw32(key, static_cast<std::uint32_t>(k));
}

// v, negated if the sign of value i of the chunk is minus.
inline float turned(float v, std::uint64_t key, std::size_t i) {
  return (signs(key, i / 32) >> i % 32 & 1) != 0 ? -v : v;
}

}  // namespace tithe::rotation
