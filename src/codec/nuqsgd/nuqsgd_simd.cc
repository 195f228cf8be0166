// SPDX-License-Identifier: Apache-2.0
#include "codec/nuqsgd/nuqsgd.h"
#include "codec/shared/common/kernels.h"

#define HWY_WANT_AVX3_DL  // byte permutes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/nuqsgd/nuqsgd_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/bit_packing_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::nuqsgd::HWY_NAMESPACE {
namespace {
using namespace bit_packing::HWY_NAMESPACE;
using buckets::kHead;

HWY_INLINE VW words(std::uint32_t v) { return hn::Set(Words(), v); }

template <unsigned kWidth>
constexpr std::uint32_t kSteps = (1U << (kWidth - 1)) - 1;

HWY_INLINE VW high_bits(VW draw) { return hn::ShiftRight<32 - kFraction>(draw); }

struct Two {
  VW first;
  VW second;
};

// level_of for the values of a bucket, without a division. A share that is computed by multiplication is off by at most
// 6 ulp. It gives the right level unless share + draw is that near a carry; then, and if the norm is
// outside (2^-100, 2^100), the share is computed by division. Below the lowest level, that level is added to the
// share: its fraction is then the distance from 0, and the draw is complemented.
template <unsigned kWidth>
class Levels {
 public:
  HWY_INLINE explicit Levels(float norm) : norm_(hn::Set(Floats(), norm > 0.0F ? norm : 1.0F)) {
    const bool in_range = norm > 0x1p-100F && norm < 0x1p100F;
    per_ = hn::Set(Floats(), in_range ? 1 / norm : 0.0F);
    behind_ = words(in_range ? kAll - (2 * kNear - 1) : 0U);
  }
  // The levels of two vectors of magnitudes, with one test whether any sum is that near a carry.
  HWY_INLINE Two of(VF size, VW draw, VF other, VW other_draw) const {
    const VW sum = summed(size, draw), other_sum = summed(other, other_draw);
    const VW near = hn::Min(behind(sum), behind(other_sum));
    if (HWY_LIKELY(hn::AllFalse(Words(), hn::Eq(near, hn::Zero(Words())))))
      return {hn::ShiftRight<kFraction>(sum), hn::ShiftRight<kFraction>(other_sum)};
    return {exact(size, draw), exact(other, other_draw)};
  }

 private:
  static constexpr std::uint32_t kLeast = kOne - ((kSteps<kWidth> - 1) << kFraction);
  static constexpr std::uint32_t kFirst = (kLeast >> kFraction) - 1;
  static constexpr std::uint32_t kAll = (1U << kFraction) - 1;
  static constexpr std::uint32_t kNear = 8;

  // share + draw; the level is in the bits from kFraction on.
  HWY_INLINE VW summed(VF size, VW draw) const {
    const VF share = hn::Mul(size, per_);
    const VF least = from_bits(words(kLeast));
    const auto below = hn::Lt(share, least);
    const VW some = bits(hn::IfThenElse(below, hn::Add(share, least), share));
    // The xor adds a constant above the bits of the draw, and complements the draw below the lowest level.
    const VW turn =
        hn::IfThenElse(hn::RebindMask(Words(), below), words((0U - ((kFirst + 1) << kFraction)) | kAll),
                       words(0U - (kFirst << kFraction)));
    return hn::Add(some, hn::Xor(draw, turn));
  }
  HWY_INLINE VW behind(VW sum) const { return hn::And(hn::Add(sum, words(kNear)), behind_); }

  HWY_NOINLINE VW exact(VF size, VW draw) const {
    const VF share = hn::Div(size, norm_);
    const VW above = hn::ShiftRight<kFraction>(hn::Add(bits(share), draw));
    constexpr int kScale =
        static_cast<int>(kSteps<kWidth>) - 1 + kFraction - 64;  // in two steps: no float is 2^149
    const VF power = from_bits(words(static_cast<std::uint32_t>(127 + kScale) << kFraction));
    const VF between = hn::Mul(hn::Mul(share, hn::Set(Floats(), 0x1p64F)), power);
    const auto goes_up = hn::Lt(hn::ConvertTo(Floats(), hn::BitCast(Ints(), draw)), between);
    const VW below = hn::IfThenElseZero(hn::RebindMask(Words(), goes_up), words(1));
    const auto low = hn::RebindMask(Words(), hn::Lt(share, from_bits(words(kLeast))));
    return hn::IfThenElse(low, below, hn::Sub(above, words(kFirst)));
  }

