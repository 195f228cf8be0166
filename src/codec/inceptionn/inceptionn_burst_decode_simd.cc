// SPDX-License-Identifier: Apache-2.0
// Burst payloads: decode. One shuffle decodes four values from the 16 bytes that may hold them; with AVX3_DL one expand
// instruction decodes eight. The offset of the next group depends on the tags, so four blocks are decoded in turn.
#include <cstring>

#include "codec/inceptionn/inceptionn.h"
#include "codec/shared/common/payload.h"

#define HWY_WANT_AVX3_DL  // expands bytes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/inceptionn/inceptionn_burst_decode_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/inceptionn/inceptionn_simd_inl.h"

#ifndef TITHE_CODEC_INCEPTIONN_BURST_TABLES_
#define TITHE_CODEC_INCEPTIONN_BURST_TABLES_
namespace tithe::inceptionn {

// By the tags of four values: the shuffle that moves their bytes to the ends of four words, so that their signs are
// where a float has its sign. 0x80: a zero byte.
struct alignas(16) Shuffle {
  std::uint8_t from[16];
};
inline constexpr auto kShuffles = [] {
  std::array<Shuffle, 256> table{};
  for (unsigned tags = 0; tags < 256; ++tags) {
    std::uint8_t at = 0;
    for (unsigned j = 0; j < 4; ++j) {
      const std::size_t bytes = kTagBytes[tags >> (2 * j) & 3U];
      for (std::size_t k = 0; k < 4; ++k) table[tags].from[4 * j + k] = 0x80;
      for (std::size_t k = 0; k < bytes; ++k) table[tags].from[4 * j + 4 - bytes + k] = at++;
    }
  }
  return table;
}();

}  // namespace tithe::inceptionn
#endif

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
namespace {

enum class Put { kSet, kAdd, kPastCaches };

#if HWY_TARGET == HWY_SCALAR
struct Units {
  explicit Units(const Classes&) {}
};
template <Put kPut>
void decode_two(const Units&, const std::uint8_t*, const std::uint8_t*, float*) {}
#else
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX2
// A table indexed by a value's tag, in each part of a vector that has 128 bits.
HWY_INLINE VW by_tag(std::uint32_t t1, std::uint32_t t2, std::uint32_t t3) {
  HWY_ALIGN const std::uint32_t all[4] = {0, t1, t2, t3};
  return hn::LoadDup128(Words(), all);
}
// The value of a unit of each tag's code, where the code's sign is that of its word.
HWY_INLINE VW units_of(const Classes& c) {
  return by_tag(std::bit_cast<std::uint32_t>(c.unit[0] * 0x1p-24F),
                std::bit_cast<std::uint32_t>(c.unit[1] * 0x1p-16F), 0);
}
#endif

#if HWY_TARGET == HWY_AVX3_DL
struct Units {
  HWY_INLINE explicit Units(const Classes& c)
      : unit(units_of(c)),
        bytes(by_tag(0xff000000, 0xffff0000, 0xffffffff)),
        tag_at(hn::And(hn::ShiftLeft<1>(hn::Iota(Words(), 0U)), hn::Set(Words(), 15U))),
        tags_between(hn::IfThenElseZero(hn::Eq(hn::Iota(Words(), 0U), hn::Set(Words(), 8U)),
                                        hn::Set(Words(), 0xffffU))) {}
  VW unit, bytes, tag_at, tags_between;
};

// Decodes two groups, at `from` and at `next`. An 8-bit value becomes the top byte of its word, a 16-bit value the
// upper half: their signs are where a float has its sign.
template <Put kPut>
HWY_INLINE void decode_two(const Units& u, const std::uint8_t* from, const std::uint8_t* next, float* out) {
  const auto load_tags = [](const std::uint8_t* p) HWY_ATTR { return wire::get<std::int32_t>(p); };
  const __m512i all_tags =
      _mm512_mask_set1_epi32(_mm512_set1_epi32(load_tags(from)), 0xff00, load_tags(next));
  const VW tag = hn::Shr(VW{all_tags}, u.tag_at);
  const auto pick = [tag](VW table) HWY_ATTR {
    return VW{_mm512_castps_si512(_mm512_permutevar_ps(_mm512_castsi512_ps(table.raw), tag.raw))};
  };
  const VW sent_bytes = pick(u.bytes);
  VW code;
  if (HWY_LIKELY((next[0] & 3) != 3)) {
    const __mmask64 which = _mm512_movepi8_mask(hn::Or(sent_bytes, u.tags_between).raw);
    code = VW{_mm512_maskz_expand_epi8(which, _mm512_loadu_si512(from + 2))};
  } else {
    const __mmask64 which = _mm512_movepi8_mask(sent_bytes.raw);
    const auto spread = [](std::uint64_t to, const std::uint8_t* bytes) HWY_ATTR {
      return _mm256_maskz_expand_epi8(static_cast<__mmask32>(to),
                                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)));
    };
    code = VW{_mm512_inserti64x4(_mm512_castsi256_si512(spread(which, from + 2)),
                                 spread(which >> 32, next + 2), 1)};
  }
  const VF q = hn::ConvertTo(Floats(), hn::BitCast(Ints(), hn::And(code, hn::Set(Words(), 0x7fff0000U))));
  const VW coded =
      hn::IfVecThenElse(hn::Set(Words(), 0x80000000U), code, bits(hn::Mul(q, from_bits(pick(u.unit)))));
  const Mask full{_mm512_test_epi32_mask(sent_bytes.raw, _mm512_set1_epi32(1))};
  const VF v = from_bits(hn::IfThenElse(full, code, coded));
  store(kPut == Put::kAdd ? hn::Add(load(out), v) : v, out, kPut == Put::kPastCaches);
}
#else
#if HWY_TARGET == HWY_AVX2
struct Units {
  HWY_INLINE explicit Units(const Classes& c)
      : unit(units_of(c)),
        kept(by_tag(0x80000000U, 0x80000000U, 0xffffffffU)),
        tag_at(hn::ShiftLeft<1>(hn::Iota(Words(), 0U))) {}
  VW unit, kept, tag_at;  // kept: mask of the bits of a code that belong to the value
};

