// SPDX-License-Identifier: Apache-2.0
#pragma once
// Generates CUDA kernels from a checked program, and the two functions that launch them: tithe_encode, and
// tithe_decode, which adds one payload to a base. Tests run the same text on a CPU: tests/support/grid_on_cpu.h
// emulates a grid, and grid_on_fibers.h does so for ThreadSanitizer.
//
//   phases    a kernel is a list of per-thread functions with a barrier behind each one, so that the emulation needs
//             neither fibers nor assembly
//   tiles     a group of 4 to 128 threads loads a block of the program once, by 16-byte accesses, and keeps the values
//             in registers; several groups share a thread block. A block of more than 2048 values (or of all values) is
//             sent and decoded in runs of kRun values, and its reductions read it once more, in pieces of kPiece values
//   sums      16 threads add in the order of base/fold.h, pieces in the order of lang/run/reduce.h
//   words     codes are packed to words in registers or shared memory; a word at an unaligned address moves as bytes
//   lists     of pairs: counted, scanned and written; the largest are found by radix selection of their magnitudes
//   scans     over rows of 16 threads, so that no single thread computes all prefixes
//   context   a phase reads the previous phase's items as plain arrays (lang/run/context.h)
//
// Payloads are checked on the host. Call::answer reports whether all sent values are finite and satisfy their
// `where`.
#include <string>
#include <vector>

#include "lang/run/interpreter.h"

namespace tithe::lang {

// The reason why no kernels are generated for a phase in these settings; nullptr: they are.
const char* no_kernels(const Combination& of, const Settings& settings);

std::string cuda_file(const Combination& of);

// Several phases in one file: the functions of the phase NAME are tithe_NAME_encode and so on. A phase that decodes
// nothing has no tithe_NAME_decode.
struct NamedPhase {
  std::string_view name;
  const Combination* of;
};
std::string cuda_file(const std::vector<NamedPhase>& phases);

}  // namespace tithe::lang
