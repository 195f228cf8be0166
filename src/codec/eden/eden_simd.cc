// SPDX-License-Identifier: Apache-2.0
// A block is read from memory once. Levels are computed 8 bits at a time, many values per vector. The sums that
// determine the scale are integers, so their order does not matter.
#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/fold.h"
#include "codec/eden/eden.h"
#include "codec/shared/common/block.h"
#include "codec/shared/common/kernels.h"
#include "codec/shared/floats/bf16_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/eden/eden_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/eden/eden_codes_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::eden::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the reference does everything

std::size_t encode(const Coder&, const EncodeInput&, std::uint8_t*, bool&) { return 0; }
std::size_t decode(const Coder&, std::span<const ByteView>, const Merge&, std::span<float>) { return 0; }

#else
using namespace rotation::HWY_NAMESPACE;

// ---- Encode

HWY_INLINE VF level_at(const std::int8_t* level, std::size_t i) {
  const hn::Rebind<std::int8_t, Floats> d;
  return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), hn::Load(d, level + i)));
}

template <bool kResidual>
bool is_dust(const EncodeInput& in) {
  VW most = hn::Zero(Words());
  for (std::size_t i = 0; i < kBlock; i += lanes())
    most = hn::Max(most, magnitude(load_value<kResidual>(in, i)));
  return hn::AllTrue(Words(), hn::Lt(most, bits(hn::Set(Floats(), kDust))));
}

// Sends a block of zeros.
template <bool kResidual>
void keep(const EncodeInput& in, std::size_t bytes, std::uint8_t* at) {
  std::fill_n(at, bytes, std::uint8_t{0});
  for (std::size_t i = 0; in.residual_out && i < kBlock; i += lanes())
    hn::StoreU(load_value<kResidual>(in, i), Floats(), in.residual_out + i);
}

// Rotates the sent levels back and subtracts them from the values. Sums of levels fit in 16 bits: the squares of the
// block's rotated values, in standard deviations, sum to kBlock, so their magnitudes sum to at most kBlock, and
// levels to less than 20 kBlock. Integer sums are independent of the order, so the levels stay in the order of
// narrowing until they are widened.
template <bool kResidual, typename Fetch>
HWY_INLINE void store_residual(const EncodeInput& in, const Signs& signs, float scale,
                               std::int16_t* HWY_RESTRICT level, Fetch fetch) {
  const VF plus = hn::Set(Floats(), scale), minus = hn::Set(Floats(), -scale);
  const auto keep = [&](std::size_t i, VI sum) HWY_ATTR {  // the product is exact
    const VF unsent =
        hn::MulAdd(hn::ConvertTo(Floats(), sum), signs.chosen(minus, plus, i), load_value<kResidual>(in, i));
    hn::StoreU(unsent, Floats(), in.residual_out + i);
  };
  begin(level, [&](std::size_t i, std::size_t) HWY_ATTR { return hn::Load(Shorts(), level + i); });
  finish(level, [&](std::size_t i, VS v) HWY_ATTR {
    fetch(i);
    keep(i, hn::ShiftRight<16>(hn::BitCast(Ints(), hn::InterleaveLower(Shorts(), v, v))));
    keep(i + lanes(), hn::ShiftRight<16>(hn::BitCast(Ints(), hn::InterleaveUpper(Shorts(), v, v))));
  });
}

template <unsigned kBits, bool kResidual>
bool encode_one(const Coder& coder, const Block& block, const EncodeInput& in, const EncodeInput& ahead,
                std::uint8_t* at) {
  constexpr std::size_t kSums = kFoldLanes / hn::MaxLanes(Floats());  // the order of base/fold.h
  HWY_ALIGN float x[kBlock];
  HWY_ALIGN std::uint8_t codes[kBlock + kOcts];
  HWY_ALIGN std::int16_t level[kBlock];
  const Signs signs(coder.key, block.first);
  // The next block is prefetched while this one is processed, one quarter in each step.
  const auto fetch = [&](std::size_t quarter, std::size_t i) HWY_ATTR {
    if (i % 64 != 0) return;
    hwy::Prefetch(ahead.grad + quarter * kBlock / 4 + i / 4);
    if (kResidual) hwy::Prefetch(ahead.residual + quarter * kBlock / 4 + i / 4);
  };
  VF squares[kSums];
  for (VF& s : squares) s = hn::Zero(Floats());
  begin(x, [&](std::size_t i, std::size_t k) HWY_ATTR {
    fetch(0, i);
    const VF v = load_value<kResidual>(in, i);
    squares[k % kSums] = hn::Add(squares[k % kSums], hn::Mul(v, v));
    return signs.turned(v, i);
  });
  for (std::size_t half = kSums / 2; half > 0; half /= 2)
    for (std::size_t k = 0; k < half; ++k) squares[k] = hn::Add(squares[k], squares[k + half]);
  const float energy = block::HWY_NAMESPACE::total(Floats(), squares[0]);
  if (!(energy >= kMinEnergy && energy <= kMaxEnergy)) {
    if (!is_dust<kResidual>(in)) return encode_block(coder, block, in, at);
    keep<kResidual>(in, block.bytes(coder.levels), at);
    return true;
  }
  finish(x, [&](std::size_t i, VF v) HWY_ATTR {
    fetch(1, i);
    hn::Store(v, Floats(), x + i);
  });
  const double norm = std::sqrt(static_cast<double>(energy));
  const Products products = round<kBits>(coder.levels, x, static_cast<float>(kSteps / norm), codes, level,
                                         [&](std::size_t i) HWY_ATTR { fetch(2, i); });
  pack<kBits>(codes, at + kScaleBytes);
  const std::uint16_t scale = scale_of(coder, block, norm, products);
  wire::put(at, scale);
  if (!in.residual_out) return true;
  store_residual<kResidual>(in, signs, bf16::Format::unpack(scale), level,
                            [&](std::size_t i) HWY_ATTR { fetch(3, i); });
  return true;
}

