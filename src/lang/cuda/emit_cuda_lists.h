// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of a program that sends pairs (emit_cuda.h): each value gets a key, 0 where it may not go and one more
// than its magnitude otherwise. Thresholds and limits are keys, found by radix selection; what reaches them is counted,
// scanned and written.
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

std::string lists_text(const Checked& program, const Schedule& schedule);

}  // namespace tithe::lang
