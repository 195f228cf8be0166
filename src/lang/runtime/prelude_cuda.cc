// SPDX-License-Identifier: Apache-2.0
// In front of every program that is made kernels of (emit_cuda.h): each operator of the language on one value, for a
// thread of a GPU, or of tests/support/grid_on_cpu.h.
#include "lang/runtime/prelude.h"

namespace tithe::lang {

const char* const kPreludeCuda = R"front(
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__CUDACC__)
#define DEV static __host__ __device__ inline
#else
#define DEV static inline
#include "grid_on_cpu.h"
#endif
enum { kThreads = 128, kLanes = 16 };  // of a block of threads; those of them that sum
typedef float F;
typedef double D;
typedef uint32_t U;
typedef int32_t I;
typedef bool M;

// ---- Operators
DEV U bits_(F a) { U u; memcpy(&u, &a, 4); return u; }
DEV F float_(U a) { F f; memcpy(&f, &a, 4); return f; }
template <class T> DEV T splat(T a) { return a; }
#if defined(__CUDA_ARCH__)  // never fused, whatever the flags
DEV F add(F a, F b) { return __fadd_rn(a, b); }
DEV F sub(F a, F b) { return __fsub_rn(a, b); }
DEV F mul(F a, F b) { return __fmul_rn(a, b); }
DEV F div_(F a, F b) { return __fdiv_rn(a, b); }
DEV F sqrt_(F a) { return __fsqrt_rn(a); }
DEV D add(D a, D b) { return __dadd_rn(a, b); }
DEV D sub(D a, D b) { return __dsub_rn(a, b); }
DEV D mul(D a, D b) { return __dmul_rn(a, b); }
DEV D div_(D a, D b) { return __ddiv_rn(a, b); }
DEV D sqrt_(D a) { return __dsqrt_rn(a); }
#else
DEV F add(F a, F b) { return a + b; }
DEV F sub(F a, F b) { return a - b; }
DEV F mul(F a, F b) { return a * b; }
DEV F div_(F a, F b) { return a / b; }
DEV F sqrt_(F a) { return sqrtf(a); }
DEV D add(D a, D b) { return a + b; }
DEV D sub(D a, D b) { return a - b; }
DEV D mul(D a, D b) { return a * b; }
DEV D div_(D a, D b) { return a / b; }
DEV D sqrt_(D a) { return sqrt(a); }
#endif
DEV U add(U a, U b) { return a + b; }
DEV U sub(U a, U b) { return a - b; }
DEV U mul(U a, U b) { return a * b; }
DEV I add(I a, I b) { return I(U(a) + U(b)); }
DEV I sub(I a, I b) { return I(U(a) - U(b)); }
DEV I mul(I a, I b) { return I(U(a) * U(b)); }
DEV I div_(I a, I b) { return b == 0 ? 0 : I(int64_t(a) / int64_t(b)); }
DEV U div_(U a, U b) { return b == 0 ? 0 : a / b; }
DEV I mod_(I a, I b) { return b == 0 ? 0 : I(int64_t(a) % int64_t(b)); }
DEV U mod_(U a, U b) { return b == 0 ? 0 : a % b; }
template <class T> DEV T min_(T a, T b) { return b < a ? b : a; }
template <class T> DEV T max_(T a, T b) { return a < b ? b : a; }
template <class T> DEV bool lt(T a, T b) { return a < b; }
template <class T> DEV bool le(T a, T b) { return a <= b; }
template <class T> DEV bool eq(T a, T b) { return a == b; }
template <class T> DEV bool ne(T a, T b) { return a != b; }
template <class T> DEV T select(bool c, T a, T b) { return c ? a : b; }
template <class T> DEV T clamp_(T v, T low, T high) { return v < low ? low : high < v ? high : v; }
template <class T> DEV T divide_(T a, T b, T c) { return b == 0 ? c : div_(a, b); }
DEV F neg(F a) { return -a; }
DEV D neg(D a) { return -a; }
DEV I neg(I a) { return I(0U - U(a)); }
DEV F abs_(F a) { return float_(bits_(a) & 0x7fffffffU); }
DEV D abs_(D a) { return fabs(a); }
DEV I abs_(I a) { return a < 0 ? neg(a) : a; }
DEV F floor_(F a) { return floorf(a); }
DEV D floor_(D a) { return floor(a); }
DEV F ceil_(F a) { return ceilf(a); }
DEV D ceil_(D a) { return ceil(a); }
DEV F round_(F a) { return rintf(a); }
DEV D round_(D a) { return rint(a); }
DEV U and_(U a, U b) { return a & b; }
DEV U or_(U a, U b) { return a | b; }
DEV U xor_(U a, U b) { return a ^ b; }
DEV I and_(I a, I b) { return a & b; }
DEV I or_(I a, I b) { return a | b; }
DEV I xor_(I a, I b) { return a ^ b; }
DEV M and_(M a, M b) { return a && b; }
DEV M or_(M a, M b) { return a || b; }
DEV M xor_(M a, M b) { return a != b; }
DEV U not_(U a) { return ~a; }
DEV M not_(M a) { return !a; }
DEV M lnot(M a) { return !a; }
DEV M signbit_(F a) { return bits_(a) >> 31 != 0; }
DEV F copysign_(F a, F b) { return float_((bits_(a) & 0x7fffffffU) | (bits_(b) & 0x80000000U)); }
DEV U half_bits(F a) {  // binary16
  U v = bits_(a), size = v & 0x7fffffffU, sign = v >> 16 & 0x8000U;
  if (size > 0x7f800000U) return sign | 0x7e00U | (size >> 13 & 0x3ffU);
  if (size < 0x38800000U) return sign | (bits_(float_(size) + 0.5f) - 0x3f000000U);
  U rounded = (size - 0x38000000U + 0xfffU + (size >> 13 & 1U)) >> 13;
  return sign | (rounded < 0x7c00U ? rounded : 0x7c00U);
}
DEV F from_half_bits(U h) {
  U size = h & 0x7fffU, sign = (h & 0x8000U) << 16;
  if (size > 0x7c00U) return float_(sign | 0x7fc00000U | size << 13);
  if (size == 0x7c00U) return float_(sign | 0x7f800000U);
  if (size >= 0x400U) return float_(sign | ((size << 13) + 0x38000000U));
  return float_(sign | bits_(float(size) * 0x1p-24f));
}
DEV U as_u(I a) { return U(a); }
DEV U as_u(U a) { return a; }
DEV U as_u(M a) { return a ? 1U : 0U; }
DEV I as_i(U a) { return I(a); }
DEV U shl(U a, U b) { return b < 32 ? a << b : 0; }
DEV I shl(I a, U b) { return I(shl(U(a), b)); }
DEV U shr(U a, U b) { return b < 32 ? a >> b : 0; }
DEV I shr(I a, U b) { return b < 32 ? a >> b : a < 0 ? -1 : 0; }

