// SPDX-License-Identifier: Apache-2.0
#pragma once
// Each kind of codec has a file with its rows, <name>_rows.cc.
#include "advisor/measure/codec_rows.h"

namespace tithe::bench {

#define TITHE_ROWS(name) void add_##name##_rows(std::vector<Row>& rows);
#include "rows.def"
#undef TITHE_ROWS

}  // namespace tithe::bench
