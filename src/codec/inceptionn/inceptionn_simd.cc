// SPDX-License-Identifier: Apache-2.0
// Split payloads, block by block. Encode compresses the values of one class in a vector and appends them to the stream
// of that class, which is in the L1 cache; decode spreads them again by the tags. With AVX3_DL vectors hold 64 bytes.
#include <cstring>

#include "base/finite.h"
#include "codec/inceptionn/inceptionn.h"
#include "codec/shared/common/kernels.h"
#include "codec/shared/common/payload.h"

#define HWY_WANT_AVX3_DL  // compresses bytes
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/inceptionn/inceptionn_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/inceptionn/inceptionn_simd_inl.h"
#include "codec/shared/common/compress_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::inceptionn::HWY_NAMESPACE {
namespace {

using Halves = hn::Rebind<std::uint16_t, Floats>;
using Quarters = hn::Rebind<std::uint8_t, Floats>;

constexpr std::size_t kWord = 64;  // values per pair of 64-bit tag words

HWY_INLINE Mask mask_of(std::uint64_t set) {
  std::uint8_t room[8];
  wire::put(room, set);
  return hn::LoadMaskBits(Words(), room);
}

// ---- Encode

// The values of a block, by class. A vector's store may reach past the last value.
struct Streams {
  std::uint8_t bytes[kBlock + 64];
  std::uint16_t halves[kBlock + 32];
  std::uint32_t words[kBlock + 16];
};

// The number of values of each class. Not a member of Streams, so that a store to a stream does not reload it.
struct Counts {
  std::size_t bytes = 0;
  std::size_t halves = 0;
  std::size_t words = 0;
};

// Appends one vector to the streams; returns the two bits of the tags in low and high.
template <bool kResidual, bool kResidualOut>
HWY_INLINE void encode_vector(const Edges& c, const EncodeInput& in, std::size_t i, Streams& to,
                              Counts& count, Peak& peak, std::uint64_t& low, std::uint64_t& high) {
  const Classified s(c, load_value<kResidual>(in, i));
  const std::uint64_t is_wide = bits_of(s.wide);
  const std::uint64_t is_full = bits_of(s.full);
  const std::uint64_t is_byte = bits_of(s.some) & ~is_wide;
  const std::uint64_t is_half = is_wide & ~is_full;
  low = is_byte | is_full;
  high = is_wide;

  const auto bits32 = [](std::uint64_t set) { return static_cast<std::uint32_t>(set); };
  const VW byte =
      compress(Words(), hn::Or(s.q, hn::ShiftRight<24>(s.sign)), hn::AndNot(s.wide, s.some), bits32(is_byte));
  hn::StoreU(hn::TruncateTo(Quarters(), byte), Quarters(), to.bytes + count.bytes);
  count.bytes += static_cast<std::size_t>(std::popcount(is_byte));
  const VW half =
      compress(Words(), hn::Or(s.q, hn::ShiftRight<16>(s.sign)), hn::AndNot(s.full, s.wide), bits32(is_half));
  hn::StoreU(hn::TruncateTo(Halves(), half), Halves(), to.halves + count.halves);
  count.halves += static_cast<std::size_t>(std::popcount(is_half));
  if (is_full != 0) {
    peak.see(s.mag);
    hn::StoreU(compress(Words(), bits(s.taken), s.full, bits32(is_full)), Words(), to.words + count.words);
    count.words += static_cast<std::size_t>(std::popcount(is_full));
  }
  if (kResidualOut) s.store_residual(c, in.residual_out + i);
}

// Appends 64 values; returns the two bits of the tags in low and high.
#if HWY_TARGET == HWY_AVX3_DL
template <bool kResidual, bool kResidualOut>
HWY_INLINE void encode_word(const ByteEdges& c, const EncodeInput& in, std::size_t i, Streams& to,
                            Counts& count, Peak& peak, std::uint64_t& low, std::uint64_t& high) {
  VF v[4];
  for (std::size_t k = 0; k < 4; ++k) v[k] = load_value<kResidual>(in, i + 16 * k);
  const Shorts d;
  const auto upper01 = upper_halves(v[0], v[1]), upper23 = upper_halves(v[2], v[3]);
  // Classes start at powers of two, so the exponent, a byte, gives the class.
  const auto exponent = upper_bytes(hn::Add(upper01, upper01), hn::Add(upper23, upper23));
  const std::uint64_t some = hn::Gt(exponent, c.exponent_below[0]).raw;
  const std::uint64_t wide = hn::Gt(exponent, c.exponent_below[1]).raw;
  const std::uint64_t full = hn::Gt(exponent, c.exponent_below[2]).raw;
  const std::uint64_t is_byte = some & ~wide;
  const std::uint64_t is_half = wide & ~full;
  low = is_byte | full;
  high = wide;

  const auto q01 = lower_halves(raise(v[0], c.raise[0]), raise(v[1], c.raise[0]));
  const auto q23 = lower_halves(raise(v[2], c.raise[0]), raise(v[3], c.raise[0]));
  const auto byte =
      hn::IfVecThenElse(hn::Set(Octets(), 0x80), upper_bytes(upper01, upper23), lower_bytes(q01, q23));
  _mm512_storeu_si512(to.bytes + count.bytes, _mm512_maskz_compress_epi8(is_byte, byte.raw));
  count.bytes += static_cast<std::size_t>(std::popcount(is_byte));
  for (std::size_t k = 0; k < 4 && is_half != 0; k += 2) {
    const auto q = lower_halves(raise(v[k], c.raise[1]), raise(v[k + 1], c.raise[1]));
    const auto half = hn::IfVecThenElse(hn::Set(d, 0x8000), k == 0 ? upper01 : upper23, q);
    const auto set = static_cast<std::uint32_t>(is_half >> (16 * k));
    _mm512_storeu_si512(to.halves + count.halves, _mm512_maskz_compress_epi16(set, half.raw));
    count.halves += static_cast<std::size_t>(std::popcount(set));
  }
  for (std::size_t k = 0; k < 4 && full != 0; ++k) {
    peak.see(magnitude(v[k]));
    const auto set = static_cast<std::uint16_t>(full >> (16 * k));
    _mm512_storeu_si512(to.words + count.words, _mm512_maskz_compress_epi32(set, bits(v[k]).raw));
    count.words += static_cast<std::size_t>(std::popcount(set));
  }
  for (std::size_t k = 0; k < 4 && kResidualOut; ++k) store_residual(c, v[k], in.residual_out + i + 16 * k);
}
#else
template <bool kResidual, bool kResidualOut>
HWY_INLINE void encode_word(const ByteEdges& c, const EncodeInput& in, std::size_t i, Streams& to,
                            Counts& count, Peak& peak, std::uint64_t& low, std::uint64_t& high) {
  low = high = 0;
  for (std::size_t k = 0; k < kWord; k += lanes()) {
    std::uint64_t bit[2];
    encode_vector<kResidual, kResidualOut>(c, in, i + k, to, count, peak, bit[0], bit[1]);
    low |= bit[0] << k;
    high |= bit[1] << k;
  }
}
#endif

HWY_INLINE void encode_value(const Classes& c, const EncodeInput& in, std::size_t i, Streams& to,
                             Counts& count, bool& finite, std::uint8_t* low, std::uint8_t* high) {
  const float v = in.value(i);
  const CodedValue s = send(c, v);
  low[i / 8] = static_cast<std::uint8_t>(low[i / 8] | (s.tag & 1U) << (i % 8));
  high[i / 8] = static_cast<std::uint8_t>(high[i / 8] | (s.tag >> 1) << (i % 8));
  if (s.tag == 1) to.bytes[count.bytes++] = static_cast<std::uint8_t>(s.word);
  if (s.tag == 2) to.halves[count.halves++] = static_cast<std::uint16_t>(s.word);
  if (s.tag == 3) to.words[count.words++] = s.word;
  finite = finite && is_finite(v);
  in.store_residual(i, s.value);
}

// Split payloads: bytes, halves and words of a block are collected in three streams and appended at its end. Values
// after the last whole group of kWord take the scalar path.
template <bool kResidual, bool kResidualOut>
Encoded encode_as(const Head& head, const EncodeInput& in, std::uint8_t* HWY_RESTRICT out) {
  const Classes c = classes(head);
  const ByteEdges edges(c);
  const std::size_t plane = plane_bytes(in.n);
  std::uint8_t* low = out + kHead;
  std::uint8_t* high = low + plane;
  std::uint8_t* at = high + plane;
  const std::size_t words = whole(in.n) / kWord * kWord;
  std::memset(low + words / 8, 0, plane - words / 8);
  std::memset(high + words / 8, 0, plane - words / 8);
  bool finite = true;
  Peak peak;
  Streams to;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const std::size_t end = std::min(first + kBlock, in.n);
    Counts count;
    std::size_t i = first;
    for (; i + kWord <= std::min(end, words); i += kWord) {
      std::uint64_t tags[2];
      prefetch_ahead<kResidual>(in, i, kWord);
      encode_word<kResidual, kResidualOut>(edges, in, i, to, count, peak, tags[0], tags[1]);
      wire::put(low + i / 8, tags[0]);
      wire::put(high + i / 8, tags[1]);
    }
    for (; i < end; ++i) encode_value(c, in, i, to, count, finite, low, high);
    std::memcpy(at, to.bytes, count.bytes);
    at += count.bytes;
    std::memcpy(at, to.halves, 2 * count.halves);
    at += 2 * count.halves;
    std::memcpy(at, to.words, 4 * count.words);
    at += 4 * count.words;
  }
  return {static_cast<std::size_t>(at - out), finite && peak.finite()};
}

