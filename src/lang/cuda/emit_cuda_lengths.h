// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of a program whose blocks have different lengths in a payload (emit_cuda.h): one kernel measures the
// blocks, one adds up where each begins, and one sends. A reader has to walk from block to block; where a table has the
// bytes of some blocks (`per`), many walk at a time.
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

// True if these kernels are a program's: its blocks begin where those before them end, or wait for what is found of all
// of them.
bool has_lengths(const Checked& program);

std::string lengths_text(const Checked& program, const Schedule& schedule);

}  // namespace tithe::lang
