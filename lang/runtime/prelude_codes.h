// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): random numbers, and codes of 1 to 32 bits.

namespace {

// ---- Random numbers (base/rng.h)
template <class T, class N>
INL T drawn(T x, uint64_t key, N n) {
  x = xor_(x, shr(x, n(16)));
  x = mul(x, n(0x7feb352dU));
  x = xor_(x, xor_(shr(x, n(15)), n(uint32_t(key >> 32))));
  return mul(x, n(0x846ca68bU));
}
INL U mixed(U x) {
  x = xor_(x, shr(x, splat(16U)));
  x = mul(x, splat(0x7feb352dU));
  x = xor_(x, shr(x, splat(15U)));
  x = mul(x, splat(0x846ca68bU));
  return xor_(x, shr(x, splat(16U)));
}
INL U word_of(uint64_t key, U j) {
  return drawn(add(j, splat(uint32_t(key))), key, [](uint32_t s) { return splat(s); });
}
INL U half_of(U word, U index, int bits) {
  U upper = shr(word, splat(uint32_t(32 - bits))),
    lower = and_(xor_(word, upper), splat((uint32_t(1) << bits) - 1));
  return select(eq(and_(index, splat(16U)), splat(0U)), upper, lower);
}
INL U draw(uint64_t key, uint64_t first, int bits) {
  U index = add(lanes(), splat(uint32_t(first)));
  if (bits <= 23)
    return half_of(word_of(key, add(shl(shr(index, splat(5U)), splat(4U)), and_(index, splat(15U)))), index,
                   bits);
  if (bits == 24)
    return shr(drawn(xor_(index, splat(uint32_t(key))), key, [](uint32_t s) { return splat(s); }), splat(8U));
  return shr(mixed(xor_(splat(uint32_t(key)), mixed(xor_(index, splat(uint32_t(key >> 32)))))),
             splat(uint32_t(32 - bits)));
}
// Likewise for runs of 32 that start at `first`: both halves use the same random word, which `word` keeps.
template <class T, class Second>
INL U draw_kept(T, Second, uint64_t key, uint64_t first, int bits, U& word) {
  if (T::value) return draw(key, first, bits);
  if (!Second::value) word = word_of(key, add(lanes(), splat(uint32_t(first >> 1))));
  U upper = shr(word, splat(uint32_t(32 - bits)));
  if (!Second::value) return upper;
  return and_(xor_(word, upper), splat((uint32_t(1) << bits) - 1));
}
struct Steps {  // codec/shared/common/block.h
  float scale, lift, per;
  int fraction;
};
INL Steps steps_of(float scale, int bits) {
  Steps s = {scale, 1, 0, 23 - bits};
  if (!(scale > 0.0f)) return s;
  if (scale < 0x1p-100f) s.lift = 0x1p100f;
  s.per = float((uint32_t(1) << (bits - 1)) - 1 << s.fraction) / (scale * s.lift);
  return s;
}
INL I level_of(const Steps& s, F v, U random) {
  F held = select(lt(v, splat(-s.scale)), splat(-s.scale), select(lt(splat(s.scale), v), splat(s.scale), v));
  I whole = towards_zero(round_(mul(mul(held, splat(s.lift)), splat(s.per))));
  I level = shr(add(whole, as_i(random)), splat(uint32_t(s.fraction)));
  return select(le(abs_(held), splat(s.scale)), level, splat(int32_t(0)));
}
// Likewise for v that is neither NaN nor infinite. Adding 3 * 2^22 rounds v to an integer in the low bits of the sum
// (codec/shared/common/block.h); if the scale is 0, all levels are 0. In full runs `lift` is 1, and |v| is at most
// the scale unless `how.held` limits it.
template <class T>
INL I level_of_number(T how, const Steps& s, F v, U random) {
  float most = s.scale > 0.0f ? s.scale : 0.0f;
  if (how.held) v = hold_(v, splat(-most), splat(most));
  if (how.value) v = mul(v, splat(s.lift));
  F whole = add(mul(v, splat(s.per)), splat(0x1.8p23f));
  return sub(shr(add(as_i(bits_(whole)), as_i(random)), splat(uint32_t(s.fraction))),
             splat(int32_t(0x4b400000 >> s.fraction)));
}

// ---- Codes of 1 to 32 bits, sixteen at a time: 2 * kBits bytes
// Packs eight codes in the low bits of eight bytes without gaps.
template <int kBits>
INL uint64_t squeezed(uint64_t b) {
  if (kBits == 8) return b;
#if W != 16
  return _pext_u64(b, ((1ULL << (kBits & 7)) - 1) * 0x0101010101010101ULL);
#else
  uint64_t r = 0;
  for (int j = 0; j < 8; ++j) r |= (b >> (8 * j) & 0xff) << (kBits * j);
  return r;
#endif
}
template <int kBits>
INL uint64_t spread(uint64_t b) {
  if (kBits == 8) return b;
#if W != 16
  return _pdep_u64(b, ((1ULL << (kBits & 7)) - 1) * 0x0101010101010101ULL);
#else
  uint64_t r = 0;
  for (int j = 0; j < 8; ++j) r |= (b >> (kBits * j) & ((1U << (kBits & 7)) - 1)) << (8 * j);
  return r;
#endif
}
INL void pack_mask(M m, uint8_t* to) {
  uint16_t b = uint16_t(mask_bits(m));
  __builtin_memcpy(to, &b, 2);
}
#if W == 64
// Loads a mask from memory, which takes half the time of a transfer through a general-purpose register.
INL M unpack_mask(const uint8_t* from) {
  typedef uint16_t Anywhere __attribute__((aligned(1), may_alias));
  M r;
  asm("kmovw %1, %0" : "=k"(r.v) : "m"(*(const Anywhere*)from));
  return r;
}
#else
INL M unpack_mask(const uint8_t* from) {
  uint16_t b;
  __builtin_memcpy(&b, from, 2);
  return bits_mask(b);
}
#endif
// One bit for each of 64 values.
struct Bits {
  uint64_t v;
};
INL Bits bits_at(const uint8_t* from) {
  Bits b;
  __builtin_memcpy(&b.v, from, 8);
  return b;
}
#define OF_BITS(name, of)         \
  INL Bits name(Bits a, Bits b) { \
    Bits r = {of};                \
    return r;                     \
  }
OF_BITS(and_, (a.v) & b.v)
OF_BITS(or_, a.v | b.v)
OF_BITS(xor_, a.v ^ b.v)
OF_BITS(ne, a.v ^ b.v)
OF_BITS(eq, ~(a.v ^ b.v))
INL Bits not_(Bits a) {
  a.v = ~a.v;
  return a;
}
INL Bits lnot(Bits a) { return not_(a); }
// True if one of the 4-bit halves of these bytes has its bit set in `wrong`; `bytes` is a multiple of 32.
INL bool any_half(const uint8_t* from, size_t bytes, uint32_t wrong) {
#if W != 16
  uint8_t of[16];
  for (int j = 0; j < 16; ++j) of[j] = uint8_t(wrong >> j & 1);
  const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)of)),
                half = _mm256_set1_epi8(15);
  __m256i any = _mm256_setzero_si256();
  for (size_t i = 0; i < bytes; i += 32) {
    const __m256i b = _mm256_loadu_si256((const __m256i*)(from + i));
    any = _mm256_or_si256(any, _mm256_shuffle_epi8(table, _mm256_and_si256(b, half)));
    any = _mm256_or_si256(any, _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(b, 4), half)));
  }
  return !_mm256_testz_si256(any, any);