Encoded encode_split(const Head& head, const EncodeInput& in, std::uint8_t* out) {
  return by_residuals(in, [&](auto residual, auto residual_out)
                              HWY_ATTR { return encode_as<residual, residual_out>(head, in, out); });
}

// ---- Decode

enum class Put { kSet, kAdd, kPastCaches };

// The next value of each class.
struct Cursors {
  const std::uint8_t* bytes;
  const std::uint8_t* halves;
  const std::uint8_t* words;
};

// Reads one payload, block by block.
class Reader {
 public:
  Reader() = default;
  Reader(ByteView payload, std::size_t n)
      : c_(classes({static_cast<Mode>(payload[0]), static_cast<Layout>(payload[1]), payload[2]})),
        split_(payload.data(), n),
        at_(split_.values),
        end_(payload.data() + payload.size()) {}

  // Sets out[0, len) to the values from `first` on, or adds them. Prefetches len values at `next_base`.
  template <Put kPut>
  void block(std::size_t first, std::size_t len, float* HWY_RESTRICT out, const float* next_base) {
    const std::size_t words = whole(len) / kWord;
    std::size_t count[4] = {};  // by tag
    for (std::size_t w = 0; w < words; ++w) {
      const auto low = wire::get<std::uint64_t>(split_.low + first / 8 + 8 * w);
      const auto high = wire::get<std::uint64_t>(split_.high + first / 8 + 8 * w);
      count[1] += static_cast<std::size_t>(std::popcount(low & ~high));
      count[2] += static_cast<std::size_t>(std::popcount(high & ~low));
      count[3] += static_cast<std::size_t>(std::popcount(high & low));
    }
    for (std::size_t i = first + words * kWord; i < first + len; ++i) ++count[split_.tag(i)];
    const std::size_t bytes = count[1] + 2 * count[2] + 4 * count[3];
    const std::uint8_t* from = at_;
    std::uint8_t last[4 * kBlock + kReach];  // a copy of the last blocks, with room to read past their end
    if (static_cast<std::size_t>(end_ - at_) < bytes + kReach) {
      std::memcpy(last, at_, bytes);
      std::memset(last + bytes, 0, kReach);
      from = last;
    }
    at_ += bytes;
    Cursors next{from, from + count[1], from + count[1] + 2 * count[2]};
    const VF narrow = hn::Set(Floats(), c_.unit[0] * 0x1p-8F);
    const VF wide = hn::Set(Floats(), c_.unit[1]);
    for (std::size_t w = 0; w < words; ++w) {
      const auto low = wire::get<std::uint64_t>(split_.low + first / 8 + 8 * w);
      const auto high = wire::get<std::uint64_t>(split_.high + first / 8 + 8 * w);
      for (std::size_t k = 0; k < kWord && next_base != nullptr; k += 16)
        hwy::Prefetch(next_base + w * kWord + k);
      for (std::size_t k = 0; k < kWord; k += lanes())
        vector<kPut>(low >> k & kLaneBits, high >> k & kLaneBits, narrow, wide, next, out + w * kWord + k);
    }
    for (std::size_t i = words * kWord; i < len; ++i) {
      const unsigned tag = split_.tag(first + i);
      const std::uint8_t* const at[4] = {from, next.bytes, next.halves, next.words};
      const float v = receive(c_, tag, at[tag]);
      out[i] = kPut == Put::kAdd ? out[i] + v : v;
      if (tag == 1) next.bytes += 1;
      if (tag == 2) next.halves += 2;
      if (tag == 3) next.words += 4;
    }
  }

