// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by qsgd_shared and terngrad_shared: the levels of qsgd under norms that are equal on all ranks, so that levels
// add up as integers.
//
// Layout   phase 0 (max): u16 ranks counted | u8 bits, 2 .. 8 | u8 log2 of the bucket | f32 norm per bucket
//          phase 1 (sum): int fields (int_sum/int_fields.h), an integer per value: s + level, with levels from -s
//          to s = 2^(bits - 1) - 1. A sum S over A payloads stands for (S - A s) (1 / s) norm.
#include "codec/shared/int_sum/int_fields.h"
#include "codec/shared/levels/buckets.h"

namespace tithe::shared_levels {

using buckets::LevelFormat;

inline constexpr std::size_t kPiece = 1024;  // values per kernel call; divides a bucket or is its multiple

struct Kind {
  LevelFormat (*format)(const Settings&);
  unsigned (*most)(const Settings&);  // the most ranks
  // One rank's norm of a bucket of finite values: finite and not negative.
  float (*norm)(const Settings&, const Carry&, const block::Stats&);
};

struct Rounding {
  std::uint64_t key;
  block::Steps steps;

  Rounding(std::uint64_t draws, const LevelFormat& format, float norm)
      : key(draws), steps(norm, format.steps(), format.bits) {}
  int level(float v, std::size_t i) const {
    return steps.rounded(v, draw_half(key, static_cast<std::uint32_t>(i), steps.fraction));
  }
};

// The levels of one bucket, under its norm.
struct Bucket {
  Rounding rounding;
  float norm;
  float step;  // 1 / s
  int zero;    // s

  Bucket(std::uint64_t draws, const LevelFormat& format, float of)
      : rounding(draws, format, of),
        norm(of),
        step(1.0F / static_cast<float>(format.steps())),
        zero(static_cast<int>(format.steps())) {}
  // The level of v, which is value i of the carry. A magnitude above the norm, or NaN, counts as the norm.
  int level(float v, std::size_t i) const {
    const float held = std::fabs(v) < norm ? v : std::copysign(norm, v);
    return rounding.level(held, i);
  }
  float value(int level) const { return static_cast<float>(level) * step * norm; }
};

struct Kernels {
  block::Stats (*stats)(const Carry&);
  // Writes the integers of at most kPiece values, from value `at` of the carry on, and residual_out. False: some taken
  // value is not finite.
  bool (*send)(const Bucket&, std::size_t at, const Carry&, std::uint32_t* numbers);
  // sum[i] = (first) or += (not first) the value that numbers[i], a sum over `added` payloads, stands for.
  void (*receive)(const Bucket&, unsigned added, bool first, const std::uint32_t* numbers, std::size_t count,
                  float* sum);
  const int_fields::Kernels& fields;
};
extern const Kernels kReference;
extern const Kernels kSimd;  // shared_levels_simd.cc

// The functions of Phase and Impl for one kind of codec.
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

// Phases and impls of a codec, with the functions of Body as plain functions.
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
