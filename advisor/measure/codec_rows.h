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

// Encoding with the fastest implementation, compared with the same memory traffic without the codec. `goal` holds for
// kFromMemory values; in cache the goal is 0.6, or none if `goal` is 0. Appends both sizes.
void add_encode(std::vector<Row>& rows, const std::string& spec, Residual residual, double goal);

// Decoding of `peers` payloads into `out` in place, compared with scaling `out` in place and reading the payloads.
void add_decode(std::vector<Row>& rows, const std::string& spec, int peers, double goal);

// Encoding with feedback of a codec whose payload is as large as its input, compared with one pass over the same
// streams: out = r + g, r = g. (`r += g` writes one stream less, the payload.)
void add_encode_onward(std::vector<Row>& rows, const std::string& spec, double goal);

// Comparison with the least traffic of one side: reading the values once (kSum), or writing them once past the caches
// (kFill).
enum class Beside { kSum, kFill };
void add_encode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal);
// Decoding of one payload without a base.
void add_decode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal);

// Decoding of sparse payloads in place, compared with the memory traffic that every implementation needs.
void add_sparse_merge(std::vector<Row>& rows, const std::string& spec, int peers, double goal);

}  // namespace tithe::bench
