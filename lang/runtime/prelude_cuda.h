// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated kernels (emit_cuda.h): the operators of the language on one value, except those of
// prelude_scalars.h.

#if defined(__CUDA_ARCH__)  // never fused, whatever the compiler's flags
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
DEV I add(I a, I b) { return I(U(a) + U(b)); }
DEV I sub(I a, I b) { return I(U(a) - U(b)); }
DEV I mul(I a, I b) { return I(U(a) * U(b)); }
template <class T>
DEV T min_(T a, T b) {
  return b < a ? b : a;
}
template <class T>
DEV T max_(T a, T b) {
  return a < b ? b : a;
}
template <class T>
DEV T clamp_(T v, T low, T high) {
  return v < low ? low : high < v ? high : v;
}
template <class T>
DEV T divide_(T a, T b, T c) {
  return b == 0 ? c : div_(a, b);
}
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
  U word = drawn((index >> 5 << 4 | (index & 15)) + U(key), key);  // two values share a random word
  U upper = word >> (32 - bits);
  return (index & 16) == 0 ? upper : (word ^ upper) & ((U(1) << bits) - 1);
}
struct Steps {  // codec/shared/common/block.h
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
