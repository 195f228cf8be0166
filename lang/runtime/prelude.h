// SPDX-License-Identifier: Apache-2.0
#pragma once
// The text in front of every generated program. For C++: the operators of the language on sixteen values at a time,
// in the target's vectors, and on single numbers. For CUDA: the same, one value at a time. The semantics are those of
// evaluate.cc and reduce.cc, the interface that of object.h. The text compiles without tithe's headers.
//
//   texts   the files listed in prelude.def, without their license line; prelude_test.cc and prelude_cuda_test.cc
//           compile the files directly

namespace tithe::lang {

#define TITHE_PRELUDE_CPP(name, file) extern const char* const kPrelude##name;
#define TITHE_PRELUDE_CUDA(name, file) extern const char* const kPrelude##name;
#include "lang/runtime/prelude.def"
#undef TITHE_PRELUDE_CPP
#undef TITHE_PRELUDE_CUDA

inline constexpr const char* const* kPrelude[] = {
#define TITHE_PRELUDE_CPP(name, file) &kPrelude##name,
#define TITHE_PRELUDE_CUDA(name, file)
#include "lang/runtime/prelude.def"
#undef TITHE_PRELUDE_CPP
#undef TITHE_PRELUDE_CUDA
};

}  // namespace tithe::lang
