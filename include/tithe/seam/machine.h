// SPDX-License-Identifier: Apache-2.0
#pragma once
// This machine's capabilities, and the vector instructions that the kernels use. A target is a set of them under
// Highway's name: avx3 and avx3_dl are AVX-512, the second one as of Ice Lake; scalar is what runs where there is none
// that tithe has code for. All targets write the same bytes.
//
// The best of the targets that this processor has is used; TITHE_TARGET, or use_target, holds all kernels to a
// lesser one. Where a kernel has no code for the target in use, it takes its next lesser one.
#include <string>
#include <string_view>
#include <vector>

#include "tithe/status.h"

namespace tithe {

// The capabilities of this process's machine. Read once, where a program chooses its impls; never by a codec.
struct Machine {
  bool simd = true;  // false forces the reference everywhere
  int sm = 0;        // CUDA compute capability, 90 for Hopper; 0 without a GPU
};
const Machine& this_machine();  // TITHE_FORCE_REFERENCE=1 turns simd off (docs/reference/environment.md)

std::vector<std::string> targets();  // of this processor, best first, whatever is in use
std::string target();                // the one in use

// In capitals or not. kInvalid names the targets that there are, and changes nothing. Not while a kernel runs.
Status use_target(std::string_view name);

// Ok if the environment can be followed. A program that uses codecs asks before it begins; Session::open asks itself.
Status check_environment();

}  // namespace tithe
