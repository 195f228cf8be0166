// SPDX-License-Identifier: Apache-2.0
#pragma once
// The capabilities of this machine, and the vector instructions of the kernels. A target is a set of vector
// instructions under Highway's name: avx3 and avx3_dl are AVX-512, the second one from Ice Lake on; scalar is for
// processors without a supported set. All targets write the same bytes.
//
// The best target of this processor is used. TITHE_TARGET, or use_target(), limits all kernels to a lower one. A
// kernel without code for the target in use takes the next lower one.
#include <string>
#include <string_view>
#include <vector>

#include "tithe/status.h"

namespace tithe {

// The capabilities of this process's machine. Read once, when a program chooses its impls; never by a codec.
struct Machine {
  bool simd = true;  // false forces the reference everywhere
  int sm = 0;        // CUDA compute capability, 90 for Hopper; 0 without a GPU
};
const Machine& this_machine();  // TITHE_FORCE_REFERENCE=1 turns simd off (docs/reference/environment.md)

std::vector<std::string> targets();  // of this processor, best first, independent of the target in use
std::string target();                // the target in use

// Not case-sensitive. kInvalid lists the available targets and changes nothing. Must not be called while a kernel
// runs.
Status use_target(std::string_view name);

// Ok if the environment variables are valid. A program that uses codecs without a session calls it first;
// Session::open calls it itself.
Status check_environment();

}  // namespace tithe
