// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): the operations of the other targets, without SIMD
// intrinsics.
#if W == 16
namespace {

D_TWO(min_, b.v[j] < a.v[j] ? b.v[j] : a.v[j])
D_TWO(max_, a.v[j] < b.v[j] ? b.v[j] : a.v[j])
#define MINMAX(T)                                    \
  TWO(T, T, min_, b.v[k] < a.v[k] ? b.v[k] : a.v[k]) \
  TWO(T, T, max_, a.v[k] < b.v[k] ? b.v[k] : a.v[k])
MINMAX(F)
MINMAX(I)
MINMAX(U)
#define SHIFT(name, op)                                                      \
  INL U name(U a, U b) {                                                     \
    U r;                                                                     \
    EACH(r.v[k] = b.v[k] < 32U ? a.v[k] op(b.v[k] & 31U) : a.v[k] ^ a.v[k]); \
    return r;                                                                \
  }
SHIFT(shl, <<)
SHIFT(shr, >>)
INL I shl(I a, U b) { return as_i(shl(as_u(a), b)); }
INL I shr(I a, U b) {
  I r;
  EACH(VU c = b.v[k] < 32U ? b.v[k] : (b.v[k] & 0U) + 31U; r.v[k] = a.v[k] >> (VI)c);
  return r;
}
#define ROUND(name, of)                                                  \
  INL F name(F a) {                                                      \
    F r;                                                                 \
    EACH(for (int j = 0; j < kLanes; ++j) r.v[k][j] = of##f(a.v[k][j])); \
    return r;                                                            \
  }                                                                      \
  INL D name(D a) {                                                      \
    D r;                                                                 \
    for (int k = 0; k < 2 * kVectors; ++k)                               \
      for (int j = 0; j < kLanes / 2; ++j) r.v[k][j] = of(a.v[k][j]);    \
    return r;                                                            \
  }
ROUND(floor_, __builtin_floor)
ROUND(ceil_, __builtin_ceil)
ROUND(round_, __builtin_nearbyint)
ROUND(sqrt_, __builtin_sqrt)
INL uint32_t mask_bits(M m) {
  uint32_t b = 0;
  for (int j = 0; j < 16; ++j) b |= uint32_t(m.v[j / kLanes][j % kLanes] & 1) << j;
  return b;
}
template <int kFirst>
INL M bits_mask_from(uint32_t b) {
  M r;
  b >>= kFirst;
  for (int j = 0; j < 16; ++j) r.v[j / kLanes][j % kLanes] = (b >> j & 1U) ? -1 : 0;
  return r;
}
INL M bits_mask(uint32_t b) { return bits_mask_from<0>(b); }
INL void narrow8(U u, uint64_t* to) {
  uint8_t b[16];
  for (int j = 0; j < 16; ++j) b[j] = uint8_t(u.v[j / kLanes][j % kLanes]);
  __builtin_memcpy(to, b, 16);
}
INL U widen8(const uint64_t* from) {
  uint8_t b[16];
  __builtin_memcpy(b, from, 16);
  U r;
  for (int j = 0; j < 16; ++j) r.v[j / kLanes][j % kLanes] = b[j];
  return r;
}
template <int kBits>
INL F looked_up(F table, U code) {
  float from[16];
  __builtin_memcpy(from, &table, 64);
  F r;
  for (int j = 0; j < 16; ++j) r.v[j / kLanes][j % kLanes] = from[code.v[j / kLanes][j % kLanes] & 15];
  return r;
}
INL void narrow16(U u, uint8_t* to) {
  for (int j = 0; j < 16; ++j) {
    uint32_t v = u.v[j / kLanes][j % kLanes];
    to[2 * j] = uint8_t(v);
    to[2 * j + 1] = uint8_t(v >> 8);
  }
}
INL U widen16(const uint8_t* from) {
  U r;
  for (int j = 0; j < 16; ++j) r.v[j / kLanes][j % kLanes] = uint32_t(from[2 * j] | from[2 * j + 1] << 8);
  return r;
}

}  // namespace
#endif
