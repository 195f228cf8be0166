// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rows made from a spec string: what `tithe bench codec` runs one of, and bench_codecs many.
#include <string>
#include <vector>

#include "measure/paired.h"

namespace tithe::bench {

inline constexpr std::size_t kFromMemory = 24'997'888;  // 100 MB: no cache holds it
inline constexpr std::size_t kInCache = 999'424;

// How the carry keeps what is left: not at all; in the residual itself, r += g being the reference; in a second
// buffer as the engine does until commit, out = r + g being the reference.
enum class Residual { kNone, kInPlace, kApart };

// Encode with the fastest impl against the same traffic without the codec. goal holds for kFromMemory values;
// in cache the goal is 0.6, or none if goal is 0. Appends both sizes.
void add_encode(std::vector<Row>& rows, const std::string& spec, Residual residual, double goal);

// Decode of `peers` payloads onto out in place, against scaling out in place and reading the payloads.
void add_decode(std::vector<Row>& rows, const std::string& spec, int peers, double goal);

// Encode with feedback of a codec that sends as many bytes as it takes, against one pass that reads and writes the same
// streams: out = r + g, r = g. `r += g` writes one stream less, the payload.
void add_encode_onward(std::vector<Row>& rows, const std::string& spec, double goal);

// Against the least traffic of one side: reading the values once, or writing them once past the caches.
enum class Beside { kSum, kFill };
void add_encode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal);
// Decode of one payload without a base.
void add_decode_beside(std::vector<Row>& rows, const std::string& spec, Beside beside, double goal);

// Decode of sparse payloads in place, against the bytes that it cannot do without.
void add_sparse_merge(std::vector<Row>& rows, const std::string& spec, int peers, double goal);

}  // namespace tithe::bench
