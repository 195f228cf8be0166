// SPDX-License-Identifier: Apache-2.0
// Burst payloads: encode. Vector operations compute the words of the values; a shuffle compacts the sent bytes of
// four words. With AVX3_DL, two vectors hold the 8- and 16-bit values of 32 values and the tags between them; they
// are compressed and stored whole.
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

// Indexed by the tags of four values: the shuffle that moves the sent bytes of their words to the front (none, byte
// 1, bytes 0 and 1, or all). Bytes after these are unspecified.
struct alignas(16) Gather {
  std::uint8_t from[16];
};
inline constexpr auto kGathers = [] {
  std::array<Gather, 256> table{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    std::size_t to = 0;
    for (unsigned j = 0; j < 4; ++j) {
      const std::size_t bytes = kTagBytes[tags >> (2 * j) & 3U];
      for (std::size_t k = 0; k < bytes; ++k)
        table[tags].from[to++] = static_cast<std::uint8_t>(4 * j + k + (bytes == 1 ? 1 : 0));
    }
  }
  return table;
}();

}  // namespace tithe::inceptionn
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
namespace {

constexpr std::size_t kTwo = 2 * kGroup;

// Two groups: their words, and their tags, value j's in bits 2j and 2j + 1.
struct Groups {
  alignas(64) std::uint32_t word[kTwo];
  std::uint32_t tags;
};

#if HWY_TARGET == HWY_SCALAR  // has no shuffles, and whole() no values for it
using GroupEdges = Edges;
template <bool kResidual, bool kResidualOut>
std::uint8_t* encode_two(const Edges&, const EncodeInput&, std::size_t, std::uint8_t* at, Peak&) {
  return at;
}
#else
// A word's lower half is the sign and 15 bits; of an 8-bit value its upper byte is sent.
#if HWY_TARGET == HWY_AVX2
struct GroupEdges : Edges {
  HWY_INLINE explicit GroupEdges(const Classes& c)
      : Edges(c),
        narrow{hn::Set(Floats(), c.unit[0] * 0x1p-8F), hn::Set(Floats(), 0x1p8F / c.unit[0])},
        to_wide{changed(narrow[0], c.unit[1]), changed(narrow[1], 1 / c.unit[1])} {}
  // k = 0: the value of a unit of the lower half; k = 1: how many units make 1.
  HWY_INLINE VF unit(hn::Mask<Words> wide, std::size_t k) const {
    return from_bits(hn::Xor(bits(narrow[k]), hn::And(hn::VecFromMask(Words(), wide), to_wide[k])));
  }
  static HWY_INLINE VW changed(VF from, float to) { return hn::Xor(bits(from), bits(hn::Set(Floats(), to))); }
  VF narrow[2];
  VW to_wide[2];
};

template <bool kResidual, bool kResidualOut>
HWY_INLINE void sort_groups(const GroupEdges& c, const EncodeInput& in, std::size_t i, Groups& to,
                            Peak& peak) {
  __m256i tags[2];
  for (std::size_t g = 0; g < 2; ++g) {
    const VF v = load_value<kResidual>(in, i + 8 * g);
    const VW mag = magnitude(v);
    peak.see(mag);
    const Mask some = c.reach(mag, 0), wide = c.reach(mag, 1), full = c.reach(mag, 2);
    // Not Highway's conversion, which handles overflow: values that overflow are sent in full anyway.
    const VW q{_mm256_cvttps_epi32(hn::Mul(from_bits(mag), c.unit(wide, 1)).raw)};
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), bits(v));
    hn::Store(hn::IfThenElse(full, bits(v), hn::Or(q, hn::ShiftRight<16>(sign))), Words(), to.word + 8 * g);
    // Each class is part of the one before it. Of four values: the lower bit of a tag, the upper one, and so on.
    tags[g] = _mm256_blend_epi16(hn::Xor(some, hn::Xor(wide, full)).raw, wide.raw, 0xaa);
    if (!kResidualOut) continue;
    const VW sent = hn::And(q, hn::Or(hn::VecFromMask(Words(), wide), hn::Set(Words(), 0xff00U)));
    const VF size = hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(Ints(), sent)), c.unit(wide, 0));
    const VW coded = hn::IfThenElseZero(some, hn::Or(bits(size), sign));
    hn::StoreU(hn::Sub(v, from_bits(hn::IfThenElse(full, bits(v), coded))), Floats(),
               in.residual_out + i + 8 * g);
  }
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(tags[0], tags[1]), 0xd8);
  to.tags = static_cast<std::uint32_t>(_mm256_movemask_epi8(bytes));
}
#else
using GroupEdges = Edges;

