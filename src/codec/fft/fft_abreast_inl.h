// SPDX-License-Identifier: Apache-2.0
// The transforms of several blocks side by side, one per lane: value i of all blocks is one vector, so each operation
// of the reference (base/fourier.h, fft.cc) is one vector operation here. Included after hwy/foreach_target.h, once per
// target, which is why the guard toggles.
#if defined(TITHE_CODEC_FFT_ABREAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_FFT_ABREAST_INL_H_
#undef TITHE_CODEC_FFT_ABREAST_INL_H_
#else
#define TITHE_CODEC_FFT_ABREAST_INL_H_
#endif

#include "base/fourier.h"
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fft::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
using namespace simd::HWY_NAMESPACE;
using fourier::Complex;

constexpr std::size_t kWidth = hn::MaxLanes(Floats());

struct Z {
  VF re, im;
};
HWY_INLINE Z get(const float* z, std::size_t j) {
  return {hn::Load(Floats(), z + 2 * j * kWidth), hn::Load(Floats(), z + (2 * j + 1) * kWidth)};
}
HWY_INLINE void put(float* z, std::size_t j, Z v) {
  hn::Store(v.re, Floats(), z + 2 * j * kWidth);
  hn::Store(v.im, Floats(), z + (2 * j + 1) * kWidth);
}
HWY_INLINE Z add(Z a, Z b) { return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)}; }
HWY_INLINE Z sub(Z a, Z b) { return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)}; }
HWY_INLINE Z times(Z z, Complex w) {
  const VF re = hn::Set(Floats(), w.re), im = hn::Set(Floats(), w.im);
  return {hn::Sub(hn::Mul(z.re, re), hn::Mul(z.im, im)), hn::Add(hn::Mul(z.re, im), hn::Mul(z.im, re))};
}

// (a + t, a - t) with t = b, or b rotated by a quarter turn.
template <bool kQuarter>
HWY_INLINE void pair(Z& a, Z& b) {
  const Z low = a;
  if (kQuarter) {
    a = {hn::Add(low.re, b.im), hn::Sub(low.im, b.re)};
    b = {hn::Sub(low.re, b.im), hn::Add(low.im, b.re)};
  } else {
    a = add(low, b);
    b = sub(low, b);
  }
}

// The stages h = q and h = 2 q for the values k, k + q, k + 2 q, k + 3 q: rotates by `first` (and by a quarter if k is
// in the second half of q), then by `second`. nullptr: no rotation, and no multiplication.
template <bool kQuarter>
HWY_INLINE void four(float* z, std::size_t q, const Complex* first, const Complex* second) {
  Z a = get(z, 0), b = get(z, q), c = get(z, 2 * q), d = get(z, 3 * q);
  if (first) {
    b = times(b, *first);
    d = times(d, *first);
  }
  pair<kQuarter>(a, b);
  pair<kQuarter>(c, d);
  if (second) {
    c = times(c, *second);
    d = times(d, *second);
  }
  pair<false>(a, c);
  pair<true>(b, d);
  put(z, 0, a);
  put(z, q, b);
  put(z, 2 * q, c);
  put(z, 3 * q, d);
}

inline void transform(const fourier::Tables& t, float* z, std::size_t length) {
  if (length == 1) return;
  if (length == 2) {
    Z a = get(z, 0), b = get(z, 1);
    pair<false>(a, b);
    put(z, 0, a);
    put(z, 1, b);
    return;
  }
  const std::size_t q = length / 4;
  for (std::size_t part = 0; q > 1 && part < 4; ++part) transform(t, z + 2 * part * q * kWidth, q);
  const Complex* turn = t.turn.data();
  const std::size_t one = t.length / q;  // stride of stage q in `turn`; stage 2 q has half of it
  four<false>(z, q, nullptr, nullptr);
  for (std::size_t k = 1; k < q / 2; ++k)
    four<false>(z + 2 * k * kWidth, q, turn + k * one, turn + k * one / 2);
  if (q > 1) four<true>(z + q * kWidth, q, nullptr, turn + q / 2 * one / 2);
  for (std::size_t k = q / 2 + 1; k < q; ++k)
    four<true>(z + 2 * k * kWidth, q, turn + (k - q / 2) * one, turn + k * one / 2);
}

