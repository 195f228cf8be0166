// SPDX-License-Identifier: Apache-2.0
#pragma once
// The reference work for benchmarks: the least work that moves the same bytes, with the widest vectors of the
// processor. Stores are ordinary, as in the kernels, since the values are read again soon; exceptions are stated.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tithe/seam/codec.h"

namespace tithe::bench {

void add(float* r, const float* g, std::size_t n);                          // r += g
void add_apart(const float* r, const float* g, float* out, std::size_t n);  // out = r + g
void move_on(float* r, const float* g, float* out, std::size_t n);          // out = r + g, r = g
// Reads n values, writes `bytes` bytes: a memory copy whose target is shorter than its source.
void copy(const float* from, std::size_t n, std::uint8_t* to, std::size_t bytes);
// v *= s in place, and reads all payloads alongside. The return value keeps the reads alive.
std::uint32_t scale(float* v, std::size_t n, float s, std::span<const ByteView> payloads);

// Reads n values, no more. The return value keeps the reads alive.
std::uint32_t read_values(const float* from, std::size_t n);
// Writes n values past the caches, with the only streaming stores here. `out` must be aligned to 64 bytes.
void fill_past_caches(float* out, std::size_t n, float value);

}  // namespace tithe::bench
