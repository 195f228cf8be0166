// SPDX-License-Identifier: Apache-2.0
// Burst payloads. Encode: vectors make the values' words and join them in pairs of up to 8 bytes, which are then
// stored one behind the other. Decode: four values are one shuffle of the 16 bytes that may hold them; where the next
// four begin is known only from their tags, so four blocks are read in turn.
#include <cstring>

#include "codec/inceptionn/inceptionn.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/inceptionn/inceptionn_burst_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/inceptionn/inceptionn_simd_inl.h"

#ifndef TITHE_CODEC_INCEPTIONN_BURST_TABLES_
#define TITHE_CODEC_INCEPTIONN_BURST_TABLES_
namespace tithe::inceptionn {

// Bit j to bit 2j.
inline constexpr auto kEvenBits = [] {
  std::array<std::uint16_t, 256> table{};
  for (unsigned set = 0; set < 256; ++set)
    for (unsigned j = 0; j < 8; ++j)
      table[set] = static_cast<std::uint16_t>(table[set] | (set >> j & 1U) << (2 * j));
  return table;
}();

// By the tags of four values: which of their bytes go where in four words. A byte's sign and bits go where a half's
// are, eight bits higher. 0x80: a zero.
struct alignas(16) Places {
  std::uint8_t from[16];
};
inline constexpr auto kPlaces = [] {
  std::array<Places, 256> table{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    std::uint8_t at = 0;
    for (unsigned j = 0; j < 4; ++j) {
      const std::size_t bytes = kTagBytes[tags >> (2 * j) & 3U];
      for (std::size_t k = 0; k < 4; ++k) table[tags].from[4 * j + k] = 0x80;
      for (std::size_t k = 0; k < bytes; ++k) table[tags].from[4 * j + k + (bytes == 1 ? 1 : 0)] = at++;
    }
  }
  return table;
}();

}  // namespace tithe::inceptionn
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
namespace {

// ---- Encode

constexpr std::size_t kTwo = 2 * kGroup;

// Two groups.
struct Groups {
  std::uint64_t pair[kTwo / 2];
  std::uint64_t bytes[kTwo / 2];
  std::uint64_t low, high;  // the bits of the tags
};

#if HWY_TARGET == HWY_SCALAR  // has no pairs, and whole() no values for it
template <bool kResidual, bool kLeft>
void sort_groups(const Edges&, const Carry&, std::size_t, Groups&, Peak&) {}
#else
using Pairs = hn::RepartitionToWide<Words>;

template <bool kResidual, bool kLeft>
HWY_INLINE void sort_groups(const Edges& c, const Carry& in, std::size_t i, Groups& to, Peak& peak) {
  const Pairs d;
  const auto lower = hn::Set(d, std::uint64_t{0xffffffffU});
  const VW one = hn::Set(Words(), 1U);
  to.low = to.high = 0;
  for (std::size_t k = 0; k < kTwo; k += lanes()) {
    const Sorted s(c, take<kResidual>(in, i + k));
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
    if (kLeft) s.leave(c, in.left + i + k);
  }
}
#endif

template <bool kResidual, bool kLeft>
Taken encode_as(const Head& head, const Carry& in, std::uint8_t* HWY_RESTRICT out) {
  // A pair's store may reach 8 bytes past its end. Later groups write over that: four at least come after.
  constexpr std::size_t kAfter = 4 * kGroup;
  const Classes c = classes(head);
  const Edges edges(c);
  std::uint8_t* at = out + kHead + 2 * blocks(in.n);
  Peak peak;
  bool finite = true;
  Groups two;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry to_end{in.grad, in.residual, in.left, std::min(first + kBlock, in.n)};
    const std::uint8_t* begin = at;
    std::size_t i = first;
    for (; i + kTwo <= to_end.n && i + kTwo + kAfter <= whole(in.n); i += kTwo) {
      sort_groups<kResidual, kLeft>(edges, in, i, two, peak);
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
    }
    const Taken rest = encode_groups(c, to_end, i, at);
    at += rest.bytes;
    finite = finite && rest.finite;
    wire::put(out + kHead + 2 * (first / kBlock), static_cast<std::uint16_t>(at - begin));
  }
  return {static_cast<std::size_t>(at - out), finite && peak.finite()};
}

