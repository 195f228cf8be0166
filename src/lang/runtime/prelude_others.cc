// SPDX-License-Identifier: Apache-2.0
// In front of every generated program (prelude.h): the same with AVX2, and with whatever there is.
#include "lang/runtime/prelude.h"

namespace tithe::lang {

const char* const kPreludeOthers = R"front(
#else
#define COMPARES(T)                                                                             \
    TWO(M, T, lt, a.v[k] < b.v[k])                                                                \
    TWO(M, T, le, a.v[k] <= b.v[k])                                                               \
    TWO(M, T, eq, a.v[k] == b.v[k]) TWO(M, T, ne, a.v[k] != b.v[k]) INL T select(M c, T a, T b) { \
      T r;                                                                                        \
      EACH(r.v[k] = c.v[k] ? a.v[k] : b.v[k]);                                                    \
      return r;                                                                                   \
    }
  COMPARES(F) COMPARES(I) COMPARES(U) BITS(M) INL M splat(bool s) {
    M r;
    EACH(r.v[k] = all<VI>(s ? int32_t(-1) : int32_t(0)));
    return r;
  }
  ONE(M, F, signbit_, (VI)a.v[k] < 0)
  ONE(U, M, as_u, (VU)a.v[k] & 1U)
  INL U count_up(U n, M m) {
    EACH(n.v[k] -= (VU)m.v[k]);
    return n;
  }
  // Doubles take two vectors where floats take one.
#if W == 32
  INL HI half(VI v, int h) {
    return (HI)(h == 0 ? _mm256_castsi256_si128((__m256i)v) : _mm256_extracti128_si256((__m256i)v, 1));
  }
#else
  INL HI half(VI v, int h) {
    HI r;
    __builtin_memcpy(&r, (const char*)&v + h * (W / 2), W / 2);
    return r;
  }
#endif
  INL VI whole(HI low, HI high) {
#if W == 32
    return (VI)_mm256_inserti128_si256(_mm256_castsi128_si256((__m128i)low), (__m128i)high, 1);
#endif
    VI r;
    __builtin_memcpy(&r, &low, W / 2);
    __builtin_memcpy((char*)&r + W / 2, &high, W / 2);
    return r;
  }
  // gcc splits __builtin_convertvector into vectors of 16 bytes.
#if W == 32
  INL VD doubles_of(HI a) { return (VD)_mm256_cvtepi32_pd((__m128i)a); }
  INL VD doubles_of(HF a) { return (VD)_mm256_cvtps_pd((__m128)a); }
  INL HF floats_of(VD a) { return (HF)_mm256_cvtpd_ps((__m256d)a); }
  INL HI wholes_of(VD a) { return (HI)_mm256_cvttpd_epi32((__m256d)a); }
  INL VL widened_mask(HI a) { return (VL)_mm256_cvtepi32_epi64((__m128i)a); }
  INL HI narrowed_mask(VL a) {
    return (HI)_mm_castps_si128(_mm_shuffle_ps((__m128)_mm256_castsi256_si128((__m256i)a),
                                               (__m128)_mm256_extracti128_si256((__m256i)a, 1), 0x88));
  }
#else
  INL VD doubles_of(HI a) { return __builtin_convertvector(a, VD); }
  INL VD doubles_of(HF a) { return __builtin_convertvector(a, VD); }
  INL HF floats_of(VD a) { return __builtin_convertvector(a, HF); }
  INL HI wholes_of(VD a) { return __builtin_convertvector(a, HI); }
  INL VL widened_mask(HI a) { return __builtin_convertvector(a, VL); }
  INL HI narrowed_mask(VL a) { return __builtin_convertvector(a, HI); }
#endif
#define LESS_D(name, op)                                                                  \
    INL M name(D a, D b) {                                                                  \
      M r;                                                                                  \
      EACH(VL x = a.v[2 * k] op b.v[2 * k]; VL y = a.v[2 * k + 1] op b.v[2 * k + 1];        \
           r.v[k] = whole(narrowed_mask(x), narrowed_mask(y))); \
      return r;                                                                             \
    }
  LESS_D(lt, <) LESS_D(le, <=) LESS_D(eq, ==) LESS_D(ne, !=) INL D select(M c, D a, D b) {
    D r;
    EACH(VL x = widened_mask(half(c.v[k], 0));
         VL y = widened_mask(half(c.v[k], 1)); r.v[2 * k] = x ? a.v[2 * k] : b.v[2 * k];
         r.v[2 * k + 1] = y ? a.v[2 * k + 1] : b.v[2 * k + 1]);
    return r;
  }
  INL D to_f64(I a) {
    D r;
    EACH(r.v[2 * k] = doubles_of(half(a.v[k], 0));
         r.v[2 * k + 1] = doubles_of(half(a.v[k], 1)));
    return r;
  }
  INL D to_f64(F a) {
    D r;
    EACH(r.v[2 * k] = doubles_of((HF)half((VI)a.v[k], 0));
         r.v[2 * k + 1] = doubles_of((HF)half((VI)a.v[k], 1)));
    return r;
  }
  INL F to_f32(D a) {
    F r;
    EACH(r.v[k] = (VF)whole((HI)floats_of(a.v[2 * k]),
                            (HI)floats_of(a.v[2 * k + 1])));
    return r;
  }
  INL I towards_zero(D a) {
    I r;
    EACH(r.v[k] = whole(wholes_of(a.v[2 * k]), wholes_of(a.v[2 * k + 1])));
    return r;
  }
#if W == 32
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
                              SHIFT(U, shl, (VU)_mm256_sllv_epi32) SHIFT(I, shl, (VI)_mm256_sllv_epi32)
                                  SHIFT(U, shr, (VU)_mm256_srlv_epi32) SHIFT(I, shr, (VI)_mm256_srav_epi32)
#define ROUND(name, how)                                    \
    ONE(F, F, name, (VF)_mm256_round_ps((__m256)a.v[k], how)) \
    D_ONE(name, (VD)_mm256_round_pd((__m256d)a.v[j], how))
                                      ROUND(floor_, 9) ROUND(ceil_, 10) ROUND(round_, 8)
                                          ONE(F, F, sqrt_, (VF)_mm256_sqrt_ps((__m256)a.v[k]))
                                              D_ONE(sqrt_, (VD)_mm256_sqrt_pd((__m256d)a.v[j])) INL uint32_t
      mask_bits(M m) {
    return uint32_t(_mm256_movemask_ps((__m256)m.v[0])) | uint32_t(_mm256_movemask_ps((__m256)m.v[1])) << 8;
  }
  ONE(U, F, half_bits, (VU)_mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)a.v[k], 8)))
  ONE(F, U, from_half_bits,
      (VF)_mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128((__m256i)a.v[k]),
                                           _mm256_extracti128_si256((__m256i)a.v[k], 1))))
  INL M bits_mask(uint32_t b) {
    M r;
    VU own = {1, 2, 4, 8, 16, 32, 64, 128}, each = all<VU>(b);
    EACH(r.v[k] = ((each & (own << (8 * k))) == (own << (8 * k))));
    return r;
  }
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
  // Codes of 2 to 4 bits: eight of them begin in each word, or sixteen in the first.
  template <int kBits>
  INL U spread_words(uint32_t low, uint32_t high) {
    U at = lanes(), r;
    EACH(at.v[k] = (kBits > 2 ? at.v[k] & 7U : at.v[k]) * kBits;
         r.v[k] = (VU)_mm256_srlv_epi32(_mm256_set1_epi32(int(k == 0 || kBits <= 2 ? low : high)), (__m256i)at.v[k]) &
                  all<VU>((1U << kBits) - 1));
    return r;
  }
  // table[code] of codes below 2^kBits; kBits is at most 4.
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
  // a b + c, and c - a b, rounded once.
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
#else
  D_TWO(min_, b.v[j] < a.v[j] ? b.v[j] : a.v[j])
  D_TWO(max_, a.v[j] < b.v[j] ? b.v[j] : a.v[j])
