// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): operations of all targets without mask registers.
#if W != 64
namespace {

#define COMPARES(T)                          \
  TWO(M, T, lt, a.v[k] < b.v[k])             \
  TWO(M, T, le, a.v[k] <= b.v[k])            \
  TWO(M, T, eq, a.v[k] == b.v[k])            \
  TWO(M, T, ne, a.v[k] != b.v[k])            \
  INL T select(M c, T a, T b) {              \
    T r;                                     \
    EACH(r.v[k] = c.v[k] ? a.v[k] : b.v[k]); \
    return r;                                \
  }
COMPARES(F)
COMPARES(I)
COMPARES(U)
BITS(M)
INL M splat(bool s) {
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
// Sixteen doubles take two vectors for each vector of floats.
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
#define LESS_D(name, op)                                                           \
  INL M name(D a, D b) {                                                           \
    M r;                                                                           \
    EACH(VL x = a.v[2 * k] op b.v[2 * k]; VL y = a.v[2 * k + 1] op b.v[2 * k + 1]; \
         r.v[k] = whole(narrowed_mask(x), narrowed_mask(y)));                      \
    return r;                                                                      \
  }
LESS_D(lt, <)
LESS_D(le, <=)
LESS_D(eq, ==)
LESS_D(ne, !=)
INL D select(M c, D a, D b) {
  D r;
  EACH(VL x = widened_mask(half(c.v[k], 0)); VL y = widened_mask(half(c.v[k], 1));
       r.v[2 * k] = x ? a.v[2 * k] : b.v[2 * k]; r.v[2 * k + 1] = y ? a.v[2 * k + 1] : b.v[2 * k + 1]);
  return r;
}
INL D to_f64(I a) {
  D r;
  EACH(r.v[2 * k] = doubles_of(half(a.v[k], 0)); r.v[2 * k + 1] = doubles_of(half(a.v[k], 1)));
  return r;
}
INL D to_f64(F a) {
  D r;
  EACH(r.v[2 * k] = doubles_of((HF)half((VI)a.v[k], 0));
       r.v[2 * k + 1] = doubles_of((HF)half((VI)a.v[k], 1)));
  return r;
}
ONE(F, D, to_f32, (VF)whole((HI)floats_of(a.v[2 * k]), (HI)floats_of(a.v[2 * k + 1])))
ONE(I, D, towards_zero, whole(wholes_of(a.v[2 * k]), wholes_of(a.v[2 * k + 1])))

}  // namespace
#endif
