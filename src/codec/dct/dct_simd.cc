// SPDX-License-Identifier: Apache-2.0
// The 64 sums of a chunk, one per frequency or per value, in a few vectors. Each sum adds its terms in the order of the
// reference.
#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "codec/dct/dct.h"
#include "codec/shared/common/kernels.h"
#include "codec/shared/floats/bf16_format.h"
#include "codec/shared/sparse/sparse.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/dct/dct_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::dct::HWY_NAMESPACE {
namespace {
#if HWY_TARGET == HWY_SCALAR  // no vectors: the reference does all

std::size_t encode(const Carry&, std::size_t, std::uint8_t*, bool&) { return 0; }
std::size_t decode(std::span<const ByteView>, const Merge&, std::span<float>) { return 0; }

#else
using namespace simd::HWY_NAMESPACE;
using Ints = hn::RebindToSigned<Floats>;

constexpr std::size_t kWidth = hn::MaxLanes(Floats());
constexpr std::size_t kVectors = kChunk / kWidth;

struct Sums {
  VF at[kVectors];

  HWY_INLINE Sums() {
    for (VF& v : at) v = hn::Zero(Floats());
  }
  HWY_INLINE void add(float factor, const Chunk& row) {
    const VF by = hn::Set(Floats(), factor);
    for (std::size_t v = 0; v < kVectors; ++v)
      at[v] = hn::Add(at[v], hn::Mul(by, load(row.data() + v * kWidth)));
  }
};

// The values that a chunk of a payload stands for.
HWY_INLINE Sums values_of(const std::uint8_t* frequency, std::size_t k) {
  Sums values;
  for (std::size_t j = 0; j < k; ++j)
    values.add(bf16::Format::unpack(wire::get<std::uint16_t>(frequency + k + 2 * j)), kBasis[frequency[j]]);
  return values;
}

// write() of the reference: finds the largest k times, as long as that is cheaper than sorting.
constexpr std::size_t kFew = 12;
HWY_INLINE void write_few(const Sums& spectrum, std::size_t k, std::uint8_t* frequency) {
  hn::Vec<Ints> remaining[kVectors];
  for (std::size_t v = 0; v < kVectors; ++v) remaining[v] = hn::BitCast(Ints(), magnitude(spectrum.at[v]));
  for (std::size_t j = 0; j < k; ++j) {
    auto most = remaining[0];
    for (std::size_t v = 1; v < kVectors; ++v) most = hn::Max(most, remaining[v]);
    most = hn::MaxOfLanes(Ints(), most);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::intptr_t lane = hn::FindFirstTrue(Ints(), hn::Eq(remaining[v], most));
      if (lane < 0) continue;
      frequency[j] = static_cast<std::uint8_t>(v * kWidth + static_cast<std::size_t>(lane));
      const auto here = hn::Eq(hn::Iota(Ints(), 0), hn::Set(Ints(), static_cast<std::int32_t>(lane)));
      remaining[v] = hn::IfThenElse(here, hn::Set(Ints(), -1), remaining[v]);
      break;
    }
  }
  std::sort(frequency, frequency + k);
  HWY_ALIGN float all[kChunk];
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(spectrum.at[v], Floats(), all + v * kWidth);
  for (std::size_t j = 0; j < k; ++j) wire::put(frequency + k + 2 * j, bf16::Format::pack(all[frequency[j]]));
}

template <bool kResidual>
std::size_t encode_as(const Carry& in, std::size_t k, std::uint8_t* out, bool& finite) {
  const std::size_t chunks = in.n / kChunk;
  Peak peak;
  for (std::size_t c = 0; c < chunks; ++c) {
    HWY_ALIGN float x[kChunk];
    VW most = hn::Zero(Words());
    for (std::size_t i = 0; i < kChunk; i += kWidth) {
      const VF v = take<kResidual>(in, c * kChunk + i);
      most = hn::Max(most, magnitude(v));
      hn::Store(v, Floats(), x + i);
    }
    peak.see(most);
    if (!hn::AllTrue(Words(), hn::Lt(most, hn::Set(Words(), kNearlyTooLarge))))
      for (float& v : x) v *= kShrink;
    Sums spectrum;
    for (std::size_t i = 0; i < kChunk; ++i) spectrum.add(x[i], kTransposed[i]);
    std::uint8_t* to = out + at(c, k);
    if (k <= kFew) {
      write_few(spectrum, k, to);
    } else {
      Chunk all;
      for (std::size_t v = 0; v < kVectors; ++v)
        hn::StoreU(spectrum.at[v], Floats(), all.data() + v * kWidth);
      write(all, k, to);
    }
    if (!in.residual_out) continue;
    const Sums sent = values_of(to, k);
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t i = c * kChunk + v * kWidth;
      const VF rest = hn::Sub(take<kResidual>(in, i), sent.at[v]);
      peak.see(magnitude(rest));
      hn::StoreU(rest, Floats(), in.residual_out + i);
    }
  }
  finite = finite && peak.finite();
  return chunks;
}

std::size_t encode(const Carry& in, std::size_t k, std::uint8_t* out, bool& finite) {
  return in.residual ? encode_as<true>(in, k, out, finite) : encode_as<false>(in, k, out, finite);
}

std::size_t decode(std::span<const ByteView> payloads, const Merge& merge, std::span<float> out) {
  const std::size_t chunks = out.size() / kChunk;
  const VF by = hn::Set(Floats(), merge.divide);
  for (std::size_t c = 0; c < chunks; ++c) {
    Sums sum;
    if (merge.base)
      for (std::size_t v = 0; v < kVectors; ++v) sum.at[v] = load(merge.base + c * kChunk + v * kWidth);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      const std::size_t k = payloads[p][0];
      const Sums values = values_of(&payloads[p][at(c, k)], k);
      for (std::size_t v = 0; v < kVectors; ++v)
        sum.at[v] = p == 0 && !merge.base ? values.at[v] : hn::Add(sum.at[v], values.at[v]);
    }
    for (std::size_t v = 0; v < kVectors; ++v)
      hn::StoreU(merge.divide == 1.0F ? sum.at[v] : hn::Div(sum.at[v], by), Floats(),
                 out.data() + c * kChunk + v * kWidth);
  }
  return chunks;
}

#endif
}  // namespace
}  // namespace tithe::dct::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::dct {
TITHE_KERNELS(const Kernels kSimd, encode, decode);
}  // namespace tithe::dct
#endif
