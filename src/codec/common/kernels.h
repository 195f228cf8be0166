// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of a *_simd.cc: kernels that Highway has compiled once for each target become one table of functions.
//
//   #if HWY_ONCE
//   namespace tithe::onebit {
//   TITHE_KERNELS(const Kernels kSimd, encode, decode);
//   }
//   #endif
//
// defines kSimd; its members encode and decode call the functions of the same names in HWY_NAMESPACE, those of the best
// target in use. A table that also holds other members is written out, with TITHE_EXPORT and TITHE_KERNEL.
// Includes nothing: Highway's headers come in their own order.

#define TITHE_KERNELS(table, ...)       \
  TITHE_EACH(TITHE_EXPORT, __VA_ARGS__) \
  table = {TITHE_EACH(TITHE_KERNEL_COMMA, __VA_ARGS__)}

#define TITHE_EXPORT(name) HWY_EXPORT(name);
#define TITHE_KERNEL(name) .name = [](auto... args) { return HWY_DYNAMIC_DISPATCH(name)(args...); }
#define TITHE_KERNEL_COMMA(name) TITHE_KERNEL(name),

// macro(first) macro(second) ..., for at most 16.
#define TITHE_EACH(macro, ...) TITHE_RESCAN(TITHE_EACH_STEP(macro, __VA_ARGS__))
#define TITHE_EACH_STEP(macro, first, ...) \
  macro(first) __VA_OPT__(TITHE_EACH_NEXT TITHE_PARENS(macro, __VA_ARGS__))
#define TITHE_EACH_NEXT() TITHE_EACH_STEP
#define TITHE_PARENS ()
#define TITHE_RESCAN(...) TITHE_RESCAN_4(TITHE_RESCAN_4(TITHE_RESCAN_4(TITHE_RESCAN_4(__VA_ARGS__))))
#define TITHE_RESCAN_4(...) TITHE_RESCAN_1(TITHE_RESCAN_1(TITHE_RESCAN_1(TITHE_RESCAN_1(__VA_ARGS__))))
#define TITHE_RESCAN_1(...) __VA_ARGS__