HWY_INLINE std::uint32_t even_bits(std::uint64_t v) {
  return kEvenBits[v & 255U] | std::uint32_t{kEvenBits[v >> 8 & 255U]} << 16;
}

template <bool kResidual, bool kResidualOut>
HWY_INLINE void sort_groups(const GroupEdges& c, const EncodeInput& in, std::size_t i, Groups& to,
                            Peak& peak) {
  std::uint64_t low = 0, high = 0;
  for (std::size_t k = 0; k < kTwo; k += lanes()) {
    const Classified s(c, load_value<kResidual>(in, i + k));
    peak.see(s.mag);
    const std::uint64_t is_wide = bits_of(s.wide);
    low |= ((bits_of(s.some) & ~is_wide) | bits_of(s.full)) << k;
    high |= is_wide << k;
    const VW q = hn::IfThenElse(s.wide, s.q, hn::ShiftLeft<8>(s.q));
    const VW coded = hn::Or(q, hn::ShiftRight<16>(s.sign));
    hn::Store(hn::IfThenElse(s.full, bits(s.taken), coded), Words(), to.word + k);
    if (kResidualOut) s.store_residual(c, in.residual_out + i + k);
  }
  to.tags = even_bits(low) | even_bits(high) << 1;
}
#endif

// Stores reach up to 16 bytes past the end.
template <bool kResidual, bool kResidualOut>
std::uint8_t* encode_two(const GroupEdges& c, const EncodeInput& in, std::size_t i, std::uint8_t* at,
                         Peak& peak) {
  Groups two;
  sort_groups<kResidual, kResidualOut>(c, in, i, two, peak);
  const hn::Full128<std::uint8_t> d;
  for (std::size_t quad = 0; quad < kTwo / 4; ++quad) {
    const std::uint32_t rest = two.tags >> (8 * quad);
    if (quad % 2 == 0) {
      wire::put(at, static_cast<std::uint16_t>(rest));
      at += 2;
    }
    const auto words = hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(two.word + 4 * quad));
    hn::StoreU(hn::TableLookupBytes(words, hn::LoadU(d, kGathers[rest & 255U].from)), d, at);
    at += kQuadBytes[rest & 255U];
  }
  return at;
}
#endif

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
  HWY_INLINE std::uint8_t* encode(const EncodeInput& in, std::size_t i, std::uint8_t* at, Peak& peak) const {
    const VF v[2] = {load_value<kResidual>(in, i), load_value<kResidual>(in, i + 16)};
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
      for (std::size_t k = 0; k < 2; ++k) store_residual(edges_, v[k], in.residual_out + i + 16 * k);
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
  HWY_INLINE std::uint8_t* encode(const EncodeInput& in, std::size_t i, std::uint8_t* at, Peak& peak) const {
    return encode_two<kResidual, kResidualOut>(edges, in, i, at, peak);
  }
  GroupEdges edges;
};
#endif

template <bool kResidual, bool kResidualOut>
Encoded encode_as(const Head& head, const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  constexpr std::size_t kReach = 64;  // bytes that stores write past the end
  const Classes c = classes(head);
  const Step step(head);
  std::uint8_t* at = out + kHead + 2 * blocks(in.n);
  Peak peak;
  bool finite = true;
  // For the last blocks: the payload has no room for kReach after them.
  std::uint8_t apart[kMaxBlockBytes + kReach];
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput to_end{in.grad, in.residual, in.residual_out, std::min(first + kBlock, in.n)};
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

Encoded encode_burst(const Head& head, const EncodeInput& in, std::uint8_t* out) {
  return by_residuals(in, [&](auto residual, auto residual_out)
                              HWY_ATTR { return encode_as<residual, residual_out>(head, in, out); });
}

}  // namespace
}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::inceptionn {

HWY_EXPORT(encode_burst);

Encoded encode_burst_simd(const Head& head, const EncodeInput& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode_burst)(head, in, out);
}

}  // namespace tithe::inceptionn
#endif
