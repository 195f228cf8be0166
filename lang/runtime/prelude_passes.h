// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): reductions, and loops over runs of sixteen values.

namespace {

// ---- Reductions (reduce.cc)
template <class T, class V>
INL void spill(T* to, V v) {
  __builtin_memcpy(to, &v, 16 * sizeof(T));
}
template <class T, class Of>
INL T folded(T* l, Of of) {
  for (int half = 8; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) l[k] = of(l[k], l[k + half]);
  return l[0];
}
#if W == 16
template <class T, class V, class Of>
INL T folded(V v, Of of) {
  T l[16];
  spill(l, v);
  return folded(l, of);
}
#else
// Likewise, by halving vectors of 32, 16 and 8 bytes.
typedef float QF __attribute__((vector_size(16)));
typedef uint32_t QU __attribute__((vector_size(16)));
typedef double QD __attribute__((vector_size(16)));
template <class T, class Of>
INL float folded(F v, Of of) {
  typedef float Eight __attribute__((vector_size(32)));
  Eight a = of((Eight)lower(v), (Eight)upper(v));
  QF b = of((QF)_mm256_castps256_ps128((__m256)a), (QF)_mm256_extractf128_ps((__m256)a, 1));
  QF c = of(b, (QF)_mm_movehl_ps((__m128)b, (__m128)b));
  return of(float(c[0]), float(c[1]));
}
template <class T, class Of>
INL uint32_t folded(U v, Of of) {
  typedef uint32_t Eight __attribute__((vector_size(32)));
  Eight a = of((Eight)lower(v), (Eight)upper(v));
  QU b = of((QU)_mm256_castsi256_si128((__m256i)a), (QU)_mm256_extracti128_si256((__m256i)a, 1));
  QU c = of(b, (QU)_mm_unpackhi_epi64((__m128i)b, (__m128i)b));
  return of(uint32_t(c[0]), uint32_t(c[1]));
}
template <class T, class Of>
INL double folded(D v, Of of) {
  typedef double Four __attribute__((vector_size(32)));
  Four a = of(of((Four)quarter(v, 0), (Four)quarter(v, 2)), of((Four)quarter(v, 1), (Four)quarter(v, 3)));
  QD b = of((QD)_mm256_castpd256_pd128((__m256d)a), (QD)_mm256_extractf128_pd((__m256d)a, 1));
  return of(double(b[0]), double(b[1]));
}
template <class T, class Of>
INL int32_t folded(I v, Of of) {
  int32_t l[16];
  spill(l, v);
  return folded(l, of);
}
#endif
#define FOLDING(Name, expr)                                              \
  struct Name {                                                          \
    template <class T>                                                   \
    inline __attribute__((always_inline)) T operator()(T a, T b) const { \
      return expr;                                                       \
    }                                                                    \
  };
FOLDING(Sum, a + b)
FOLDING(Maximum, a < b ? b : a)
FOLDING(Minimum, b < a ? b : a)
template <class T>
INL T within(T t, T most) {
  return t < -most ? -most : most < t ? most : t;
}
// The total of a single piece; its sixteen partial sums are in registers.
template <class V, class T>
struct Piece {
  T all;
  INL Piece make() {
    Piece p;
    p.all = 0;
    return p;
  }
  inline __attribute__((always_inline)) void end(V lane) { all += folded<T>(lane, Sum()); }
  inline __attribute__((always_inline)) T total(T most) { return within(all, most); }
};
// The totals of several pieces.
template <class V, class T>
struct Pieces {
  T all[16];
  size_t count;
  INL Pieces make() {
    Pieces p;
    for (T& t : p.all) t = 0;
    p.count = 0;
    return p;
  }
  inline __attribute__((always_inline)) void end(V lane) { all[count++ % 16] += folded<T>(lane, Sum()); }
  inline __attribute__((always_inline)) T total(T most) { return within(folded(all, Sum()), most); }
};
// The largest or smallest value, the first of equal ones; with positions, since floats may be NaN or -0.
template <class V, class T, bool kLargest>
struct Best {
  V best;
  U at;
  INL Best make() {
    Best b;
    b.best = splat(T(0));
    b.at = splat(0xffffffffU);
    return b;
  }
  inline __attribute__((always_inline)) void look(V v, M which, uint32_t i) {
    M better = kLargest ? lt(best, v) : lt(v, best);
    M take = and_(which, or_(and_(eq(at, splat(0xffffffffU)), eq(v, v)), better));
    best = select(take, v, best);
    at = select(take, add(lanes(), splat(i)), at);
  }
  inline __attribute__((always_inline)) T found() {
    T all[16];
    uint32_t place[16];
    spill(all, best);
    spill(place, at);
    T b = 0;
    uint32_t where = 0xffffffffU;
    for (int k = 0; k < 16; ++k)
      if (place[k] != 0xffffffffU && (where == 0xffffffffU || (kLargest ? b < all[k] : all[k] < b) ||
                                      (all[k] == b && place[k] < where))) {
        b = all[k];
        where = place[k];
      }
    return b;
  }
};
INL float largest_lane(F v) { return folded<float>(v, Maximum()); }
INL uint32_t lanes_sum(U v) { return folded<uint32_t>(v, Sum()); }
INL uint32_t max_lanes(U v) { return folded<uint32_t>(v, Maximum()); }
// The result for finite inputs from sixteen lanes. Equal values differ in bits only at 0, where the order decides.
template <int kResidual, class Of>
INL float end_of(F lanes, Of of, const float* g, const float* r, size_t len) {
  float best = len == 0 ? 0.0f : folded<float>(lanes, of);
  if (best == 0)
    for (size_t i = 0; i < len; ++i) {
      float v = kResidual ? g[i] + r[i] : g[i];
      if (v == 0) return v;
    }
  return best;
}
INL U size_bits(F v) { return and_(bits_(v), splat(0x7fffffffU)); }
INL bool all_finite(U sizes) { return !any_of(lt(splat(int32_t(0x7f7fffff)), as_i(sizes))); }
INL float float_of_size(uint64_t most) { return float_(most < 0x7f800000U ? uint32_t(most) : 0x7f800000U); }
INL bool is_finite(float v) { return (bits_(v) & 0x7f800000U) != 0x7f800000U; }

// Adds 0 * v, which is NaN if v is not finite; none_odd() evaluates the sum at the end.
INL F seen(F odd, F v) {
#if W == 64
  odd.v[0] = (VF)_mm512_fmadd_ps((__m512)v.v[0], _mm512_setzero_ps(), (__m512)odd.v[0]);
#elif W == 32
  EACH(odd.v[k] = (VF)_mm256_fmadd_ps((__m256)v.v[k], _mm256_setzero_ps(), (__m256)odd.v[k]));
#else
  odd = add(odd, mul(v, splat(0.0f)));
#endif
  return odd;
}
INL bool none_odd(F odd) { return !any_of(ne(odd, odd)); }
// Checks value by value, if a sum is not conclusive.
template <int kResidual>
static __attribute__((noinline, cold)) bool are_finite(const float* g, const float* r, size_t len) {
  for (size_t i = 0; i < len; ++i)
    if (!is_finite(kResidual ? g[i] + r[i] : g[i])) return false;
  return true;
}

// ---- Floats in place of doubles for floors (emit_floors.h)
// True if all lanes are further than `near` from an integer; false for NaN.
INL bool clear(F s, F near) { return mask_bits(lt(near, abs_(sub(s, round_(s))))) == 0xffff; }

// ---- Runs of sixteen values, and the last run, which may be shorter
template <class T>
INL F load_as(T, const float* p, size_t count) {
  if constexpr (T::value)
    return load_some(p, count);
  else
    return load(p);
}
template <class T>
INL void store_as(T, float* p, F v, size_t count) {
  if constexpr (T::value)
    store_some(p, v, count);
  else
    store(p, v);
}
template <class T>
INL U load_u_as(T tail, const uint32_t* p, size_t count) {
  return bits_(load_as(tail, (const float*)p, count));
}
template <class T>
INL void store_u_as(T tail, uint32_t* p, U v, size_t count) {
  store_as(tail, (float*)p, float_(v), count);
}
INL M valid(Yes, size_t count) { return first_lanes(count); }
INL All valid(No, size_t) { return All(); }
// Runs body(tail, second, i, count) over [from, to), with full runs in pairs of 32 values, and the general body for
// the rest. Without `plain`, the general body runs over all values.
template <class Body>
INL void by_pairs(size_t from, size_t to, Body& body, bool plain = true) {
  size_t i = from;
  for (; plain && i + 32 <= to; i += 32) {
    body(No(), No(), i, 16);
    body(No(), Yes(), i + 16, 16);
  }
  for (; i < to; i += 16) body(Yes(), No(), i, to - i < 16 ? to - i : 16);
}
template <class Body>
INL void by_pairs(size_t from, size_t to, Body& body, bool plain, bool held) {
  size_t i = from;
  for (; plain && held && i + 32 <= to; i += 32) {
    body(Held(), No(), i, 16);
    body(Held(), Yes(), i + 16, 16);
  }
  by_pairs(i, to, body, plain);
}
// Likewise, sixteen values at a time.
template <class Body>
INL void by_sixteen(size_t from, size_t to, Body& body, bool plain = true) {
  size_t i = from;
  for (; plain && i + 16 <= to; i += 16) body(No(), No(), i, 16);
  for (; i < to; i += 16) body(Yes(), No(), i, to - i < 16 ? to - i : 16);
}
template <int kResidual, class T>
INL F take(T tail, const float* g, const float* r, size_t i, size_t count) {
  F v = load_as(tail, g + i, count);
  if constexpr (kResidual) v = add(v, load_as(tail, r + i, count));
  return v;
}
// The address to prefetch while a block is sent, limited to the tensor.
INL size_t ahead_of(size_t at, size_t n) { return at + 2048 <= n ? at : 0; }
// One word per array with bits of 32 values: read with the first sixteen values, and used again for the second
// sixteen.
struct Words {
  uint32_t of[4];
};
// Writes the first payload's values; add_all adds the values of several payloads to `onto`.
template <class Reader>
INL void put_first(size_t begin, size_t end, float* to, const Reader& reader) {
  Words words;
  auto body = [&](auto tail, auto second, size_t i, size_t count) __attribute__((always_inline)) {
    store_as(tail, to + i, reader(tail, second, words, i, count), count);
  };
  by_pairs(begin, end, body);
}
template <class Reader>
INL void add_two(F& a, F& b, size_t i, const Reader& reader) {
  Words words;
  a = add(a, reader(No(), No(), words, i, 16));
  b = add(b, reader(No(), Yes(), words, i + 16, 16));
}
// Prefetches sums, for which the hardware prefetcher is too late. Prefetching beyond the end has no effect.
INL void prefetch_sums(const float* sums) { __builtin_prefetch((const void*)(uintptr_t(sums) + 4608)); }
// kTwo: 32 values at a time, if words are read; otherwise two sums at once would need too many registers.
template <bool kTwo, class... Readers>
INL void add_all(size_t begin, size_t end, const float* onto, float* to, const Readers&... readers) {
  size_t i = begin;
  for (; kTwo && i + 32 <= end; i += 32) {
    prefetch_sums(onto + i);
    prefetch_sums(onto + i + 16);
    F a = load(onto + i), b = load(onto + i + 16);
    (add_two(a, b, i, readers), ...);
    store(to + i, a);
    store(to + i + 16, b);
  }
  Words words;
  for (; !kTwo && i + 16 <= end; i += 16) {
    prefetch_sums(onto + i);
    F v = load(onto + i);
    ((v = add(v, readers(No(), No(), words, i, 16))), ...);
    store(to + i, v);
  }
  for (; i < end; i += 16) {
    const size_t count = end - i < 16 ? end - i : 16;
    F v = load_some(onto + i, count);
    ((v = add(v, readers(Yes(), No(), words, i, count))), ...);
    store_some(to + i, v, count);
  }
}
template <int kBits, class T>
INL void pack_as(T, U u, uint8_t* to, size_t count) {
  if constexpr (T::value) {
    uint8_t all[64];
    pack<kBits>(select(first_lanes(count), u, splat(0U)), all);
    __builtin_memcpy(to, all, (count * kBits + 7) / 8);
  } else {
    pack<kBits>(u, to);
  }
}
template <int kBits, class T>
INL U unpack_as(T, const uint8_t* from, size_t count) {
  if constexpr (T::value) {
    uint8_t all[64] = {};
    __builtin_memcpy(all, from, (count * kBits + 7) / 8);
    return unpack<kBits>(all);
  } else {
    return unpack<kBits>(from);
  }
}
template <class T>
INL void pack_mask_as(T, M m, uint8_t* to, size_t count) {
  if constexpr (T::value) {
    uint32_t b = mask_bits(m) & ((1U << count) - 1);
    put(to, b, count > 8 ? 2 : 1);
  } else
    pack_mask(m, to);
}
template <class T>
INL M unpack_mask_as(T, const uint8_t* from, size_t count) {
  if constexpr (T::value)
    return bits_mask(get(from, count > 8 ? 2 : 1));
  else
    return unpack_mask(from);
}
// The mask of array kOf in a reader, from the words of 32 values.
template <int kOf, class T, class S>
INL M unpack_mask_in(T tail, S, Words& words, const uint8_t* from, size_t count) {
  if constexpr (T::value || W == 64 || kOf >= 4) {
    return unpack_mask_as(tail, from, count);
#if W != 64
  } else if constexpr (S::value) {
    return bits_mask_from<16>(words.of[kOf]);
  } else {
    __builtin_memcpy(&words.of[kOf], from, 4);
    return bits_mask(words.of[kOf]);
#endif
  }
}
// A block with a non-finite value is sent as zeros.
static inline void send_nothing(const float* g, const float* r, float* left, size_t len, uint8_t* out,
                                size_t bytes) {
  __builtin_memset(out, 0, bytes);
  if (left)
    for (size_t i = 0; i < len; ++i) left[i] = r ? g[i] + r[i] : g[i];
}
static inline void divide_all(float* out, size_t len, float by) {
  size_t i = 0;
  for (; i + 16 <= len; i += 16) store(out + i, div_(load(out + i), splat(by)));
  for (; i < len; ++i) out[i] /= by;
}
struct Call {
  const double* settings;
  uint64_t n, key, shared_key, block;
  const uint32_t* known;
  bool asks_for_residual;
  const uint32_t* const* agreed;
  uint32_t agreed_ranks, max_ranks;
  unsigned field_bits;
  void (*pack)(const uint32_t*, size_t, size_t, unsigned, uint8_t*);
  void (*unpack)(const uint8_t*, size_t, size_t, unsigned, uint32_t*);
};
struct Answer {
  uint32_t finite, broken;
  uint64_t block;
};
struct Object {
  uint32_t interface, combination;
  uint64_t key;
  void (*encode)(const Call*, const float*, const float*, float*, uint8_t*, Answer*);
  int (*check)(const Call*, const uint8_t*);
  void (*decode)(const Call*, const uint8_t* const*, size_t, const float*, float, float*);
};

// ---- Int fields (int_sum/int_fields.h), if blocks consist of whole rows of sixteen. One multiplication computes a
// row's group, for up to 2^28 rows: `part` is 2^35 / (rows per group), rounded up.
struct Rows {
  uint64_t part;
  uint32_t bits, fields;
};
INL Rows rows_of(const Call* call) {
  uint32_t bits = call->field_bits, fields = 32 / bits;
  Rows r = {((1ULL << 35) + fields - 1) / fields, bits, fields};
  return r;
}
struct RowPlace {
  size_t at;
  uint32_t shift;
};
INL RowPlace row_place(const Rows& r, size_t i) {
  uint64_t row = i / 16, group = row * r.part >> 35;
  RowPlace p = {4 + 64 * group, uint32_t(row - group * r.fields) * r.bits};
  return p;
}
template <class T>
INL U row_at(T tail, const Rows& r, const uint8_t* payload, size_t i, size_t count) {
  RowPlace p = row_place(r, i);
  U u = load_u_as(tail, (const uint32_t*)(payload + p.at), count);
  EACH(u.v[k] = u.v[k] >> p.shift);
  return and_(u, splat((1U << r.bits) - 1));
}
template <class T>
INL void put_row(T tail, const Rows& r, U u, uint8_t* payload, size_t i, size_t count) {
  RowPlace p = row_place(r, i);
  uint32_t* to = (uint32_t*)(payload + p.at);
  EACH(u.v[k] = u.v[k] << p.shift);
  if (p.shift != 0) u = or_(u, load_u_as(tail, to, count));
  store_u_as(tail, to, u, count);
}
// For other blocks, numbers are collected here until the library's kernels can pack them.
struct Fields {
  const Call* call;
  uint8_t* out;
  size_t begun, held;
  uint32_t all[2048];
  // The number with index i >= `from` is stored in all[back + i]; at most 1024 are collected at a time.
  inline __attribute__((always_inline)) size_t back(size_t from) const { return held - from; }
  inline __attribute__((always_inline)) void add(size_t count) {
    held += count;
    if (held >= 1024) send(held / 16 * 16);
  }
  inline __attribute__((always_inline)) void send(size_t count) {
    call->pack(all, begun, count, call->field_bits, out);
    begun += count;
    held -= count;
    __builtin_memmove(all, all + count, 4 * held);
  }
};

}  // namespace
