// SPDX-License-Identifier: Apache-2.0
// In front of every program that is made kernels of (emit_cuda.h): types, for a thread of a GPU, or of
// tests/support/grid_on_cpu.h.

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__CUDACC__)
#define DEV static __host__ __device__ inline
#define DEV_IN __host__ __device__
#define UNROLL _Pragma("unroll 8")
#else
#define DEV static inline
#define DEV_IN
#define UNROLL
#include "grid_on_cpu.h"
#endif
#define INL DEV                        // as prelude_scalars.h has it
enum { kThreads = 128, kLanes = 16 };  // of a block of threads; those of them that sum
typedef float F;
typedef double D;
typedef uint32_t U;
typedef int32_t I;
typedef bool M;

DEV U bits_(F a) {
  U u;
  memcpy(&u, &a, 4);
  return u;
}
DEV F float_(U a) {
  F f;
  memcpy(&f, &a, 4);
  return f;
}