template <unsigned kBits>
std::size_t encode_as(const Coder& coder, const EncodeInput& in, std::uint8_t* out, bool& finite) {
  constexpr std::size_t bytes = kScaleBytes + kCodes<kBits>;
  std::size_t first = 0;
  for (std::uint8_t* at = out + kHead; first + kBlock <= in.n; first += kBlock, at += bytes) {
    const Block block{first, kBlock, kBlock};
    const EncodeInput part = block::part(in, first, kBlock);
    const EncodeInput ahead = first + 2 * kBlock <= in.n ? block::part(in, first + kBlock, kBlock) : part;
    finite = (in.residual ? encode_one<kBits, true>(coder, block, part, ahead, at)
                          : encode_one<kBits, false>(coder, block, part, ahead, at)) &&
             finite;
  }
  return first / kBlock;
}

std::size_t encode(const Coder& coder, const EncodeInput& in, std::uint8_t* out, bool& finite) {
  return by_width<1, kThree, 2, 3, 4>(
      coder.levels.bits, [&](auto bits) HWY_ATTR { return encode_as<bits>(coder, in, out, finite); });
}

// ---- Decode

constexpr std::size_t kAtOnce = 4;  // payloads per pass

// The sum of at most kAtOnce payloads' rotated blocks, vector by vector; added to x if `onto` is set.
class Rotated {
 public:
  template <unsigned kBits>
  HWY_INLINE void take(std::span<const ByteView> payloads, std::size_t offset, VO of_code) {
    count_ = payloads.size();
    for (std::size_t p = 0; p < count_; ++p) {
      const std::uint8_t* at = &payloads[p][offset];
      constexpr std::size_t bytes = kScaleBytes + kCodes<kBits>;
      const std::uint8_t* ahead = offset + 2 * bytes <= payloads[p].size() ? at + bytes : at;
      for (std::size_t k = 0; k < bytes; k += 64) hwy::Prefetch(ahead + k);
      unit_[p] = bf16::Format::unpack(wire::get<std::uint16_t>(at));
      levels_of<kBits>(of_code, at + kScaleBytes, level_[p]);
    }
  }
  // Products of a level and a scale are exact, so only the sum is rounded.
  HWY_INLINE VF onto(VF sum, std::size_t i) const {
    for (std::size_t p = 0; p < count_; ++p)
      sum = hn::MulAdd(level_at(level_[p], i), hn::Set(Floats(), unit_[p]), sum);
    return sum;
  }

 private:
  std::size_t count_ = 0;
  float unit_[kAtOnce];
  HWY_ALIGN std::int8_t level_[kAtOnce][kBlock + kOcts];
};

template <unsigned kBits>
std::size_t decode_as(const Coder& coder, std::span<const ByteView> payloads, const Merge& how,
                      std::span<float> out) {
  constexpr std::size_t bytes = kScaleBytes + kCodes<kBits>;
  const VO of_code =
      table([&](unsigned k) { return k < (kBits == kThree ? 3U : 1U << kBits) ? coder.levels.level(k) : 0; });
  const VF by = hn::Set(Floats(), how.divide);
  const bool divides = how.divide != 1.0F;
  const bool non_temporal = uses_non_temporal_stores(how, out);
  HWY_ALIGN float x[kBlock];
  Rotated rotated;
  std::size_t first = 0;
  for (std::size_t offset = kHead; first + kBlock <= out.size(); first += kBlock, offset += bytes) {
    std::span<const ByteView> remain = payloads;
    bool some = false;
    for (; remain.size() > kAtOnce; remain = remain.subspan(kAtOnce), some = true) {
      rotated.take<kBits>(remain.first(kAtOnce), offset, of_code);
      for (std::size_t i = 0; i < kBlock; i += lanes())
        hn::Store(rotated.onto(some ? hn::Load(Floats(), x + i) : hn::Zero(Floats()), i), Floats(), x + i);
    }
    rotated.take<kBits>(remain, offset, of_code);
    begin(x, [&](std::size_t i, std::size_t)
                 HWY_ATTR { return rotated.onto(some ? hn::Load(Floats(), x + i) : hn::Zero(Floats()), i); });
    const Signs signs(coder.key, first);
    float* to = out.data() + first;
    const float* base = how.base ? how.base + first : nullptr;
    finish(x, [&](std::size_t i, VF v) HWY_ATTR { hn::Store(v, Floats(), x + i); });
    // In memory order, which the hardware prefetcher recognises: `finish` has eight streams of 64 bytes each, and
    // software prefetches for them were a third slower.
    for (std::size_t i = 0; i < kBlock; i += lanes()) {
      VF sum = signs.turned(hn::Load(Floats(), x + i), i);
      if (base) sum = hn::Add(load(base + i), sum);
      store(divides ? hn::Div(sum, by) : sum, to + i, non_temporal);
    }
  }
  if (non_temporal) hwy::FlushStream();
  return first / kBlock;
}

std::size_t decode(const Coder& coder, std::span<const ByteView> payloads, const Merge& how,
                   std::span<float> out) {
  return by_width<1, kThree, 2, 3, 4>(
      coder.levels.bits, [&](auto bits) HWY_ATTR { return decode_as<bits>(coder, payloads, how, out); });
}
#endif

}  // namespace
}  // namespace tithe::eden::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::eden {
TITHE_KERNELS(const Kernels kSimd, encode, decode);
}  // namespace tithe::eden
#endif
