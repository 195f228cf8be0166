// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels of programs and phases that send numbers and fixed-width codes, on tiles (runtime/prelude_cuda_tiles.h): a
// thread loads its values once, and reduces, encodes and subtracts them in registers.
#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

std::string tiles_text(const Checked& program, const Schedule& schedule);

}  // namespace tithe::lang
