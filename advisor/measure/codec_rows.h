// SPDX-License-Identifier: Apache-2.0
#pragma once
// Benchmark rows created from a spec: `tithe bench codec` runs one, bench_codecs many.
#include <string>
#include <vector>

#include "advisor/measure/paired.h"

namespace tithe::bench {

inline constexpr std::size_t kFromMemory = 24'997'888;  // 100 MB: larger than any cache
inline constexpr std::size_t kInCache = 999'424;

// Where error feedback stores the residual: nowhere (kNone); in place, with r += g as the reference (kInPlace); or in a
// second buffer until commit, as in the engine, with out = r + g as the reference (kApart).
enum class Residual { kNone, kInPlace, kApart };

// Appends the row with kFromMemory and with kInCache values. In cache the goal is 0.6, or none if `goal` is 0.
void add_both_sizes(std::vector<Row>& rows, Row row, double goal);

// Encoding with the fastest implementation, compared with the same memory traffic without the codec. Appends
// both sizes.
void add_encode(std::vector<Row>& rows, const std::string& spec, Residual residual, double goal);

// Decoding of `peers` payloads into `out` in place, compared with scaling `out` in place and reading the payloads.
void add_decode(std::vector<Row>& rows, const std::string& spec, int peers, double goal);

}  // namespace tithe::bench