 private:
  static constexpr std::size_t kReach = 64;  // bytes that loads read past those they use
  static constexpr std::uint64_t kLaneBits = (std::uint64_t{1} << hn::MaxLanes(Floats())) - 1;

  template <Put kPut>
  static HWY_INLINE void vector(std::uint64_t low, std::uint64_t high, VF narrow, VF wide, Cursors& next,
                                float* out) {
    const std::uint64_t is_byte = low & ~high;
    const std::uint64_t is_half = high & ~low;
    const std::uint64_t is_whole = low & high;
    // An 8-bit value is decoded as a 16-bit one, eight bits higher; so its unit is multiplied by 2^-8.
    const VW byte = hn::PromoteTo(Words(), hn::LoadU(Quarters(), next.bytes));
    const VW half =
        hn::PromoteTo(Words(), hn::LoadU(Halves(), reinterpret_cast<const std::uint16_t*>(next.halves)));
    next.bytes += std::popcount(is_byte);
    next.halves += 2 * std::popcount(is_half);
    const VW code = hn::Or(spread(Words(), hn::ShiftLeft<8>(byte), is_byte), spread(Words(), half, is_half));
    const VW sign = hn::AndNot(hn::Set(Words(), 0x7fffffffU), hn::ShiftLeft<16>(code));
    const VW q = hn::And(code, hn::Set(Words(), 0x7fffU));
    const VF unit = hn::IfThenElse(hn::RebindMask(Floats(), mask_of(high)), wide, narrow);
    const VF size = hn::Mul(hn::ConvertTo(Floats(), hn::BitCast(Ints(), q)), unit);
    VW v = hn::Or(bits(size), sign);
    if (is_whole != 0) {
      const VW word = hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(next.words));
      v = hn::IfThenElse(mask_of(is_whole), spread(Words(), word, is_whole), v);
      next.words += 4 * std::popcount(is_whole);
    }
    store(kPut == Put::kAdd ? hn::Add(load(out), from_bits(v)) : from_bits(v), out, kPut == Put::kPastCaches);
  }

  Classes c_{};
  Split split_;
  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_ = nullptr;
};

