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
#define ALL _Pragma("unroll")  // the whole loop, so that its arrays are registers
#else
#define DEV static inline
#define DEV_IN
#define UNROLL
#define ALL
#include "grid_on_cpu.h"
#endif
#define INL DEV                        // as in prelude_scalars.h
enum { kThreads = 128, kLanes = 16 };  // threads per thread block; lanes of a sum
typedef float F;
typedef double D;
typedef uint32_t U;
typedef int32_t I;
typedef bool M;
struct Nothing {};

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

// ---- Accesses to global memory; a test counts their bytes
#if !defined(COUNT_LOAD)
#define COUNT_LOAD(bytes)
#define COUNT_STORE(bytes)
#endif
template <class T>
DEV T fetch(const T* from) {
  COUNT_LOAD(sizeof(T));
  return *from;
}
template <class T>
DEV void store(T* to, T v) {
  COUNT_STORE(sizeof(T));
  *to = v;
}
template <unsigned kAlign>
DEV bool is_aligned(const void* at) {
  return reinterpret_cast<size_t>(at) % kAlign == 0;
}
