// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): masks, half vectors, rounding and narrowing with AVX-512.
#if W == 64
namespace {

#define MASK(name, T, of) \
  INL M name(T a, T b) {  \
    M r;                  \
    r.v = of;             \
    return r;             \
  }
#define COMPARE(name, fp, whole)                                                \
  MASK(name, F, _mm512_cmp_ps_mask((__m512)a.v[0], (__m512)b.v[0], fp))         \
  MASK(name, I, _mm512_cmp_epi32_mask((__m512i)a.v[0], (__m512i)b.v[0], whole)) \
  MASK(name, U, _mm512_cmp_epu32_mask((__m512i)a.v[0], (__m512i)b.v[0], whole)) \
  MASK(name, D,                                                                 \
       (__mmask16)(_mm512_cmp_pd_mask((__m512d)a.v[0], (__m512d)b.v[0], fp) |   \
                   _mm512_cmp_pd_mask((__m512d)a.v[1], (__m512d)b.v[1], fp) << 8))
COMPARE(lt, _CMP_LT_OQ, _MM_CMPINT_LT)
COMPARE(le, _CMP_LE_OQ, _MM_CMPINT_LE)
COMPARE(eq, _CMP_EQ_OQ, _MM_CMPINT_EQ)
COMPARE(ne, _CMP_NEQ_UQ, _MM_CMPINT_NE)
MASK(and_, M, (__mmask16)((a.v) & b.v))
MASK(or_, M, (__mmask16)(a.v | b.v))
MASK(xor_, M, (__mmask16)(a.v ^ b.v))
INL M not_(M a) {
  a.v = (__mmask16)~a.v;
  return a;
}
INL M splat(bool s) {
  M r;
  r.v = (__mmask16)(s ? 0xffff : 0);
  return r;
}
#define SELECT(T, ...)          \
  INL T select(M c, T a, T b) { \
    T r;                        \
    r.v[0] = __VA_ARGS__;       \
    return r;                   \
  }
SELECT(F, (VF)_mm512_mask_blend_ps(c.v, (__m512)b.v[0], (__m512)a.v[0]))
SELECT(I, (VI)_mm512_mask_blend_epi32(c.v, (__m512i)b.v[0], (__m512i)a.v[0]))
SELECT(U, (VU)_mm512_mask_blend_epi32(c.v, (__m512i)b.v[0], (__m512i)a.v[0]))
INL D select(M c, D a, D b) {
  D r;
  r.v[0] = (VD)_mm512_mask_blend_pd((__mmask8)c.v, (__m512d)b.v[0], (__m512d)a.v[0]);
  r.v[1] = (VD)_mm512_mask_blend_pd((__mmask8)(c.v >> 8), (__m512d)b.v[1], (__m512d)a.v[1]);
  return r;
}
INL M signbit_(F a) {
  M r;
  r.v = _mm512_movepi32_mask((__m512i)a.v[0]);
  return r;
}
ONE(U, M, as_u, (VU)_mm512_maskz_set1_epi32(a.v, 1))
INL U count_up(U n, M m) {
  n.v[0] = (VU)_mm512_mask_add_epi32((__m512i)n.v[0], m.v, (__m512i)n.v[0], _mm512_set1_epi32(1));
  return n;
}
// Returns the second operand if both are equal or one is NaN.
TWO(F, F, min_, (VF)_mm512_min_ps((__m512)b.v[k], (__m512)a.v[k]))
TWO(F, F, max_, (VF)_mm512_max_ps((__m512)b.v[k], (__m512)a.v[k]))
TWO(I, I, min_, (VI)_mm512_min_epi32((__m512i)b.v[k], (__m512i)a.v[k]))
TWO(I, I, max_, (VI)_mm512_max_epi32((__m512i)b.v[k], (__m512i)a.v[k]))
TWO(U, U, min_, (VU)_mm512_min_epu32((__m512i)b.v[k], (__m512i)a.v[k]))
TWO(U, U, max_, (VU)_mm512_max_epu32((__m512i)b.v[k], (__m512i)a.v[k]))
D_TWO(min_, (VD)_mm512_min_pd((__m512d)b.v[j], (__m512d)a.v[j]))
D_TWO(max_, (VD)_mm512_max_pd((__m512d)b.v[j], (__m512d)a.v[j]))
INL D to_f64(F a) {
  D r;
  r.v[0] = (VD)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)a.v[0]));
  r.v[1] = (VD)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)a.v[0], 1));
  return r;
}
INL D to_f64(I a) {
  D r;
  r.v[0] = (VD)_mm512_cvtepi32_pd(_mm512_castsi512_si256((__m512i)a.v[0]));
  r.v[1] = (VD)_mm512_cvtepi32_pd(_mm512_extracti32x8_epi32((__m512i)a.v[0], 1));
  return r;
}
ONE(F, D, to_f32,
    (VF)_mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps((__m512d)a.v[0])),
                           _mm512_cvtpd_ps((__m512d)a.v[1]), 1))
