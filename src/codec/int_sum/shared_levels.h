// SPDX-License-Identifier: Apache-2.0
#pragma once
// What qsgd_shared and terngrad_shared have in common: the levels of qsgd under norms that all ranks share, so that
// they add up as whole numbers.
//
// Layout   phase 0 (max): u16 ranks counted | u8 bits, 2 .. 8 | u8 log2 of the bucket | f32 norm per bucket
//          phase 1 (sum): codec/int_sum/int_fields.h, a number per value: s and its level more, or less where it is
//          negative, with s = 2^(bits - 1) - 1. A sum S of A numbers is worth (S - A s) (1 / s) norm.
#include "codec/int_sum/int_fields.h"
#include "codec/levels/qsgd_format.h"

namespace tithe::shared_levels {

using buckets::Shape;

inline constexpr std::size_t kPiece = 1024;  // values at a time; a bucket is a part of it or a multiple

struct Kind {
  Shape (*shape)(const Settings&);
  unsigned (*most)(const Settings&);  // ranks
  // Of a bucket of finite values on one rank: finite and not negative.
  float (*norm)(const Settings&, const Carry&, const block::Look&);
};

// Levels under one norm.
struct Bucket {
  qsgd::Rounding rounding;
  float norm;
  float step;  // 1 / s
  int zero;    // s

  Bucket(std::uint64_t draws, const Shape& shape, float of)
      : rounding(draws, shape, of),
        norm(of),
        step(1.0F / static_cast<float>(shape.steps())),
        zero(static_cast<int>(shape.steps())) {}
  // Of value i of all; what is beyond the norm, or NaN, is held at it.
  int level(float v, std::size_t i) const {
    const float held = std::fabs(v) < norm ? v : std::copysign(norm, v);
    return rounding.level(held, i);
  }
  float value(int level) const { return static_cast<float>(level) * step * norm; }
};

struct Kernels {
  block::Look (*look)(const Carry&);
  // The numbers of at most kPiece values from value `at` of all on; leaves what they do not send. False: not finite.
  bool (*send)(const Bucket&, std::size_t at, const Carry&, std::uint32_t* numbers);
  // sum[i] := (or, unless it is the first, +=) what numbers[i], a sum over `added` payloads, is worth.
  void (*receive)(const Bucket&, unsigned added, bool first, const std::uint32_t* numbers, std::size_t count,
                  float* sum);
  const int_fields::Kernels& fields;
};
extern const Kernels kReference;
extern const Kernels kSimd;  // shared_levels_simd.cc

// The seam's functions for one kind.
struct Body {
  const Codec& codec;
  const Kind& kind;

  std::size_t bound_norms(const Settings& s, std::size_t n) const;
  std::size_t bound_levels(const Settings& s, std::size_t n) const;
  Result<Encoded> encode(const Kernels&, const Call&, const Carry&, Bytes out) const;
  Status decode(const Kernels&, const Call&, std::span<const ByteView>, const Merge&,
                std::span<float> out) const;
  Status check(const Kernels&, const Call&, std::size_t n, ByteView payload) const;
  Result<Combined> combine(const Kernels&, const Call&, std::size_t n, Bytes acc, ByteView in) const;
};

// Phases and impls of a codec of the kind, as plain functions.
template <const Codec& kCodec, const Kind& kKind>
struct Made {
  static constexpr Body kBody = {kCodec, kKind};

  static std::size_t bound_norms(const Settings& s, std::size_t n) { return kBody.bound_norms(s, n); }
  static std::size_t bound_levels(const Settings& s, std::size_t n) { return kBody.bound_levels(s, n); }
  template <const Kernels& kWith>
  static Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
    return kBody.encode(kWith, call, in, out);
  }
  template <const Kernels& kWith>
  static Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                       std::span<float> out) {
    return kBody.decode(kWith, call, payloads, how, out);
  }

  template <const Kernels& kWith>
  static Status check(const Call& call, std::size_t n, ByteView payload) {
    return kBody.check(kWith, call, n, payload);
  }
  template <const Kernels& kWith>
  static Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
    return kBody.combine(kWith, call, n, acc, in);
  }

  static constexpr Law kLargest[] = {Law::kMax};
  static constexpr Law kAdds[] = {Law::kSum};
  static constexpr Phase kPhases[] = {{.name = "norms", .laws = kLargest, .bound = bound_norms},
                                      {.name = "levels", .laws = kAdds, .bound = bound_levels}};
  template <const Kernels& kWith>
  static constexpr Impl kImpl = {
      .encode = encode<kWith>, .decode = decode<kWith>, .check = check<kWith>, .combine = combine<kWith>};
  static constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};
};

}  // namespace tithe::shared_levels