template <Put kPut>
HWY_INLINE void decode_group(const Units& u, const std::uint8_t* from, float* out) {
  const hn::Full128<std::uint8_t> half;
  const hn::Full256<std::uint8_t> d;
  const unsigned first = from[0], second = from[1];
  const auto shuffle =
      hn::Combine(d, hn::Load(half, kShuffles[second].from), hn::Load(half, kShuffles[first].from));
  const auto sent = hn::Combine(d, hn::LoadU(half, from + 2 + kQuadBytes[first]), hn::LoadU(half, from + 2));
  const VW code = hn::BitCast(Words(), hn::TableLookupBytesOr0(sent, shuffle));
  const VW tag = hn::Shr(hn::Set(Words(), first | second << 8), u.tag_at);
  const auto pick = [tag](VW table) HWY_ATTR {
    return VW{_mm256_castps_si256(_mm256_permutevar_ps(_mm256_castsi256_ps(table.raw), tag.raw))};
  };
  const VF q = hn::ConvertTo(Floats(), hn::BitCast(Ints(), hn::And(code, hn::Set(Words(), 0x7fff0000U))));
  const VW size = bits(hn::Mul(q, from_bits(pick(u.unit))));  // 0 for a value of 32 bits
  const VF v = from_bits(hn::Or(size, hn::And(code, pick(u.kept))));
  store(kPut == Put::kAdd ? hn::Add(load(out), v) : v, out, kPut == Put::kPastCaches);
}
#else
using Quad = hn::CappedTag<float, 4>;
using QuadInts = hn::RebindToSigned<Quad>;
using QuadWords = hn::RebindToUnsigned<Quad>;
using QuadBytes = hn::Repartition<std::uint8_t, QuadWords>;

// The constants for four values.
struct Units {
  HWY_INLINE explicit Units(const Classes& c)
      : narrow(hn::Set(Quad(), c.unit[0] * 0x1p-24F)),
        wide(hn::Set(Quad(), c.unit[1] * 0x1p-16F)),
        low_bit(hn::Shl(hn::Set(QuadWords(), 1U), hn::ShiftLeft<1>(hn::Iota(QuadWords(), 0U)))),
        high_bit(hn::ShiftLeft<1>(low_bit)) {}
  hn::Vec<Quad> narrow, wide;
  hn::Vec<QuadWords> low_bit, high_bit;  // of each value's tag
};