Taken encode_burst(const Head& head, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.left ? encode_as<true, true>(head, in, out) : encode_as<true, false>(head, in, out);
  return in.left ? encode_as<false, true>(head, in, out) : encode_as<false, false>(head, in, out);
}

// ---- Decode

#if HWY_TARGET == HWY_SCALAR
struct Units {
  explicit Units(const Classes&) {}
};
template <bool kAdd>
void decode_quad(const Units&, unsigned, const std::uint8_t*, float*) {}
#else
using Quad = hn::CappedTag<float, 4>;
using QuadInts = hn::RebindToSigned<Quad>;
using QuadWords = hn::RebindToUnsigned<Quad>;
using QuadBytes = hn::Repartition<std::uint8_t, QuadWords>;

// What four values need.
struct Units {
  HWY_INLINE explicit Units(const Classes& c)
      : narrow(hn::Set(Quad(), c.unit[0] * 0x1p-8F)),
        wide(hn::Set(Quad(), c.unit[1])),
        low_bit(hn::Shl(hn::Set(QuadWords(), 1U), hn::ShiftLeft<1>(hn::Iota(QuadWords(), 0U)))),
        high_bit(hn::ShiftLeft<1>(low_bit)) {}
  hn::Vec<Quad> narrow, wide;
  hn::Vec<QuadWords> low_bit, high_bit;  // of each value's tag
};

template <bool kAdd>
HWY_INLINE void decode_quad(const Units& u, unsigned tags, const std::uint8_t* from, float* out) {
  const auto places = hn::LoadU(QuadBytes(), kPlaces[tags].from);
  const auto code = hn::BitCast(QuadWords(), hn::TableLookupBytesOr0(hn::LoadU(QuadBytes(), from), places));
  const auto all_tags = hn::Set(QuadWords(), tags);
  const auto high = hn::TestBit(all_tags, u.high_bit);
  const auto full = hn::And(high, hn::TestBit(all_tags, u.low_bit));
  const auto sign = hn::AndNot(hn::Set(QuadWords(), 0x7fffffffU), hn::ShiftLeft<16>(code));
  const auto q = hn::BitCast(QuadInts(), hn::And(code, hn::Set(QuadWords(), 0x7fffU)));
  const auto unit = hn::IfThenElse(hn::RebindMask(Quad(), high), u.wide, u.narrow);
  const auto size = hn::Mul(hn::ConvertTo(Quad(), q), unit);
  const auto coded = hn::Or(hn::BitCast(QuadWords(), size), sign);
  const auto v = hn::BitCast(Quad(), hn::IfThenElse(full, code, coded));
  hn::StoreU(kAdd ? hn::Add(hn::LoadU(Quad(), out), v) : v, Quad(), out);
}
#endif

// `groups` groups of kCursors blocks, which begin at `at`; returns where the last block's go on.
template <std::size_t kCursors, bool kAdd>
const std::uint8_t* decode_groups(const Classes& c, std::array<const std::uint8_t*, kCursors> at,
                                  std::size_t groups, float* HWY_RESTRICT out) {
  const Units units(c);
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t k = 0; k < kCursors; ++k) {
      const unsigned tags = wire::get<std::uint16_t>(at[k]);
      const std::uint8_t* values = at[k] + 2;
      float* to = out + k * kBlock + g * kGroup;
      decode_quad<kAdd>(units, tags & 255U, values, to);
      decode_quad<kAdd>(units, tags >> 8, values + kQuadBytes[tags & 255U], to + 4);
      at[k] += group_bytes(tags);
    }
  return at[kCursors - 1];
}

constexpr std::size_t kCursors = 4;
constexpr std::size_t kStretch = kCursors * kBlock;
constexpr std::size_t kReach = 32;  // bytes that loads reach past a group
constexpr std::size_t kMostBytes = 2 * kBlock / kGroup + 4 * kBlock;

