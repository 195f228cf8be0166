// SPDX-License-Identifier: Apache-2.0
// Burst payloads: encode. Vectors make the words of the values and join them in pairs of up to 8 bytes, which are
// stored one after another. With AVX3_DL, 32 values of 8 and 16 bits and the tags between them are two vectors,
// compressed and stored whole.
#include <cstring>

#include "codec/inceptionn/inceptionn.h"

#define HWY_WANT_AVX3_DL  // compresses bytes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/inceptionn/inceptionn_burst_encode_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/inceptionn/inceptionn_simd_inl.h"

#ifndef TITHE_CODEC_INCEPTIONN_BURST_TABLES_
#define TITHE_CODEC_INCEPTIONN_BURST_TABLES_
namespace tithe::inceptionn {

// Moves bit j to bit 2j.
inline constexpr auto kEvenBits = [] {
  std::array<std::uint16_t, 256> table{};
  for (unsigned set = 0; set < 256; ++set)
    for (unsigned j = 0; j < 8; ++j)
      table[set] = static_cast<std::uint16_t>(table[set] | (set >> j & 1U) << (2 * j));
  return table;
}();

}  // namespace tithe::inceptionn
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
namespace {

constexpr std::size_t kTwo = 2 * kGroup;

// Two groups.
struct Groups {
  std::uint64_t pair[kTwo / 2];
  std::uint64_t bytes[kTwo / 2];
  std::uint64_t low, high;  // the bits of the tags
};

#if HWY_TARGET == HWY_SCALAR  // has no pairs, and whole() no values for it
template <bool kResidual, bool kResidualOut>
void sort_groups(const Edges&, const Carry&, std::size_t, Groups&, Peak&) {}
#else
using Pairs = hn::RepartitionToWide<Words>;

template <bool kResidual, bool kResidualOut>
HWY_INLINE void sort_groups(const Edges& c, const Carry& in, std::size_t i, Groups& to, Peak& peak) {
  const Pairs d;
  const auto lower = hn::Set(d, std::uint64_t{0xffffffffU});
  const VW one = hn::Set(Words(), 1U);
  to.low = to.high = 0;
  for (std::size_t k = 0; k < kTwo; k += lanes()) {
    const Classified s(c, take<kResidual>(in, i + k));
    peak.see(s.mag);
    const std::uint64_t is_wide = bits_of(s.wide);
    to.low |= ((bits_of(s.some) & ~is_wide) | bits_of(s.full)) << k;
    to.high |= is_wide << k;
    const VW sign = hn::IfThenElse(s.wide, hn::ShiftRight<16>(s.sign), hn::ShiftRight<24>(s.sign));
    const VW coded = hn::IfThenElseZero(s.some, hn::Or(s.q, sign));
    const auto word = hn::BitCast(d, hn::IfThenElse(s.full, bits(s.taken), coded));
    const VW up_to_two = hn::Add(hn::IfThenElseZero(s.some, one), hn::IfThenElseZero(s.wide, one));
    const auto bytes = hn::BitCast(d, hn::Add(up_to_two, hn::IfThenElseZero(s.full, hn::Set(Words(), 2U))));
    const auto first = hn::And(bytes, lower);
    const auto second_word = hn::Shl(hn::ShiftRight<32>(word), hn::ShiftLeft<3>(first));
    hn::StoreU(hn::Or(hn::And(word, lower), second_word), d, to.pair + k / 2);
    hn::StoreU(hn::Add(first, hn::ShiftRight<32>(bytes)), d, to.bytes + k / 2);
    if (kResidualOut) s.leave(c, in.residual_out + i + k);
  }
}
#endif

// Stores reach up to 8 bytes past the end.
template <bool kResidual, bool kResidualOut>
std::uint8_t* encode_two(const Edges& c, const Carry& in, std::size_t i, std::uint8_t* at, Peak& peak) {
  Groups two;
  sort_groups<kResidual, kResidualOut>(c, in, i, two, peak);
  for (std::size_t g = 0; g < 2; ++g) {
    const unsigned low = kEvenBits[two.low >> (8 * g) & 255U];
    const unsigned high = kEvenBits[two.high >> (8 * g) & 255U];
    wire::put(at, static_cast<std::uint16_t>(low | high << 1));
    at += 2;
    for (std::size_t p = 4 * g; p < 4 * g + 4; ++p) {
      wire::put(at, two.pair[p]);
      at += two.bytes[p];
    }
  }
  return at;
}

#if HWY_TARGET == HWY_AVX3_DL
// A value is a 16-bit word with the sign at the top, in both classes; an 8-bit value is the upper byte.
class Step {
 public:
  explicit Step(const Head& head) : Step(classes(head)) {}
  explicit Step(const Classes& c)
      : edges_(c),
        below_(by_byte(c.middle - 1, c.low - 1)),
        from_(by_byte(c.low, c.middle)),
        width_(by_byte(c.middle - c.low, 0U - c.middle)),
        middle_(hn::Set(Shorts(), static_cast<std::uint16_t>(c.middle >> 15))),
        up_(hn::Set(Shorts(),
                    static_cast<std::uint16_t>(8 + std::ilogb(c.unit[1]) - std::ilogb(c.unit[0])))) {}