template <Put kPut>
HWY_INLINE void decode_quad(const Units& u, unsigned tags, const std::uint8_t* from, float* out) {
  const auto shuffle = hn::LoadU(QuadBytes(), kShuffles[tags].from);
  const auto code = hn::BitCast(QuadWords(), hn::TableLookupBytesOr0(hn::LoadU(QuadBytes(), from), shuffle));
  const auto all_tags = hn::Set(QuadWords(), tags);
  const auto high = hn::TestBit(all_tags, u.high_bit);
  const auto full = hn::And(high, hn::TestBit(all_tags, u.low_bit));
  const auto sign = hn::AndNot(hn::Set(QuadWords(), 0x7fffffffU), code);
  const auto q = hn::BitCast(QuadInts(), hn::And(code, hn::Set(QuadWords(), 0x7fff0000U)));
  const auto unit = hn::IfThenElse(hn::RebindMask(Quad(), high), u.wide, u.narrow);
  const auto size = hn::Mul(hn::ConvertTo(Quad(), q), unit);
  const auto coded = hn::Or(hn::BitCast(QuadWords(), size), sign);
  const auto v = hn::BitCast(Quad(), hn::IfThenElse(full, code, coded));
  hn::StoreU(kPut == Put::kAdd ? hn::Add(hn::LoadU(Quad(), out), v) : v, Quad(), out);
}

template <Put kPut>
HWY_INLINE void decode_group(const Units& u, const std::uint8_t* from, float* out) {
  decode_quad<kPut>(u, from[0], from + 2, out);
  decode_quad<kPut>(u, from[1], from + 2 + kQuadBytes[from[0]], out + 4);
}
#endif
template <Put kPut>
HWY_INLINE void decode_two(const Units& u, const std::uint8_t* from, const std::uint8_t* next, float* out) {
  decode_group<kPut>(u, from, out);
  decode_group<kPut>(u, next, out + kGroup);
}
#endif
#endif

HWY_INLINE const std::uint8_t* behind(const std::uint8_t* group) {
  return group + 2U + kQuadBytes[group[0]] + kQuadBytes[group[1]];
}

// Decodes `values` values of each of kCursors blocks, which start at `at`; returns the end of the last block's.
template <std::size_t kCursors, Put kPut>
const std::uint8_t* decode_groups(const Classes& c, std::array<const std::uint8_t*, kCursors> at,
                                  std::size_t values, float* HWY_RESTRICT out) {
  const Units units(c);
  for (std::size_t i = 0; i < values; i += 2 * kGroup)
    for (std::size_t k = 0; k < kCursors; ++k) {
      const std::uint8_t* next = behind(at[k]);
      decode_two<kPut>(units, at[k], next, out + k * kBlock + i);
      at[k] = behind(next);
    }
  return at[kCursors - 1];
}

// Decodes `values` values of groups whose bytes are known.
template <Put kPut>
void decode_listed(const Classes& c, const std::uint8_t* from, const std::uint8_t* HWY_RESTRICT lengths,
                   std::size_t values, float* HWY_RESTRICT out) {
  const Units units(c);
  for (std::size_t i = 0; i < values; i += 2 * kGroup, lengths += 2) {
    const std::uint8_t* next = from + lengths[0];
    decode_two<kPut>(units, from, next, out + i);
    from = next + lengths[1];
  }
}

constexpr std::size_t kCursors = 4;
constexpr std::size_t kStretch = kCursors * kBlock;
constexpr std::size_t kReach = 64;  // bytes that loads read past a group

// Reads one payload, stretch by stretch.
class Reader {
 public:
  Reader() = default;
  Reader(ByteView payload, std::size_t n, const std::uint8_t* lengths)
      : c_(classes({static_cast<Mode>(payload[0]), static_cast<Layout>(payload[1]), payload[2]})),
        table_(payload.data() + kHead),
        at_(table_ + 2 * blocks(n)),
        end_(payload.data() + payload.size()),
        lengths_(lengths) {}

