// SPDX-License-Identifier: Apache-2.0
// Part of the prelude of generated programs (prelude.h): lookup of flags, scan, tables, and reductions with a
// function of the program.

namespace {

// Looks up one or two flags of each value in a table; flag a is bit 0 of the index.
template <int kFlags, class T, class S>
INL F flagged(F table, T tail, S, Words& words, const uint8_t* a, const uint8_t* b, size_t count) {
#if W == 64
  if constexpr (kFlags == 1)
    return select(unpack_mask_as(tail, a, count), looked_up<1>(table, splat(1U)),
                  looked_up<1>(table, splat(0U)));
#endif
#if W != 16
  if constexpr (!T::value) {
    if constexpr (!S::value) {
      words.of[0] = words.of[1] = word_at(a);
      if (kFlags == 2) {
        const uint64_t all =
            _pdep_u64(word_at(a), 0x5555555555555555ULL) | _pdep_u64(word_at(b), 0xaaaaaaaaaaaaaaaaULL);
        words.of[0] = uint32_t(all);
        words.of[1] = uint32_t(all >> 32);
      }
    }
    constexpr int kFirst = kFlags == 1 && S::value ? 16 : 0;
    return of_flags<kFlags, kFirst>(table, words.of[S::value]);
  }
#endif
  U code = as_u(unpack_mask_as(tail, a, count));
  if (kFlags == 2) code = or_(code, shl_by<1>(as_u(unpack_mask_as(tail, b, count))));
  return looked_up<kFlags>(table, code);
}

}  // namespace

// ---- Operations on a block's values in order (lang/run/tables.h)
namespace {
INL U load_u(const uint32_t* p) {
  U u;
  __builtin_memcpy(&u, p, 64);
  return u;
}
INL void store_u(uint32_t* p, U u) { __builtin_memcpy(p, &u, 64); }
INL U scan(U v, uint32_t& sum) {
  uint32_t all[16];
  store_u(all, v);
  for (uint32_t& a : all) a = sum += a;
  return load_u(all);
}
template <uint32_t kEntries>
INL void count_into(uint32_t* table, U index, M which) {
  uint32_t all[16];
  store_u(all, index);
  for (uint32_t bits = mask_bits(which); bits != 0; bits &= bits - 1) {
    uint32_t k = all[__builtin_ctz(bits)];
    if (k < kEntries) ++table[k];
  }
}
template <int kEntries>
INL void add_up(const uint32_t* table, uint32_t* sums) {
  uint32_t sum = 0;
  for (int k = 0; k < kEntries; ++k) sums[k] = sum += table[k];
}
INL uint32_t entry_of(const uint32_t* table, uint32_t entries, uint32_t index) {
  return index < entries ? table[index] : 0;
}
INL U entry_of(const uint32_t* table, uint32_t entries, U index) {
  return each1<U>(index, [=](uint32_t k) { return entry_of(table, entries, k); });
}
INL U keys_of(U v) { return v; }
INL U keys_of(I v) { return xor_(as_u(v), splat(0x80000000U)); }
INL U keys_of(F v) {
  return each1<U>(v, [](float x) {
    uint32_t b = bits_(x);
    return x != x ? ~0U : b ^ (b >> 31 != 0 ? ~0U : 0x80000000U);
  });
}
INL uint32_t float_of_key(uint32_t key) { return key ^ (key >> 31 != 0 ? 0x80000000U : ~0U); }
// Stable radix sort, eight bits at a time from the lowest; skips digits that are equal in all elements.
template <class T>
INL const T* in_order(T* from, T* to, size_t count, int lowest) {
  for (int bit = lowest; bit < lowest + 32; bit += 8) {
    uint32_t place[256] = {};
    for (size_t i = 0; i < count; ++i) ++place[from[i] >> bit & 255];
    if (count == 0 || place[from[0] >> bit & 255] == count) continue;
    uint32_t at = 0;
    for (uint32_t& p : place) {
      uint32_t many = p;
      p = at;
      at += many;
    }
    for (size_t i = 0; i < count; ++i) to[place[from[i] >> bit & 255]++] = from[i];
    T* swap = from;
    from = to;
    to = swap;
  }
  return from;
}
template <int kMaxEntries>
static inline __attribute__((noinline, unused)) void sort_keys(uint32_t* keys, size_t count) {
  uint32_t other[kMaxEntries];
  const uint32_t* sorted = in_order(keys, other, count, 0);
  if (sorted != keys) __builtin_memcpy(keys, sorted, 4 * count);
}
template <int kMaxEntries>
static inline __attribute__((noinline, unused)) void order_keys(uint32_t* keys, size_t count) {
  uint64_t all[kMaxEntries], other[kMaxEntries];
  for (size_t i = 0; i < count; ++i) all[i] = uint64_t(keys[i]) << 32 | i;
  const uint64_t* sorted = in_order(all, other, count, 32);
  for (size_t i = 0; i < count; ++i) keys[uint32_t(sorted[i])] = uint32_t(i);
}
// Sixteen accumulators per piece and for all pieces, combined by a function of two runs of sixteen.
template <class V, class T>
struct PiecesBy {
  V all;
  uint32_t count;
  INL PiecesBy make(V start) {
    PiecesBy p;
    p.all = start;
    p.count = 0;
    return p;
  }
  template <class Of>
  inline __attribute__((always_inline)) T put_together(V lane, Of of) {
    T l[32];
    for (int half = 8; half > 0; half /= 2) {
      V upper;
      spill(l, lane);
      spill(l + 16, lane);
      __builtin_memcpy(&upper, l + half, 16 * sizeof(T));
      lane = of(lane, upper);
    }
    spill(l, lane);
    return l[0];
  }
  template <class Of>
  inline __attribute__((always_inline)) void end(V lane, Of of) {
    V total = splat(put_together(lane, of));
    all = select(eq(lanes(), splat(count++ % 16)), of(all, total), all);
  }
  template <class Of>
  inline __attribute__((always_inline)) T total(Of of) {
    return put_together(all, of);
  }
};
}  // namespace
