// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stands in front of every generated program: sixteen values at a time, in the vectors that the target has, and
// each operator of the language on them and on single numbers; and the same for kernels, one value at a time. The
// meaning is that of evaluate.cc and reduce.cc, the interface that of object.h. Nothing of tithe's is needed where it
// is compiled.
//
//   texts   are the files that prelude.def names, without their license line; prelude_test.cc and prelude_cuda_test.cc
//           compile them as they are

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