// ---- Between types. A float becomes a whole number towards zero, within the ends that are given; NaN its lower end
DEV F to_f32(D a) { return F(a); }
DEV F to_f32(I a) { return F(a); }
DEV F to_f32(U a) { return F(a); }
DEV F small_f32(U a) { return F(a); }
DEV D to_f64(F a) { return a; }
DEV D to_f64(I a) { return a; }
DEV D to_f64(U a) { return a; }
DEV D small_f64(U a) { return a; }
DEV D held(D d, D low, D high) { return d > low ? (d < high ? d : high) : low; }
template <class T> DEV I to_i32(T v, D low, D high) { return I(held(D(v), low, high)); }
template <class T> DEV U to_u32(T v, D low, D high) { return U(held(D(v), low, high)); }
template <class T> DEV I small_i32(T v, D low, D high) { return to_i32(v, low, high); }

// ---- Random numbers (base/rng.h)
DEV U drawn(U x, uint64_t key) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15 ^ U(key >> 32);
  return x * 0x846ca68bU;
}
DEV U mixed(U x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}
DEV U draw(uint64_t key, uint64_t at, int bits) {
  U index = U(at);
  if (bits > 24) return mixed(U(key) ^ mixed(index ^ U(key >> 32))) >> (32 - bits);
  if (bits == 24) return drawn(index ^ U(key), key) >> 8;
  U word = drawn((index >> 5 << 4 | (index & 15)) + U(key), key);  // two values share a word
  U upper = word >> (32 - bits);
  return (index & 16) == 0 ? upper : (word ^ upper) & ((U(1) << bits) - 1);
}
struct Steps {  // codec/common/block.h
  F scale, lift, per;
  int fraction;
};
DEV Steps steps_of(F scale, int bits) {
  Steps s = {scale, 1, 0, 23 - bits};
  if (!(scale > 0.0f)) return s;
  if (scale < 0x1p-100f) s.lift = 0x1p100f;
  s.per = div_(F((U(1) << (bits - 1)) - 1 << s.fraction), mul(scale, s.lift));
  return s;
}
DEV I level_of(const Steps& s, F v, U random) {
  F held_v = clamp_(v, -s.scale, s.scale);
  if (!(abs_(held_v) <= s.scale)) return 0;
  return I(round_(mul(mul(held_v, s.lift), s.per))) + I(random) >> s.fraction;
}

DEV uint64_t mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}
)front";

}  // namespace tithe::lang