// Replaces z by c and writes the energies; returns the largest energy of each block.
inline VF split(const fourier::Tables& t, float* z, float* energy) {
  const std::size_t bins = t.length;
  const VF two = hn::Set(Floats(), 2.0F), half = hn::Set(Floats(), 0.5F);
  VF most = hn::Zero(Floats());
  const auto keep = [&](std::size_t f, Z c) HWY_ATTR {
    put(z, f, c);
    VF sum = hn::Add(hn::Mul(c.re, c.re), hn::Mul(c.im, c.im));
    if (f == 0) sum = hn::Mul(half, sum);
    hn::Store(sum, Floats(), energy + f * kWidth);
    most = hn::Max(most, sum);
  };
  const Z low = get(z, 0), middle = get(z, bins / 2);
  keep(0, {hn::Mul(two, hn::Add(low.re, low.im)), hn::Mul(two, hn::Sub(low.re, low.im))});
  keep(bins / 2, {hn::Mul(two, middle.re), hn::Mul(hn::Neg(two), middle.im)});
  for (std::size_t f = 1; f < bins / 2; ++f) {
    const Z a = get(z, f), b = get(z, bins - f);
    const Z even = {hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    const Z odd = times({hn::Add(a.im, b.im), hn::Sub(b.re, a.re)}, t.turn[f]);
    keep(f, add(even, odd));
    keep(bins - f, {hn::Sub(even.re, odd.re), hn::Sub(odd.im, even.im)});
  }
  return most;
}

// The inverse of split, with re and im exchanged; bin f is at index t.bit_reversed[f].
inline void join(const fourier::Tables& t, float* z) {
  const std::size_t bins = t.length;
  const VF two = hn::Set(Floats(), 2.0F);
  const Z low = get(z, 0), middle = get(z, 1);
  put(z, 0, {hn::Sub(low.re, low.im), hn::Add(low.re, low.im)});
  put(z, 1, {hn::Mul(hn::Neg(two), middle.im), hn::Mul(two, middle.re)});
  for (std::size_t f = 1; f < bins / 2; ++f) {
    const std::size_t at = t.bit_reversed[f], mirror = t.bit_reversed[bins - f];
    const Z a = get(z, at), b = get(z, mirror);
    const Complex w = t.turn[f];
    const Z even = {hn::Add(a.re, b.re), hn::Sub(a.im, b.im)};
    const Z odd = times({hn::Sub(a.re, b.re), hn::Add(a.im, b.im)}, {w.re, -w.im});
    put(z, at, {hn::Add(even.im, odd.re), hn::Sub(even.re, odd.im)});
    put(z, mirror, {hn::Sub(odd.re, even.im), hn::Add(even.re, odd.im)});
  }
}

// ---- Between rows of values and vectors across blocks

// Transposes 4 x 4 values within each 128 bits.
HWY_INLINE void turn_quads(VF (&v)[4]) {
  const Floats d;
  const VF a = hn::InterleaveLower(d, v[0], v[2]), b = hn::InterleaveLower(d, v[1], v[3]);
  const VF c = hn::InterleaveUpper(d, v[0], v[2]), e = hn::InterleaveUpper(d, v[1], v[3]);
  v[0] = hn::InterleaveLower(d, a, b);
  v[1] = hn::InterleaveUpper(d, a, b);
  v[2] = hn::InterleaveLower(d, c, e);
  v[3] = hn::InterleaveUpper(d, c, e);
}

// Loads and stores a vector whose quad q is in row 4 q of a tile; rows have W values.
template <typename D>
HWY_INLINE hn::Vec<D> load_quads(D d, const float* p) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::Load(d, p);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_quads(half, p + hn::MaxLanes(half) * kWidth), load_quads(half, p));
  }
}
HWY_INLINE VF load_quads(const float* p) { return load_quads(Floats(), p); }

template <typename D>
HWY_INLINE void store_quads(D d, hn::Vec<D> v, float* p) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::Store(v, d, p);
  } else {
    const hn::Half<D> half;
    store_quads(half, hn::LowerHalf(half, v), p);
    store_quads(half, hn::UpperHalf(half, v), p + hn::MaxLanes(half) * kWidth);
  }
}
HWY_INLINE void store_quads(VF v, float* p) { store_quads(Floats(), v, p); }
#endif
}  // namespace tithe::fft::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_FFT_ABREAST_INL_H_