  static constexpr std::size_t kValues = 32;

  // Stores reach up to 60 bytes past the end.
  template <bool kResidual, bool kResidualOut>
  HWY_INLINE std::uint8_t* encode(const Carry& in, std::size_t i, std::uint8_t* at, Peak& peak) const {
    const VF v[2] = {take<kResidual>(in, i), take<kResidual>(in, i + 16)};
    const auto upper = upper_halves(v[0], v[1]);
    const auto exponent_above = hn::Add(upper, upper);
    const auto odd_twice = hn::Or(hn::Iota(Octets(), 0), hn::Set(Octets(), 1));
    const auto exponent = hn::TableLookupBytes(hn::BitCast(Octets(), exponent_above), odd_twice);
    if (HWY_UNLIKELY(hn::Gt(exponent, edges_.exponent_below[2]).raw != 0)) {
      at = encode_two<kResidual, kResidualOut>(edges_, in, i, at, peak);
      return encode_two<kResidual, kResidualOut>(edges_, in, i + 16, at, peak);
    }
    // Two bits per value: whether its lower and its upper byte are sent. And its tag: 1 from low to middle, 2 from
    // there on.
    const std::uint64_t sent = hn::Gt(exponent, below_).raw;
    const std::uint64_t tags = hn::Lt(hn::Sub(exponent, from_), width_).raw;
    const auto q = lower_halves(raise(v[0], edges_.raise[1]), raise(v[1], edges_.raise[1]));
    const __mmask32 narrow = hn::Lt(exponent_above, middle_).raw;
    const hn::Vec<Shorts> size{_mm512_mask_sllv_epi16(q.raw, narrow, q.raw, up_.raw)};
    const auto words = hn::IfVecThenElse(hn::Set(Shorts(), 0x8000), upper, size);
    const __m512i all_tags = _mm512_castsi128_si512(_mm_cvtsi64_si128(static_cast<std::int64_t>(tags)));
    for (std::size_t k = 0; k < 2; ++k) {
      const __m512i both = _mm512_permutex2var_epi16(words.raw, _mm512_load_si512(kTwoGroups[k]), all_tags);
      const std::uint64_t bytes = kTagsOfTwo | _pdep_u64(sent >> (32 * k), kWordsOfTwo);
      _mm512_storeu_si512(at, _mm512_maskz_compress_epi8(bytes, both));
      at += std::popcount(bytes);
    }
    if (kResidualOut)
      for (std::size_t k = 0; k < 2; ++k) leave(edges_, v[k], in.residual_out + i + 16 * k);
    return at;
  }