#define MINMAX(T) \
    TWO(T, T, min_, b.v[k] < a.v[k] ? b.v[k] : a.v[k]) TWO(T, T, max_, a.v[k] < b.v[k] ? b.v[k] : a.v[k])
      MINMAX(F) MINMAX(I) MINMAX(U) INL U shl(U a, U b) {
    U r;
    EACH(r.v[k] = b.v[k] < 32U ? a.v[k] << (b.v[k] & 31U) : a.v[k] ^ a.v[k]);
    return r;
  }
  INL I shl(I a, U b) { return as_i(shl(as_u(a), b)); }
  INL U shr(U a, U b) {
    U r;
    EACH(r.v[k] = b.v[k] < 32U ? a.v[k] >> (b.v[k] & 31U) : a.v[k] ^ a.v[k]);
    return r;
  }
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
  ROUND(ceil_, __builtin_ceil) ROUND(round_, __builtin_nearbyint) ROUND(sqrt_, __builtin_sqrt) INL uint32_t
      mask_bits(M m) {
    uint32_t b = 0;
    for (int j = 0; j < 16; ++j) b |= uint32_t(m.v[j / kLanes][j % kLanes] & 1) << j;
    return b;
  }
  INL M bits_mask(uint32_t b) {
    M r;
    for (int j = 0; j < 16; ++j) r.v[j / kLanes][j % kLanes] = (b >> j & 1U) ? -1 : 0;
    return r;
  }
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
#endif
#endif
  INL M lnot(M a) { return not_(a); }
  INL M eq(M a, M b) { return not_(xor_(a, b)); }
  INL M ne(M a, M b) { return xor_(a, b); }
  INL M select(M c, M a, M b) { return or_(and_(c, a), and_(not_(c), b)); }
  INL I abs_(I a) { return select(lt(a, splat(int32_t(0))), neg(a), a); }
  INL bool any_of(M m) { return mask_bits(m) != 0; }
  INL M first_lanes(size_t count) { return lt(lanes(), splat(uint32_t(count))); }
  // All sixteen lanes: what is chosen by it costs nothing.
  struct All {
    INL M mask() { return splat(true); }
    operator M() const { return mask(); }
  };
  template <class T>
  INL T select(All, T a, T) {
    return a;
  }
  INL M and_(All, M m) { return m; }
)front";

}  // namespace tithe::lang