// One payload, read from stretch to stretch.
class Reader {
 public:
  Reader() = default;
  Reader(ByteView payload, std::size_t n)
      : c_(classes({static_cast<Mode>(payload[0]), static_cast<Layout>(payload[1]), payload[2]})),
        table_(payload.data() + kHead),
        at_(table_ + 2 * blocks(n)),
        end_(payload.data() + payload.size()) {}

  // Sets out[0, len) to the next values, or adds them. len is kStretch but at the end.
  template <bool kAdd>
  void next(std::size_t len, float* out) {
    if (whole(len) == kStretch) {
      std::array<const std::uint8_t*, kCursors> from;
      const std::uint8_t* p = at_;
      for (std::size_t k = 0; k < kCursors; ++k) {
        from[k] = p;
        p += wire::get<std::uint16_t>(table_ + 2 * k);
      }
      if (static_cast<std::size_t>(end_ - p) >= kReach) {
        decode_groups<kCursors, kAdd>(c_, from, kBlock / kGroup, out);
        at_ = p;
        table_ += 2 * kCursors;
        return;
      }
    }
    for (std::size_t done = 0; done < len; done += kBlock)
      block<kAdd>(std::min(kBlock, len - done), out + done);
  }

 private:
  template <bool kAdd>
  void block(std::size_t len, float* out) {
    const std::size_t bytes = wire::get<std::uint16_t>(table_);
    std::uint8_t copy[kMostBytes + kReach] = {};
    const std::uint8_t* from = at_;
    if (static_cast<std::size_t>(end_ - at_) < bytes + kReach) {
      std::memcpy(copy, at_, bytes);
      from = copy;
    }
    const std::size_t groups = whole(len) / kGroup;
    from = decode_groups<1, kAdd>(c_, {from}, groups, out);
    for (std::size_t i = groups * kGroup; i < len; i += kGroup) {
      unsigned tags = wire::get<std::uint16_t>(from);
      from += 2;
      for (std::size_t j = i; j < std::min(i + kGroup, len); ++j, tags >>= 2) {
        const float v = receive(c_, tags & 3U, from);
        out[j] = kAdd ? out[j] + v : v;
        from += kTagBytes[tags & 3U];
      }
    }
    at_ += bytes;
    table_ += 2;
  }

  Classes c_{};
  const std::uint8_t* table_ = nullptr;  // of the next block
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
};

constexpr std::size_t kAtOnce =
    64;  // payloads that are added while a stretch of the output stays in the cache

void decode_some(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  Reader readers[kAtOnce];
  for (std::size_t p = 0; p < payloads.size(); ++p) readers[p] = Reader(payloads[p], out.size());
  for (std::size_t first = 0; first < out.size(); first += kStretch) {
    const std::size_t len = std::min(kStretch, out.size() - first);
    float* to = out.data() + first;
    std::size_t p = 0;
    if (how.base == nullptr)
      readers[p++].next<false>(len, to);
    else if (how.base != out.data())
      std::memcpy(to, how.base + first, 4 * len);
    for (; p < payloads.size(); ++p) readers[p].next<true>(len, to);
    if (how.divide != 1.0F)
      for (std::size_t i = 0; i < len; ++i) to[i] /= how.divide;
  }
}

void decode_burst(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  Merge step{.base = how.base};
  for (; payloads.size() > kAtOnce; payloads = payloads.subspan(kAtOnce)) {
    decode_some(payloads.first(kAtOnce), step, out);
    step.base = out.data();
  }
  step.divide = how.divide;
  decode_some(payloads, step, out);
}

}  // namespace
}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::inceptionn {

HWY_EXPORT(encode_burst);
HWY_EXPORT(decode_burst);

Taken encode_burst_simd(const Head& head, const Carry& in, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(encode_burst)(head, in, out);
}
void decode_burst_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(decode_burst)(payloads, how, out);
}

}  // namespace tithe::inceptionn
#endif