 private:
  // Two groups in a vector: u16 tags, 8 words, u16 tags, 8 words.
  static constexpr std::uint64_t kTagsOfTwo = 3 | 3 << 18;
  static constexpr std::uint64_t kWordsOfTwo = 0xffff * (std::uint64_t{1} << 2 | std::uint64_t{1} << 20);
  // The sources of these 16-bit lanes: 0 to 31 are words, 32 and above are tags.
  alignas(64) static constexpr std::uint16_t kTwoGroups[2][32] = {
      {32, 0, 1, 2, 3, 4, 5, 6, 7, 33, 8, 9, 10, 11, 12, 13, 14, 15},
      {34, 16, 17, 18, 19, 20, 21, 22, 23, 35, 24, 25, 26, 27, 28, 29, 30, 31}};

  // The exponents of two edges, at each word's lower and upper byte.
  static hn::Vec<Octets> by_byte(std::uint32_t lower, std::uint32_t upper) {
    const std::uint32_t both = (lower >> 23 & 0xffU) | (upper >> 23 & 0xffU) << 8;
    return hn::BitCast(Octets(), hn::Set(Shorts(), static_cast<std::uint16_t>(both)));
  }
  ByteEdges edges_;
  hn::Vec<Octets> below_, from_, width_;
  hn::Vec<Shorts> middle_, up_;
};
#else
struct Step {
  explicit Step(const Head& head) : edges(classes(head)) {}
  static constexpr std::size_t kValues = kTwo;
  template <bool kResidual, bool kResidualOut>
  HWY_INLINE std::uint8_t* encode(const Carry& in, std::size_t i, std::uint8_t* at, Peak& peak) const {
    return encode_two<kResidual, kResidualOut>(edges, in, i, at, peak);
  }
  Edges edges;
};
#endif

template <bool kResidual, bool kResidualOut>
Encoded encode_as(const Head& head, const Carry& in, std::uint8_t* HWY_RESTRICT out) {
  constexpr std::size_t kReach = 64;  // bytes that stores write past the end
  const Classes c = classes(head);
  const Step step(head);
  std::uint8_t* at = out + kHead + 2 * blocks(in.n);
  Peak peak;
  bool finite = true;
  std::uint8_t
      apart[kMostBlockBytes + kReach];  // for the last blocks: the payload has no room for kReach after them
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry to_end{in.grad, in.residual, in.residual_out, std::min(first + kBlock, in.n)};
    const bool is_apart = in.n - first < 2 * kBlock;
    std::uint8_t* const begin = is_apart ? apart : at;
    std::uint8_t* to = begin;
    std::size_t i = first;
    for (; i + Step::kValues <= whole(to_end.n); i += Step::kValues) {
      prefetch_ahead<kResidual>(in, i, Step::kValues);
      to = step.template encode<kResidual, kResidualOut>(to_end, i, to, peak);
    }
    const Encoded rest = encode_groups(c, to_end, i, to);
    finite = finite && rest.finite;
    const auto bytes = static_cast<std::size_t>(to - begin) + rest.bytes;
    if (is_apart) std::memcpy(at, apart, bytes);
    wire::put(out + kHead + 2 * (first / kBlock), static_cast<std::uint16_t>(bytes));
    at += bytes;
  }
  return {static_cast<std::size_t>(at - out), finite && peak.finite()};
}

Encoded encode_burst(const Head& head, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.residual_out ? encode_as<true, true>(head, in, out) : encode_as<true, false>(head, in, out);
  return in.residual_out ? encode_as<false, true>(head, in, out) : encode_as<false, false>(head, in, out);
}

}  // namespace
}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::inceptionn {

HWY_EXPORT(encode_burst);

Encoded encode_burst_simd(const Head& head, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode_burst)(head, in, out);
}

}  // namespace tithe::inceptionn
#endif
