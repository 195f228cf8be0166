// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reference work for benchmarks: the least work that moves the same bytes, with the widest vectors of the
// processor. Stores are ordinary, as in the kernels, since the values are read again soon.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/seam/codec.h"

namespace tithe::bench {

void add(float* r, const float* g, std::size_t n);                          // r += g
void add_apart(const float* r, const float* g, float* out, std::size_t n);  // out = r + g
// Reads n values, writes `bytes` bytes: a memory copy whose target is shorter than its source.
void copy(const float* from, std::size_t n, std::uint8_t* to, std::size_t bytes);
// v *= s in place, and reads all payloads alongside. The return value keeps the reads alive.
std::uint32_t scale(float* v, std::size_t n, float s, std::span<const ByteView> payloads);

}  // namespace tithe::bench
