// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checked program as CUDA kernels, and the two functions that launch them: tithe_encode, and tithe_decode, which adds
// one payload to a base. Compiled, and emulated on a processor by tests/support/grid_on_cpu.h: no GPU has run them.
//
//   phases    a kernel is some functions of a thread with a barrier behind each, so that the emulation needs neither
//             fibers nor assembly
//   blocks    a block of threads works on one block of the program; where that is all values, or more than kPiece, on a
//             piece of kPiece to find something, and on a run of kRun to send or decode
//   sums      16 of the threads add up in the shape of base/fold.h, pieces in the shape of lang/reduce.h
//   lists     of pairs: counted, scanned and written; the largest of them by a radix selection of their magnitudes
//   bytes     each byte of a payload is written by one thread
//
// Checks stay with the host. Whether what is sent is finite and what its `where` says is told in Call::answer.
#include <string>

#include "lang/interpreter.h"

namespace tithe::lang {

// Why no kernels are made of a program in these settings; nullptr: they are.
const char* no_kernels(const Combination& of, const Settings& settings);

std::string cuda_file(const Combination& of);

}  // namespace tithe::lang
