// SPDX-License-Identifier: Apache-2.0
#pragma once
// Each kind of codec has a file with its rows, <name>_rows.cc.
#include "advisor/measure/codec_rows.h"

namespace tithe::bench {

#define TITHE_ROWS(name) void add_##name##_rows(std::vector<Row>& rows);
#include "rows.def"
#undef TITHE_ROWS

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
