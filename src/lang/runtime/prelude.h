// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands in front of every generated program: sixteen values at a time, in the vectors that the target has, and
// each operator of the language on them and on single numbers. The meaning is that of evaluate.cc and reduce.cc, the
// interface that of object.h. Nothing of tithe's is needed where it is compiled.

namespace tithe::lang {

extern const char* const kPreludeTypes;
extern const char* const kPreludeAvx512;
extern const char* const kPreludeOthers;
extern const char* const kPreludeNumbers;
extern const char* const kPreludeCodes;
extern const char* const kPreludePasses;
extern const char* const kPreludeTables;
// Of kernels (emit_cuda.h): one value at a time.
extern const char* const kPreludeCuda;
extern const char* const kPreludeCudaBytes;
extern const char* const kPreludeCudaLists;
extern const char* const kPreludeCudaLengths;
extern const char* const kPreludeCudaTrits;
extern const char* const kPreludeCudaInts;

inline constexpr const char* const* kPrelude[] = {&kPreludeTypes,   &kPreludeAvx512, &kPreludeOthers,
                                                  &kPreludeNumbers, &kPreludeCodes,  &kPreludePasses,
                                                  &kPreludeTables};

}  // namespace tithe::lang