ONE(I, D, towards_zero,
    (VI)_mm512_inserti32x8(_mm512_castsi256_si512(_mm512_cvttpd_epi32((__m512d)a.v[0])),
                           _mm512_cvttpd_epi32((__m512d)a.v[1]), 1))
#define SHIFT(T, name, of)                         \
  INL T name(T a, U b) {                           \
    T r;                                           \
    r.v[0] = of((__m512i)a.v[0], (__m512i)b.v[0]); \
    return r;                                      \
  }
SHIFT(U, shl, (VU)_mm512_sllv_epi32)
SHIFT(I, shl, (VI)_mm512_sllv_epi32)
SHIFT(U, shr, (VU)_mm512_srlv_epi32)
SHIFT(I, shr, (VI)_mm512_srav_epi32)
#define ROUND(name, how)                                         \
  ONE(F, F, name, (VF)_mm512_roundscale_ps((__m512)a.v[k], how)) \
  D_ONE(name, (VD)_mm512_roundscale_pd((__m512d)a.v[j], how))
ROUND(floor_, 9)
ROUND(ceil_, 10)
ROUND(round_, 8)
ONE(F, F, sqrt_, (VF)_mm512_sqrt_ps((__m512)a.v[k]))
D_ONE(sqrt_, (VD)_mm512_sqrt_pd((__m512d)a.v[j]))
INL uint32_t mask_bits(M m) { return m.v; }
ONE(U, F, half_bits, (VU)_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)a.v[k], 8)))
ONE(F, U, from_half_bits, (VF)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)a.v[k])))
INL M bits_mask(uint32_t b) {
  M r;
  r.v = (__mmask16)b;
  return r;
}
INL __m128i octets(U u) { return _mm512_cvtepi32_epi8((__m512i)u.v[0]); }
ONE(U, __m128i, widened, (VU)_mm512_cvtepu8_epi32(a))
// Distributes codes of 2 to 4 bits to sixteen lanes: each word holds eight of them, or the first word all sixteen.
template <int kBits>
INL U spread_words(uint32_t low, uint32_t high) {
  __m512i both = _mm512_set1_epi32(int(low));
  if (kBits > 2) both = _mm512_mask_set1_epi32(both, 0xff00, int(high));
  U at = lanes();
  EACH(at.v[k] = (kBits > 2 ? at.v[k] & 7U : at.v[k]) * kBits);
  U r;
  r.v[0] = (VU)_mm512_srlv_epi32(both, (__m512i)at.v[0]) & all<VU>((1U << kBits) - 1);
  return r;
}
// table[code] for codes below 2^kBits; kBits is at most 4.
template <int kBits>
INL F looked_up(F table, U code) {
  F r;
  r.v[0] = (VF)_mm512_permutexvar_ps((__m512i)code.v[0], (__m512)table.v[0]);
  return r;
}
// table[flags] for sixteen values. An index has kFlags bits; the indices start at bit kFirst.
template <int kFlags, int kFirst>
INL F of_flags(F table, uint32_t flags) {
  const VU at = lanes().v[0] * kFlags + kFirst;
  F r;
  r.v[0] = (VF)_mm512_permutevar_ps((__m512)table.v[0],
                                    _mm512_srlv_epi32(_mm512_set1_epi32(int(flags)), (__m512i)at));
  return r;
}
// a b + c, and c - a b, with one rounding.
D_THREE(fused, (VD)_mm512_fmadd_pd((__m512d)a.v[j], (__m512d)b.v[j], (__m512d)c.v[j]))
D_THREE(fused_less, (VD)_mm512_fnmadd_pd((__m512d)a.v[j], (__m512d)b.v[j], (__m512d)c.v[j]))
INL __m256 lower(F v) { return _mm512_castps512_ps256((__m512)v.v[0]); }
INL __m256 upper(F v) { return _mm512_extractf32x8_ps((__m512)v.v[0], 1); }
INL __m256i lower(U v) { return _mm512_castsi512_si256((__m512i)v.v[0]); }
INL __m256i upper(U v) { return _mm512_extracti64x4_epi64((__m512i)v.v[0], 1); }
INL __m256d quarter(D v, int k) {
  return k % 2 ? _mm512_extractf64x4_pd((__m512d)v.v[k / 2], 1) : _mm512_castpd512_pd256((__m512d)v.v[k / 2]);
}
INL void narrow16(U u, uint8_t* to) {
  __m256i b = _mm512_cvtepi32_epi16((__m512i)u.v[0]);
  __builtin_memcpy(to, &b, 32);
}
INL U widen16(const uint8_t* from) {
  __m256i b;
  __builtin_memcpy(&b, from, 32);
  U r;
  r.v[0] = (VU)_mm512_cvtepu16_epi32(b);
  return r;
}

}  // namespace
#endif
