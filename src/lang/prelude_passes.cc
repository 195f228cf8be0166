// SPDX-License-Identifier: Apache-2.0
// In front of every generated program (prelude.h): what a pass finds, and runs of sixteen values.
#include "lang/prelude.h"

namespace tithe::lang {

const char* const kPreludePasses = R"front(
  // ---- What a pass finds (reduce.cc)
  template <class T>
  INL T lanes_total(T* l) {
    for (int half = 8; half > 0; half /= 2)
      for (int k = 0; k < half; ++k) l[k] += l[k + half];
    return l[0];
  }
  template <class T, class V>
  INL void spill(T* to, V v) {
    __builtin_memcpy(to, &v, 16 * sizeof(T));
  }
  // The totals of pieces; a piece's own sixteen sums stand beside it, in registers.
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
    inline __attribute__((always_inline)) void end(V lane) {
      T l[16];
      spill(l, lane);
      all[count++ % 16] += lanes_total(l);
    }
    inline __attribute__((always_inline)) T total(T most) {
      T t = lanes_total(all);
      return t < -most ? -most : most < t ? most : t;
    }
  };
  // The largest or smallest, the first of equals; of floats that may be NaN or -0 with its place.
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
  template <class V>
  INL float largest_lane(V v) {
    float l[16];
    __builtin_memcpy(l, &v, 64);
    float b = l[0];
    for (float x : l) b = b < x ? x : b;
    return b;
  }
  INL uint32_t lanes_sum(U v) {
    uint32_t l[16], s = 0;
    __builtin_memcpy(l, &v, 64);
    for (uint32_t x : l) s += x;
    return s;
  }
  INL uint32_t lanes_most(U v) {
    uint32_t l[16], s = 0;
    __builtin_memcpy(l, &v, 64);
    for (uint32_t x : l) s = s < x ? x : s;
    return s;
  }
  INL U size_bits(F v) { return and_(bits_(v), splat(0x7fffffffU)); }
  INL bool is_finite(float v) { return (bits_(v) & 0x7f800000U) != 0x7f800000U; }

  // ---- Runs of sixteen, and the last ones, which may be fewer
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
  INL M valid(T, size_t count) {
    if constexpr (T::value)
      return first_lanes(count);
    else
      return splat(true);
  }
  template <int kResidual, class T>
  INL F take(T tail, const float* g, const float* r, size_t i, size_t count) {
    F v = load_as(tail, g + i, count);
    if constexpr (kResidual) v = add(v, load_as(tail, r + i, count));
    return v;
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
  // A block that holds what is not finite: nothing of it is sent.
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
    uint64_t n, key, shared_key;
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
  }  // namespace
)front";

}  // namespace tithe::lang
