// SPDX-License-Identifier: Apache-2.0
#pragma once
// Further reference work, beside that of advisor/measure/reference.h: passes over fp32 values with the widest vectors
// of the processor.
#include <cstddef>
#include <cstdint>

namespace tithe::bench {

void move_on(float* r, const float* g, float* out, std::size_t n);  // out = r + g, r = g

// Reads n values, no more. The return value keeps the reads alive.
std::uint32_t read_values(const float* from, std::size_t n);
// Writes n values past the caches, with the only streaming stores here. `out` must be aligned to 64 bytes.
void fill_past_caches(float* out, std::size_t n, float value);

}  // namespace tithe::bench