  // Sets out[0, len) to the next values, or adds them. len is kStretch, except at the end.
  template <Put kPut>
  void next(std::size_t len, float* out) {
    if (whole(len) == kStretch) {
      std::array<const std::uint8_t*, kCursors> from;
      const std::uint8_t* p = at_;
      for (std::size_t k = 0; k < kCursors; ++k) {
        from[k] = p;
        p += wire::get<std::uint16_t>(table_ + 2 * k);
      }
      if (static_cast<std::size_t>(end_ - p) >= kReach) {
        if (lengths_) {
          decode_listed<kPut>(c_, at_, lengths_, kStretch, out);
          lengths_ += kStretch / kGroup;
        } else {
          decode_groups<kCursors, kPut>(c_, from, kBlock, out);
        }
        at_ = p;
        table_ += 2 * kCursors;
        return;
      }
    }
    for (std::size_t done = 0; done < len; done += kBlock)
      block<kPut>(std::min(kBlock, len - done), out + done);
  }

 private:
  // Vector loads read up to kReach bytes past the block, so a block near the payload's end is decoded from a padded
  // copy.
  template <Put kPut>
  void block(std::size_t len, float* out) {
    const std::size_t bytes = wire::get<std::uint16_t>(table_);
    std::uint8_t copy[kMaxBlockBytes + kReach] = {};
    const std::uint8_t* from = at_;
    if (static_cast<std::size_t>(end_ - at_) < bytes + kReach) {
      std::memcpy(copy, at_, bytes);
      from = copy;
    }
    const std::size_t values = whole(len) / (2 * kGroup) * (2 * kGroup);
    from = decode_groups<1, kPut>(c_, {from}, values, out);
    for (std::size_t i = values; i < len; i += kGroup) {
      unsigned tags = wire::get<std::uint16_t>(from);
      from += 2;
      for (std::size_t j = i; j < std::min(i + kGroup, len); ++j, tags >>= 2) {
        const float v = receive(c_, tags & 3U, from);
        out[j] = kPut == Put::kAdd ? out[j] + v : v;
        from += kTagBytes[tags & 3U];
      }
    }
    at_ += bytes;
    table_ += 2;
  }

  Classes c_{};
  const std::uint8_t* table_ = nullptr;  // entry of the next block in the table of block sizes
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
  // Bytes of the groups from at_ on, if known; for all stretches before the last, or for none.
  const std::uint8_t* lengths_ = nullptr;
};

constexpr std::size_t kAtOnce = 64;  // payloads merged while a stretch of the output stays in the cache

void decode_some(std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                 const std::uint8_t* lengths) {
  Reader readers[kAtOnce];
  for (std::size_t p = 0; p < payloads.size(); ++p) readers[p] = Reader(payloads[p], out.size(), lengths);
  const bool non_temporal = payloads.size() == 1 && how.divide == 1.0F && uses_non_temporal_stores(how, out);
  for (std::size_t first = 0; first < out.size(); first += kStretch) {
    const std::size_t len = std::min(kStretch, out.size() - first);
    float* to = out.data() + first;
    std::size_t p = 0;
    if (how.base == nullptr)
      non_temporal ? readers[p++].next<Put::kPastCaches>(len, to) : readers[p++].next<Put::kSet>(len, to);
    else if (how.base != out.data())
      std::memcpy(to, how.base + first, 4 * len);
    for (; p < payloads.size(); ++p) readers[p].next<Put::kAdd>(len, to);
    if (how.divide != 1.0F)
      for (std::size_t i = 0; i < len; ++i) to[i] /= how.divide;
  }
  if (non_temporal) hwy::FlushStream();
}

void decode_burst(std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                  const std::uint8_t* lengths) {
  codec::merge_in_groups(kAtOnce, payloads, how, out,
                         [&](std::span<const ByteView> some, const Merge& step, std::span<float> to) {
                           decode_some(some, step, to, lengths);
                         });
}

}  // namespace
}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::inceptionn {

HWY_EXPORT(decode_burst);

void decode_burst_simd(std::span<const ByteView> payloads, const Merge& how, std::span<float> out,
                       const std::uint8_t* lengths) {
  HWY_DYNAMIC_DISPATCH(decode_burst)(payloads, how, out, lengths);
}

}  // namespace tithe::inceptionn
#endif
