// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): min and max, shifts, rounding and narrowing with AVX2.
#if W == 32
namespace {

D_TWO(min_, (VD)_mm256_min_pd((__m256d)b.v[j], (__m256d)a.v[j]))
D_TWO(max_, (VD)_mm256_max_pd((__m256d)b.v[j], (__m256d)a.v[j]))
TWO(F, F, min_, (VF)_mm256_min_ps((__m256)b.v[k], (__m256)a.v[k]))
TWO(F, F, max_, (VF)_mm256_max_ps((__m256)b.v[k], (__m256)a.v[k]))
TWO(I, I, min_, (VI)_mm256_min_epi32((__m256i)b.v[k], (__m256i)a.v[k]))
TWO(I, I, max_, (VI)_mm256_max_epi32((__m256i)b.v[k], (__m256i)a.v[k]))
TWO(U, U, min_, (VU)_mm256_min_epu32((__m256i)b.v[k], (__m256i)a.v[k]))
TWO(U, U, max_, (VU)_mm256_max_epu32((__m256i)b.v[k], (__m256i)a.v[k]))
#define SHIFT(T, name, of)                               \
  INL T name(T a, U b) {                                 \
    T r;                                                 \
    EACH(r.v[k] = of((__m256i)a.v[k], (__m256i)b.v[k])); \
    return r;                                            \
  }
SHIFT(U, shl, (VU)_mm256_sllv_epi32)
SHIFT(I, shl, (VI)_mm256_sllv_epi32)
SHIFT(U, shr, (VU)_mm256_srlv_epi32)
SHIFT(I, shr, (VI)_mm256_srav_epi32)
#define ROUND(name, how)                                    \
  ONE(F, F, name, (VF)_mm256_round_ps((__m256)a.v[k], how)) \
  D_ONE(name, (VD)_mm256_round_pd((__m256d)a.v[j], how))
ROUND(floor_, 9)
ROUND(ceil_, 10)
ROUND(round_, 8)
ONE(F, F, sqrt_, (VF)_mm256_sqrt_ps((__m256)a.v[k]))
D_ONE(sqrt_, (VD)_mm256_sqrt_pd((__m256d)a.v[j]))
INL uint32_t mask_bits(M m) {
  return uint32_t(_mm256_movemask_ps((__m256)m.v[0])) | uint32_t(_mm256_movemask_ps((__m256)m.v[1])) << 8;
}
ONE(U, F, half_bits, (VU)_mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)a.v[k], 8)))
ONE(F, U, from_half_bits,
    (VF)_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128((__m256i)a.v[k]),
                                         _mm256_extracti128_si256((__m256i)a.v[k], 1))))
// The sixteen bits from bit kFirst on, as a mask.
template <int kFirst>
INL M bits_mask_from(uint32_t b) {
  M r;
  VU own = VU{1, 2, 4, 8, 16, 32, 64, 128} << kFirst, each = all<VU>(b);
  EACH(r.v[k] = ((each & (own << (8 * k))) == (own << (8 * k))));
  return r;
}
INL M bits_mask(uint32_t b) { return bits_mask_from<0>(b); }
INL __m256i narrowed16(U u) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)u.v[0], (__m256i)u.v[1]), 0xd8);
}
INL __m128i octets(U u) {
  __m256i h = narrowed16(u);
  return _mm_packus_epi16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
INL U widened(__m128i b) {
  U r;
  r.v[0] = (VU)_mm256_cvtepu8_epi32(b);
  r.v[1] = (VU)_mm256_cvtepu8_epi32(_mm_srli_si128(b, 8));
  return r;
}
// Distributes codes of 2 to 4 bits to sixteen lanes: each word holds eight of them, or the first word all sixteen.
template <int kBits>
INL U spread_words(uint32_t low, uint32_t high) {
  U at = lanes(), r;
  EACH(at.v[k] = (kBits > 2 ? at.v[k] & 7U : at.v[k]) * kBits;
       r.v[k] = (VU)_mm256_srlv_epi32(_mm256_set1_epi32(int(k == 0 || kBits <= 2 ? low : high)),
                                      (__m256i)at.v[k]) &
                all<VU>((1U << kBits) - 1));
  return r;
}
// table[code] for codes below 2^kBits; kBits is at most 4.
template <int kBits>
INL F looked_up(F table, U code) {
  F r;
  EACH(VF low = (VF)_mm256_permutevar8x32_ps((__m256)table.v[0], (__m256i)code.v[k]); r.v[k] = low;
       if (kBits == 4) {
         VF high = (VF)_mm256_permutevar8x32_ps((__m256)table.v[1], (__m256i)code.v[k]);
         r.v[k] = (VF)_mm256_blendv_ps((__m256)low, (__m256)high,
                                       (__m256)_mm256_slli_epi32((__m256i)code.v[k], 28));
       });
  return r;
}
// table[flags] for sixteen values. An index has kFlags bits; the indices start at bit kFirst. Higher bits of a lane
// are harmless: a table of two entries is repeated over all positions.
template <int kFlags, int kFirst>
INL F of_flags(F table, uint32_t flags) {
  const VU at = VU{0, 1, 2, 3, 4, 5, 6, 7} * kFlags + kFirst, each = all<VU>(flags);
  F r;
  EACH(r.v[k] = (VF)_mm256_permutevar_ps((__m256)table.v[0],
                                         _mm256_srlv_epi32((__m256i)each, (__m256i)(at + 8 * k * kFlags))));
  return r;
}
// a b + c, and c - a b, with one rounding.
D_THREE(fused, (VD)_mm256_fmadd_pd((__m256d)a.v[j], (__m256d)b.v[j], (__m256d)c.v[j]))
D_THREE(fused_less, (VD)_mm256_fnmadd_pd((__m256d)a.v[j], (__m256d)b.v[j], (__m256d)c.v[j]))
INL __m256 lower(F v) { return (__m256)v.v[0]; }
INL __m256 upper(F v) { return (__m256)v.v[1]; }
INL __m256i lower(U v) { return (__m256i)v.v[0]; }
INL __m256i upper(U v) { return (__m256i)v.v[1]; }
INL __m256d quarter(D v, int k) { return (__m256d)v.v[k]; }
INL void narrow16(U u, uint8_t* to) {
  __m256i h = narrowed16(u);
  __builtin_memcpy(to, &h, 32);
}
INL U widen16(const uint8_t* from) {
  U r;
  EACH(__m128i b; __builtin_memcpy(&b, from + 16 * k, 16); r.v[k] = (VU)_mm256_cvtepu16_epi32(b));
  return r;
}

}  // namespace
#endif
