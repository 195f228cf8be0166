// SPDX-License-Identifier: Apache-2.0
#pragma once
// A checked program as CUDA kernels, and the two functions that launch them: tithe_encode, and tithe_decode, which adds
// one payload to a base. Compiled, and emulated on a processor by tests/support/grid_on_cpu.h, and for
// ThreadSanitizer by grid_on_fibers.h beside it.
//
//   phases    a kernel is some functions of a thread with a barrier behind each, so that the emulation needs neither
//             fibers nor assembly
//   blocks    a group of 16 to 128 threads works on one block of the program, and several groups share a block of
//             threads; where the block is all values, or more than kPiece, a block of threads works on a run of kRun to
//             send or decode, and one or more groups on pieces of kPiece to find something
//   sums      16 threads add up in the shape of base/fold.h, pieces in the shape of lang/run/reduce.h; no others wait
//             for them where a block's codes leave room for as many groups
//   lists     of pairs: counted, scanned and written; the largest of them by a radix selection of their magnitudes
//   scans     by rows of 16 threads: what stands before a thread is no thread's work alone
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