#else
  uint32_t any = 0;
  for (size_t i = 0; i < bytes; ++i) any |= wrong >> (from[i] & 15) | wrong >> (from[i] >> 4);
  return any & 1;
#endif
}
INL uint32_t word_at(const uint8_t* from) {
  uint32_t w;
  __builtin_memcpy(&w, from, 4);
  return w;
}
#if W != 16
template <int kBits>
INL void pack_octets(__m128i b, uint8_t* to) {
  if (kBits == 8) return _mm_storeu_si128((__m128i*)to, b);
  if (kBits == 4) {
    __m128i two = _mm_maddubs_epi16(b, _mm_set1_epi16(0x1001));
    return _mm_storel_epi64((__m128i*)to, _mm_packus_epi16(two, two));
  }
  if (kBits == 2) {
    __m128i four = _mm_madd_epi16(_mm_maddubs_epi16(b, _mm_set1_epi16(0x0401)), _mm_set1_epi32(0x00100001));
    int all = _mm_cvtsi128_si32(_mm_shuffle_epi8(four, _mm_set1_epi32(0x0c080400)));
    __builtin_memcpy(to, &all, 4);
    return;
  }
  const uint64_t low = squeezed<kBits>(uint64_t(_mm_cvtsi128_si64(b))),
                 high = squeezed<kBits>(uint64_t(_mm_extract_epi64(b, 1)));
  __builtin_memcpy(to, &low, kBits <= 8 ? kBits : 8);
  __builtin_memcpy(to + kBits, &high, kBits <= 8 ? kBits : 8);
}
#endif
template <int kBits>
INL void pack(U u, uint8_t* to) {
  if (kBits == 1) return pack_mask(ne(and_(u, splat(1U)), splat(0U)), to);
  if (kBits == 16) return narrow16(u, to);
  if (kBits == 32) {
    EACH(__builtin_memcpy(to + k * W, &u.v[k], W));
    return;
  }
#if W != 16
  if (kBits <= 8) return pack_octets<kBits>(octets(u), to);
#else
  if (kBits <= 8) {
    uint64_t b[2];
    narrow8(u, b);
    const uint64_t low = squeezed<kBits>(b[0]), high = squeezed<kBits>(b[1]);
    __builtin_memcpy(to, &low, kBits <= 8 ? kBits : 8);
    __builtin_memcpy(to + kBits, &high, kBits <= 8 ? kBits : 8);
    return;
  }
#endif
  uint32_t all[16];
  __builtin_memcpy(all, &u, 64);
  uint64_t word = 0;
  unsigned have = 0;
  for (int j = 0; j < 16; ++j) {
    word |= uint64_t(all[j]) << have;
    for (have += kBits; have >= 8; have -= 8, word >>= 8) *to++ = uint8_t(word);
  }
}
template <int kBits>
INL U unpack(const uint8_t* from) {
  if (kBits == 16) return widen16(from);
  if (kBits == 32) {
    U u;
    EACH(__builtin_memcpy(&u.v[k], from + k * W, W));
    return u;
  }
  if (kBits == 1) return as_u(unpack_mask(from));
#if W != 16
  if (kBits == 8) return widened(_mm_loadu_si128((const __m128i*)from));
  if (kBits == 2) return spread_words<2>(word_at(from), 0);
  if (kBits == 3) return spread_words<3>(word_at(from), word_at(from + 2) >> 8);
  if (kBits == 4) return spread_words<4>(word_at(from), word_at(from + 4));
#endif
  if (kBits <= 8) {
    uint64_t b[2] = {0, 0};
    __builtin_memcpy(&b[0], from, kBits <= 8 ? kBits : 8);
    __builtin_memcpy(&b[1], from + kBits, kBits <= 8 ? kBits : 8);
    b[0] = spread<kBits>(b[0]);
    b[1] = spread<kBits>(b[1]);
#if W != 16
    return widened(_mm_set_epi64x((long long)b[1], (long long)b[0]));
#else
    return widen8(b);
#endif
  }
  uint32_t all[16];
  uint64_t word = 0;
  unsigned have = 0;
  for (int j = 0; j < 16; ++j) {
    for (; have < kBits; have += 8) word |= uint64_t(*from++) << have;
    all[j] = uint32_t(word & ((uint64_t(1) << kBits) - 1));
    word >>= kBits;
    have -= kBits;
  }
  U u;
  __builtin_memcpy(&u, all, 64);
  return u;
}
INL void put(uint8_t* to, uint32_t v, int bytes) {
  for (int k = 0; k < bytes; ++k) to[k] = uint8_t(v >> (8 * k));
}
INL uint32_t get(const uint8_t* from, int bytes) {
  uint32_t v = 0;
  for (int k = 0; k < bytes; ++k) v |= uint32_t(from[k]) << (8 * k);
  return v;
}
INL uint32_t raw(float v) { return bits_(v); }
INL uint32_t raw(int32_t v) { return uint32_t(v); }
INL uint32_t raw(uint32_t v) { return v; }
INL uint32_t raw(bool v) { return v ? 1U : 0U; }
INL bool ends_clean(const uint8_t* from, size_t count, int bits) {
  size_t at = count * size_t(bits);
  return at % 8 == 0 || from[at / 8] >> (at % 8) == 0;
}

}  // namespace
