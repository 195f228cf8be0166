// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checked program as CUDA kernels, and the two functions that launch them: tithe_encode, and tithe_decode, which adds
// one payload to a base. Compiled, and emulated on a processor by tests/support/grid_on_cpu.h: no GPU has run them.
//
//   phases    a kernel is some functions of a thread with a barrier behind each, so that the emulation needs neither
//             fibers nor assembly
//   blocks    a block of threads works on one block of the program; where that is all values, or more than kPiece, on a
//             piece of kPiece to find something, and on a run of kRun to send or decode
//   sums      16 of the threads add up in the shape of base/fold.h, pieces in the shape of lang/run/reduce.h
//   lists     of pairs: counted, scanned and written; the largest of them by a radix selection of their magnitudes
//   bytes     each byte of a payload is written by one thread
//   agreed    a phase reads what the one in front of it agreed on as plain numbers (lang/run/context.h)
//
// Checks stay with the host. Call::answer tells whether what is sent is finite, and what its `where` says.
#include <string>
#include <vector>

#include "lang/run/interpreter.h"

namespace tithe::lang {

// Why no kernels are made of a phase in these settings; nullptr: they are.
const char* no_kernels(const Combination& of, const Settings& settings);

std::string cuda_file(const Combination& of);

// Several phases in one file: the functions of the phase NAME are tithe_NAME_encode and so on. One that decodes nothing
// has no tithe_NAME_decode.
struct NamedPhase {
  std::string_view name;
  const Combination* of;
};
std::string cuda_file(const std::vector<NamedPhase>& phases);

}  // namespace tithe::lang