  VF norm_, per_;
  VW behind_;
};

// The values of codes: fractions of the norm, from a table if it fits in a vector.
template <unsigned kWidth>
class Values {
 public:
  HWY_INLINE explicit Values(const LevelFormat& format) {
    float shares[hn::MaxLanes(Floats())] = {};
    for (unsigned code = 0; kTable && code < 1U << kWidth; ++code) shares[code] = value(code, format, 1.0F);
    shares_ = load(shares);
  }
  HWY_INLINE VF of(VW code, VF norm) const {
    if constexpr (kTable) {
      return hn::Mul(norm, hn::TableLookupLanes(shares_, hn::IndicesFromVec(Floats(), code)));
    } else {
      const VW k = hn::And(code, words(kSteps<kWidth>));
      const VW power = hn::ShiftLeft<kFraction>(hn::Add(k, words(127 - kSteps<kWidth>)));
      const VF size = hn::Mul(norm, from_bits(hn::IfThenZeroElse(hn::Eq(k, hn::Zero(Words())), power)));
      return from_bits(hn::OrAnd(bits(size), hn::ShiftLeft<32 - kWidth>(code), words(1U << 31)));
    }
  }

 private:
  static constexpr bool kTable = (1U << kWidth) <= hn::MaxLanes(Floats());
  VF shares_;
};

template <unsigned kWidth, bool kResidual, bool kResidualOut>
HWY_INLINE void encode_bucket(const HighDraws& all, const Values<kWidth>& values_of, std::size_t at,
                              float norm, const Carry& in, const float* ahead,
                              std::uint8_t* HWY_RESTRICT to) {
  const HighDraws::Run draws(all, at);
  const Levels<kWidth> levels(norm);
  const VF size = hn::Set(Floats(), norm);
  const auto code_of = [&](std::size_t i, VF v, VW k) HWY_ATTR {
    const VW code = hn::OrAnd(k, hn::ShiftRight<32 - kWidth>(bits(v)), words(1U << (kWidth - 1)));
    if (kResidualOut) hn::StoreU(hn::Sub(v, values_of.of(code, size)), Floats(), in.residual_out + i);
    return code;
  };
  for (std::size_t i = 0; i < whole_pairs(in.n); i += 32) {
    hwy::Prefetch(ahead + i);
    hwy::Prefetch(ahead + i + 16);
    for (std::size_t j = i; j < i + 16; j += lanes()) {
      const VF v = take<kResidual>(in, j), other = take<kResidual>(in, j + 16);
      const Two k = levels.of(hn::Abs(v), high_bits(draws.at(at + j)), hn::Abs(other),
                              high_bits(draws.at_next(at + j)));
      store_two<kWidth>(code_of(j, v, k.first), code_of(j + 16, other, k.second), to, j);
    }
  }
}

template <unsigned kWidth, bool kResidual, bool kResidualOut>
bool encode_as(const Call& call, const Carry& in, std::uint8_t* out) {
  const LevelFormat format(call.settings);
  const std::uint64_t key = block::key(call);
  const HighDraws draws(key);
  const Values<kWidth> values_of(format);
  const std::size_t bucket = format.bucket();
  static_assert(HighDraws::kRun >= 8192);
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
    wire::put(to, norm);
    to += kHead;
    const std::size_t done = whole_pairs(values.n);
    encode_bucket<kWidth, kResidual, kResidualOut>(draws, values_of, first, norm, values,
                                                   ahead_of(in, first, values.n), to);
    std::fill(to + bit_packing::bytes_for(done, kWidth), to + bit_packing::bytes_for(values.n, kWidth),
              std::uint8_t{0});
    send_from(done, first, key, format, norm, values, to);
  }
  return finite;
}

template <unsigned kWidth>
struct Bits {
  static bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
    if (in.residual)
      return in.residual_out ? encode_as<kWidth, true, true>(call, in, out)
                             : encode_as<kWidth, true, false>(call, in, out);
    return in.residual_out ? encode_as<kWidth, false, true>(call, in, out)
                           : encode_as<kWidth, false, false>(call, in, out);
  }
  static std::size_t decode(const LevelFormat& format, std::span<const ByteView> payloads, const Merge& how,
                            std::span<float> out) {
    const Values<kWidth> values_of(format);
    return merge(payloads, how, out, [&](const std::uint8_t* p, std::size_t i) HWY_ATTR {
      const std::uint8_t* bucket = p + format.start(i >> format.log2_bucket);
      const VW code = load_codes<kWidth>(bucket + kHead, i & (format.bucket() - 1));
      return values_of.of(code, hn::Set(Floats(), wire::get<float>(bucket)));
    });
  }
};

// Calls use(Bits<bits>()).
template <typename Use>
auto with_bits(unsigned bits, Use use) {
  switch (bits) {
    case 2:
      return use(Bits<2>());
    case 3:
      return use(Bits<3>());
    case 4:
      return use(Bits<4>());
    case 5:
      return use(Bits<5>());
    case 6:
      return use(Bits<6>());
    case 7:
      return use(Bits<7>());
    default:
      return use(Bits<8>());
  }
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  return with_bits(LevelFormat(call.settings).bits, [&](auto with) { return with.encode(call, in, out); });
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const LevelFormat format(call.settings);
  const std::size_t done =
      with_bits(format.bits, [&](auto with) { return with.decode(format, payloads, how, out); });
  decode_from(done, format, payloads, how, out);
}

}  // namespace
}  // namespace tithe::nuqsgd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::nuqsgd {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::nuqsgd
#endif
