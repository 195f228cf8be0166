// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels for programs that send pairs (emit_cuda.h). Each value gets a key: 0 if it may not be sent, otherwise its
// magnitude's bits plus one. Thresholds and limits are keys that radix selection finds; then values with sufficient
// keys are counted, scanned and written.
#include <string>

#include "lang/front/passes.h"

namespace tithe::lang {

std::string lists_text(const Checked& program, const Schedule& schedule);

}  // namespace tithe::lang
