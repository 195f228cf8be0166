// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels for programs whose blocks have variable sizes in a payload (emit_cuda.h): one kernel measures the blocks,
// one scans the sizes to offsets, and one sends. A reader walks from block to block; if a table has the byte counts
// of groups of blocks (`per`), groups are read in parallel.
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

// True if a program needs these kernels: its blocks have variable sizes, or sending needs a reduction over all
// blocks.
bool has_lengths(const Checked& program);

std::string lengths_text(const Checked& program, const Schedule& schedule);

}  // namespace tithe::lang