// Merges up to kAtOnce payloads: a block of the output stays in the L1 cache until all are added.
constexpr std::size_t kAtOnce = 64;

// Block by block over all payloads, so that the sums stay in the cache between payloads.
void decode_some(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  Reader readers[kAtOnce];
  for (std::size_t p = 0; p < payloads.size(); ++p) readers[p] = Reader(payloads[p], out.size());
  const VF divide = hn::Set(Floats(), how.divide);
  const bool non_temporal = payloads.size() == 1 && how.divide == 1.0F && uses_non_temporal_stores(how, out);
  for (std::size_t first = 0; first < out.size(); first += kBlock) {
    const std::size_t len = std::min(kBlock, out.size() - first);
    float* to = out.data() + first;
    std::size_t p = 0;
    if (how.base == nullptr)
      non_temporal ? readers[p++].block<Put::kPastCaches>(first, len, to, nullptr)
                   : readers[p++].block<Put::kSet>(first, len, to, nullptr);
    else if (how.base != out.data())
      std::memcpy(to, how.base + first, 4 * len);
    const bool base_continues = how.base != nullptr && out.size() - first >= 2 * kBlock;
    for (; p < payloads.size(); ++p)
      readers[p].block<Put::kAdd>(first, len, to,
                                  base_continues && p == 0 ? how.base + first + kBlock : nullptr);
    if (how.divide == 1.0F) continue;
    std::size_t i = 0;
    for (; i < whole(len); i += lanes()) hn::StoreU(hn::Div(load(to + i), divide), Floats(), to + i);
    for (; i < len; ++i) to[i] /= how.divide;
  }
  if (non_temporal) hwy::FlushStream();
}

void decode_split(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_in_groups(kAtOnce, payloads, how, out, decode_some);
}

std::size_t value_bytes(const std::uint8_t* low, const std::uint8_t* high, std::size_t plane) {
  std::size_t bytes = 0;
  std::size_t i = 0;
  for (; i + 8 <= plane; i += 8) {
    const auto l = wire::get<std::uint64_t>(low + i);
    const auto h = wire::get<std::uint64_t>(high + i);
    bytes += static_cast<std::size_t>(std::popcount(l) + 2 * std::popcount(h) + std::popcount(l & h));
  }
  for (std::size_t k = 8 * i; k < 8 * plane; ++k) bytes += kTagBytes[bit_at(low, k) | bit_at(high, k) << 1];
  return bytes;
}

}  // namespace
}  // namespace tithe::inceptionn::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::inceptionn {
TITHE_EXPORT(value_bytes)
TITHE_EXPORT(encode_split)
TITHE_EXPORT(decode_split)
const Kernels kSimd = {TITHE_KERNEL(value_bytes), TITHE_KERNEL(encode_split),
                       .encode_burst = encode_burst_simd, TITHE_KERNEL(decode_split),
                       .decode_burst = decode_burst_simd};
}  // namespace tithe::inceptionn
#endif
