// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated kernels (emit_cuda.h): types, for a GPU thread or for tests/support/grid_on_cpu.h.

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
#define INL DEV                        // as in prelude_scalars.h
enum { kThreads = 128, kLanes = 16 };  // threads per thread block; lanes of a sum
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
