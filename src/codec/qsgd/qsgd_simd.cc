// SPDX-License-Identifier: Apache-2.0
// 4 and 8 bits are packed in vectors; for other widths codes are made in vectors and packed one by one.
#include "codec/shared/common/kernels.h"
#include "codec/shared/levels/qsgd_format.h"

#define HWY_WANT_AVX3_DL  // byte permutes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/qsgd/qsgd_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/bit_packing_simd_inl.h"
#include "codec/shared/common/block_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::qsgd::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

using namespace bit_packing::HWY_NAMESPACE;

template <unsigned kWidth>
class Values {
 public:
  HWY_INLINE explicit Values(const Levels& levels)
      : step_(hn::Set(Floats(), levels.step)), norm_(hn::Set(Floats(), levels.norm)) {}
  // Of the last kWidth bits.
  HWY_INLINE VF of_code(VW code) const {
    const VW low = hn::And(code, hn::Set(Words(), (1U << kWidth) - 1));
    const auto level = hn::Sub(hn::BitCast(Ints(), low), hn::Set(Ints(), 1 << (kWidth - 1)));
    return hn::Mul(hn::Mul(hn::ConvertTo(Floats(), level), step_), norm_);
  }

 private:
  VF step_;
  VF norm_;
};

template <unsigned kWidth, bool kResidual, bool kResidualOut>
HWY_INLINE void encode_bucket(const LevelFormat& format, const Rounding& rounding, float norm, std::size_t at,
                              const Carry& in, const float* ahead, std::uint8_t* HWY_RESTRICT to) {
  constexpr int kFraction = block::Steps::fraction_of(kWidth);
  Draws<kFraction> draws(rounding.key, at);
  const RoundedSteps steps(rounding.steps);
  const Values<kWidth> values(Levels(format, norm));
  const auto leave = [&](std::size_t i, VF v, VW code) HWY_ATTR {
    hn::StoreU(hn::Sub(v, values.of_code(code)), Floats(), in.residual_out + i);
  };
  // A code stands from bit kFraction on.
  const auto send = [&](std::size_t i, VW word) HWY_ATTR {
    const VF a = take<kResidual>(in, i);
    const VF b = take<kResidual>(in, i + 16);
    const VW low = hn::ShiftRight<kFraction>(steps.at(a, draws.upper(word)));
    const VW code = steps.at(b, draws.lower(word));
    const VW both = in_halves(low, from_bit_16<kFraction>(code));
    store_halves<kWidth>(both, to, i);
    if (kResidualOut) leave(i, a, low);
    if (kResidualOut) leave(i + 16, b, hn::ShiftRight<kFraction>(code));
  };
  std::size_t i = 0;
  for (; i < whole_pairs(in.n); i += 32) {
    hwy::Prefetch(ahead + i);
    hwy::Prefetch(ahead + i + 16);
    for (std::size_t k = 0; k < 16; k += lanes()) send(i + k, draws.word());
  }
  std::fill(to + bit_packing::bytes_for(i, kWidth), to + bit_packing::bytes_for(in.n, kWidth),
            std::uint8_t{0});
  send_from(i, at, format, rounding, norm, in, to);
}

template <unsigned kWidth, bool kResidual, bool kResidualOut>
bool encode_as(const Call& call, const Carry& in, std::uint8_t* out) {
  const LevelFormat format(call.settings);
  const std::uint64_t key = block::key(call);
  const std::size_t bucket = format.bucket();
  bool finite = true;
  buckets::put_top(format, out);
  for (std::size_t first = 0; first < in.n; first += bucket) {
    const Carry values = block::part(in, first, std::min(bucket, in.n - first));
    std::uint8_t* to = out + format.start(first >> format.log2_bucket);
    const block::Stats stats = stats_of<kResidual, false>(values);
    if (!stats.finite()) {
      finite = false;
      buckets::send_nothing(format, values, to);
      continue;
    }
    const float norm = buckets::norm_of(call.settings, values, stats);
    const Rounding rounding(key, format, norm);
    const bool tiny = rounding.steps.lift != 1.0F;
    wire::put(to, norm);
    to += kHead;
    if (tiny || (kWidth != 4 && kWidth != 8))
      std::fill_n(to, bit_packing::bytes_for(values.n, kWidth), std::uint8_t{0});
    if (tiny)
      send_from(0, first, format, rounding, norm, values, to);
    else
      encode_bucket<kWidth, kResidual, kResidualOut>(format, rounding, norm, first, values,
                                                     ahead_of(in, first, values.n), to);
  }
  return finite;
}

template <unsigned kWidth>
bool encode_bits(const Call& call, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.residual_out ? encode_as<kWidth, true, true>(call, in, out)
                           : encode_as<kWidth, true, false>(call, in, out);
  return in.residual_out ? encode_as<kWidth, false, true>(call, in, out)
                         : encode_as<kWidth, false, false>(call, in, out);
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  switch (LevelFormat(call.settings).bits) {
    case 2:
      return encode_bits<2>(call, in, out);
    case 3:
      return encode_bits<3>(call, in, out);
    case 4:
      return encode_bits<4>(call, in, out);
    case 5:
      return encode_bits<5>(call, in, out);
    case 6:
      return encode_bits<6>(call, in, out);
    case 7:
      return encode_bits<7>(call, in, out);
    default:
      return encode_bits<8>(call, in, out);
  }
}

template <unsigned kWidth>
std::size_t decode_bits(const LevelFormat& format, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out) {
  return merge(payloads, how, out, [format](const std::uint8_t* p, std::size_t i) HWY_ATTR {
    const std::uint8_t* bucket = p + format.start(i >> format.log2_bucket);
    const Values<kWidth> values(Levels(format, wire::get<float>(bucket)));
    return values.of_code(load_codes<kWidth>(bucket + kHead, i & (format.bucket() - 1)));
  });
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const LevelFormat format(call.settings);
  std::size_t done = 0;
  if (format.bits == 4) done = decode_bits<4>(format, payloads, how, out);
  if (format.bits == 8) done = decode_bits<8>(format, payloads, how, out);
  decode_from(done, format, payloads, how, out);
}

}  // namespace
}  // namespace tithe::qsgd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::qsgd {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::qsgd
#endif
