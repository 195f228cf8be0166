// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec's two impls, reference and SIMD, are written in one of two ways:
//
//   a table of kernels   SIMD replaces inner loops only. A struct Kernels has two values, kReference and kSimd; encode,
//                        decode, check and combine are templates over it: codec::simd(kImpl<kSimd>),
//                        codec::reference(kImpl<kReference>). Most codecs. The pattern: codec/minmax
//   whole functions      the two differ in algorithm or memory, not only in inner loops: encode_ref and encode_simd,
//                        decode_ref and decode_simd, each named in its row of Codec::impls. The sparsifiers, qtopk,
//                        randomk and blocks. sparse::kImpls (sparse/sparsifier.h) makes both rows for a codec with the
//                        sparse payload
//
// This header makes a table of kernels from functions that Highway has compiled once per target. It is used at the
// end of a *_simd.cc:
//
//   #if HWY_ONCE
//   namespace tithe::onebit {
//   TITHE_KERNELS(const Kernels kSimd, encode, decode);
//   }
//   #endif
//
// defines kSimd. Its members encode and decode call the functions of the same names in HWY_NAMESPACE, compiled for the
// best target in use. A table with additional members is written out with TITHE_EXPORT and TITHE_KERNEL. This header
// has no includes, because Highway's headers must be included in a certain order.

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
