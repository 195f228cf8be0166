// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/fp8_add_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/fp8_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::fp8::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // whole() has no values for it
void add(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
         const std::uint8_t* in, float* left) {
  kReference.add(format, n, scales, acc, in, left);
}
#else
// A piece is added step by step: what a step takes is ready, so that no value waits for itself. Whole blocks.
struct Piece {
  static constexpr std::size_t kMost = 512;
  HWY_ALIGN std::int16_t sum[kMost];  // as binary16
  HWY_ALIGN float exact[kMost];  // of e4m3 the sum; of e5m2, whose sums need not be floats, the larger and
  HWY_ALIGN float more[kMost];   // the smaller
};

// Rounding to binary16 first changes no code: sums that it cannot hold are too near a code to be rounded to another.
// False: acc has codes of e4m3 that are no numbers; those of e5m2 are none in binary16 either.
// kExact: for leave(); `ahead` is what that reads of left a piece later, asked for while this one is computed.
template <typename Float, bool kExact>
HWY_INLINE bool add_halves(std::size_t n, const std::uint8_t* acc, const std::uint8_t* in, const float* ahead,
                           Piece& HWY_RESTRICT piece) {
  const hn::Rebind<hwy::float16_t, Floats> d;
  VN most = hn::Zero(Narrow());
  for (std::size_t i = 0; i < n; i += lanes()) {
    const VN half = widened<Float>(acc + i);
    if (Float::kNumber == 0) most = hn::Max(most, hn::And(half, narrow(0x7fff)));
    const VF a = promoted(half), b = promoted(widened<Float>(in + i));
    const VF sum = hn::Add(a, b);
    hn::Store(hn::BitCast(Narrow(), hn::DemoteTo(d, sum)), Narrow(), piece.sum + i);
    if (!kExact) continue;
    hwy::Prefetch(ahead + i);
    if (Float::kNumber == 0) {
      hn::Store(sum, Floats(), piece.exact + i);
    } else {
      const auto swap = hn::RebindMask(Floats(), hn::Lt(magnitude(a), magnitude(b)));
      hn::Store(hn::IfThenElse(swap, b, a), Floats(), piece.exact + i);
      hn::Store(hn::IfThenElse(swap, a, b), Floats(), piece.more + i);
    }
  }
  return hn::AllTrue(Narrow(), hn::Lt(most, narrow((Float::kLargest + 1) << kWiden<Float>)));
}

// The bits of a code stand on top of those that rounding takes. kBack: sums become what the codes stand for.
template <typename Float, bool kBack>
HWY_INLINE void round_halves(std::size_t n, Piece& HWY_RESTRICT piece, std::uint8_t* HWY_RESTRICT codes) {
  using D = hn::Repartition<std::int16_t, Words>;  // of two vectors
  const hn::Rebind<std::uint8_t, D> octets;
  const auto set = [](int v) HWY_ATTR { return hn::Set(D(), static_cast<std::int16_t>(v)); };
  constexpr int kBits = kWiden<Float>;
  constexpr int kBelow = (1 << kBits) - 1;
  for (std::size_t i = 0; i < n; i += hn::Lanes(D())) {
    const auto half = hn::Load(D(), piece.sum + i);
    const auto odd_code = hn::And(hn::ShiftRight<kBits>(half), set(1));
    const auto near = hn::Add(hn::Add(hn::And(half, set(0x7fff)), set(kBelow >> 1)), odd_code);
    const auto held = hn::Min(near, set(static_cast<int>(Float::kLargest << kBits) | kBelow));
    const auto code = hn::OrAnd(hn::ShiftRight<kBits>(held), hn::ShiftRight<8>(half), set(0x80));
    hn::StoreU(hn::DemoteTo(octets, code), octets, codes + i);
    if (kBack) hn::Store(hn::OrAnd(hn::And(held, set(~kBelow)), half, set(~0x7fff)), D(), piece.sum + i);
  }
}

// Where one of two codes of e5m2 is too small for their sum to be a float, the larger is sent. What is left is the same
// in fp64 and in fp32: the float nearest to the exact sum.
template <typename Float>
HWY_INLINE void leave(std::size_t n, const std::uint8_t* scales, const Piece& piece,
                      float* HWY_RESTRICT left) {
  for (std::size_t i = 0; i < n; i += lanes()) {
    VF off = hn::Sub(hn::Load(Floats(), piece.exact + i), promoted(hn::Load(Narrow(), piece.sum + i)));
    if (Float::kNumber != 0) off = hn::Add(off, hn::Load(Floats(), piece.more + i));
    const VF by = hn::Set(Floats(), scale_value(scales[i / kBlock] + kDown<Float>));
    hn::StoreU(hn::MulAdd(off, by, load(left + i)), Floats(), left + i);
  }
}

// False: nothing is written.
template <typename Float, bool kLeft>
HWY_INLINE bool add_piece(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
                          const std::uint8_t* in, float* left, const float* ahead) {
  Piece piece;
  if (!add_halves<Float, kLeft>(n, acc, in, ahead, piece)) return false;
  round_halves<Float, kLeft>(n, piece, acc);
  if (kLeft) leave<Float>(n, scales, piece, left);
  return true;
}

template <typename Float, bool kLeft>
void add_as(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc, const std::uint8_t* in,
            float* left) {
  const std::size_t whole = n / kBlock * kBlock;
  for (std::size_t i = 0, len = 0; i < n; i += len) {
    len = i < whole ? std::min(Piece::kMost, whole - i) : n - i;
    float* const rest = kLeft ? left + i : nullptr;
    const float* ahead = kLeft && i + 2 * Piece::kMost <= n ? rest + Piece::kMost : rest;
    if (i == whole || !add_piece<Float, kLeft>(len, scales + i / kBlock, acc + i, in + i, rest, ahead))
      kReference.add(Float::kNumber, len, scales + i / kBlock, acc + i, in + i, rest);
  }
}

template <typename Float>
void add_in(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc, const std::uint8_t* in,
            float* left) {
  left ? add_as<Float, true>(n, scales, acc, in, left) : add_as<Float, false>(n, scales, acc, in, left);
}

void add(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
         const std::uint8_t* in, float* left) {
  format == 0 ? add_in<E4M3>(n, scales, acc, in, left) : add_in<E5M2>(n, scales, acc, in, left);
}
#endif

}  // namespace
}  // namespace tithe::fp8::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::fp8 {

HWY_EXPORT(add);

void add_simd(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
              const std::uint8_t* in, float* left) {
  HWY_DYNAMIC_DISPATCH(add)(format, n, scales, acc, in, left);
}

}  // namespace tithe::fp8
#endif
