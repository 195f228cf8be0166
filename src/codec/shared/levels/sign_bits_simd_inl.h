// SPDX-License-Identifier: Apache-2.0
// SIMD decode for codecs with one bit per value, which selects one of two values of the block. A Format describes them:
//   kBlock, kHead, kBlockBytes   values per block, bytes before the bits (lowest first), bytes of a whole block
//   clear(block), set(block)     the value of a 0 bit, the value of a 1 bit
#if defined(TITHE_CODEC_BIT_CODES_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TITHE_CODEC_BIT_CODES_SIMD_INL_H_
#undef TITHE_CODEC_BIT_CODES_SIMD_INL_H_
#else
#define TITHE_CODEC_BIT_CODES_SIMD_INL_H_
#endif

#include "base/bytes.h"
#include "codec/shared/common/simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::bit_codes::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

template <typename Format>
HWY_INLINE float value_of(const std::uint8_t* block, std::size_t i) {
  const bool set = block[Format::kHead + i / 8] >> (i % 8) & 1U;
  return set ? Format::set(block) : Format::clear(block);
}

// Merges one block of kPeers payloads: onto base, or starting from the first payload; divides if kDivide.
template <typename Format, std::size_t kPeers, bool kBase, bool kDivide>
void decode_as(const std::uint8_t* const* blocks, const float* base, float divide, float* out,
               std::size_t len) {
  constexpr std::size_t kAtOnce = 32;  // values whose bits are read as one word
  constexpr std::size_t kVectors = kAtOnce / hn::MaxLanes(Floats());
  VF clear[kPeers], set[kPeers];
  for (std::size_t p = 0; p < kPeers; ++p) {
    clear[p] = hn::Set(Floats(), Format::clear(blocks[p]));
    set[p] = hn::Set(Floats(), Format::set(blocks[p]));
  }
  VW own_bit[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k)
    own_bit[k] = hn::Shl(hn::Set(Words(), 1U), hn::Iota(Words(), static_cast<std::uint32_t>(k * lanes())));
  const VF by = hn::Set(Floats(), divide);
  std::size_t i = 0;
  for (; i + kAtOnce <= whole(len); i += kAtOnce) {
    VF sum[kVectors];
    for (std::size_t k = 0; kBase && k < kVectors; ++k) sum[k] = load(base + i + k * lanes());
    for (std::size_t p = 0; p < kPeers; ++p) {
      const VW bits = hn::Set(Words(), wire::get<std::uint32_t>(blocks[p] + Format::kHead + i / 8));
      for (std::size_t k = 0; k < kVectors; ++k) {
        const auto is_set = hn::RebindMask(Floats(), hn::TestBit(bits, own_bit[k]));
        const VF v = hn::IfThenElse(is_set, set[p], clear[p]);
        sum[k] = kBase || p > 0 ? hn::Add(sum[k], v) : v;
      }
    }
    for (std::size_t k = 0; k < kVectors; ++k)
      hn::StoreU(kDivide ? hn::Div(sum[k], by) : sum[k], Floats(), out + i + k * lanes());
  }
  for (; i < len; ++i) {
    const float first = value_of<Format>(blocks[0], i);
    float sum = kBase ? base[i] + first : first;
    for (std::size_t p = 1; p < kPeers; ++p) sum += value_of<Format>(blocks[p], i);
    out[i] = kDivide ? sum / divide : sum;
  }
}

template <typename Format, std::size_t kPeers>
void decode_block(const std::uint8_t* const* blocks, const float* base, float divide, float* out,
                  std::size_t len) {
  const bool divides = divide != 1.0F;
  if (base)
    divides ? decode_as<Format, kPeers, true, true>(blocks, base, divide, out, len)
            : decode_as<Format, kPeers, true, false>(blocks, base, divide, out, len);
  else
    divides ? decode_as<Format, kPeers, false, true>(blocks, base, divide, out, len)
            : decode_as<Format, kPeers, false, false>(blocks, base, divide, out, len);
}

// Merges one payload or more, block by block and four payloads at a time; the output block stays in the L1 cache.
template <typename Format>
void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  constexpr std::size_t kAtOnce = 4;
  for (std::size_t first = 0; first < out.size(); first += Format::kBlock) {
    const std::size_t len = std::min(Format::kBlock, out.size() - first);
    float* to = out.data() + first;
    const float* base = how.base ? how.base + first : nullptr;
    for (std::size_t p = 0; p < payloads.size(); p += kAtOnce) {
      const std::size_t peers = std::min(kAtOnce, payloads.size() - p);
      const std::uint8_t* blocks[kAtOnce] = {};
      for (std::size_t k = 0; k < peers; ++k)
        blocks[k] = payloads[p + k].data() + first / Format::kBlock * Format::kBlockBytes;
      const float divide = p + peers == payloads.size() ? how.divide : 1.0F;
      switch (peers) {
        case 1:
          decode_block<Format, 1>(blocks, base, divide, to, len);
          break;
        case 2:
          decode_block<Format, 2>(blocks, base, divide, to, len);
          break;
        case 3:
          decode_block<Format, 3>(blocks, base, divide, to, len);
          break;
        default:
          decode_block<Format, 4>(blocks, base, divide, to, len);
      }
      base = to;
    }
  }
}

}  // namespace tithe::bit_codes::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TITHE_CODEC_BIT_CODES_SIMD_INL_H_
