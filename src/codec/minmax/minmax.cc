// SPDX-License-Identifier: Apache-2.0
// minmax: 2^bits evenly spaced levels between the smallest and the largest value (the b-bit range quantiser that
// HiPress, SOSP 2021, and its language CompLL publish as "TernGrad").
//
// Layout   u8 bits, 1, 2, 4 or 8 | u8 codes in the last byte where it is not full, else 0 | f32 min | f32 max |
//          ceil(n * bits / 8) bytes of codes, the lowest bit first, 0 behind the last one
//          value = min + code * (max - min) / (2^bits - 1), in binary64 and rounded once
// HiPress' header and byte order, with its published defects mended: an encoder that skips values, one end of the byte
// for writing and the other for reading, a tail counted in levels instead of in codes.
// round=stochastic: level floor(x + u), unbiased. round=nearest: less is lost in each round; for use with feedback.
// mode=literal: as printed in HiPress (SOSP 2021, figure 5), for peers that speak it: the second byte is n mod 2^bits,
// and gap, level and value are computed in fp32, where the largest value may come back a little off. Its layout is the
// published one too; the published program's encoder is not copied, as its decoder cannot read it.
// Zero need not be a level. Two passes over memory.
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/block.h"
#include "codec/codes.h"
#include "codec/registry.h"

namespace tithe {
namespace minmax {
namespace {

enum Param : std::size_t { kBits, kRound, kMode };

constexpr std::size_t kHead = 10;
constexpr int kDrawBits = 24;

unsigned bits_of(const Settings& s) { return 1U << static_cast<unsigned>(s[kBits]); }
std::uint8_t tail_of(const Settings& s, std::size_t n) {
  return static_cast<std::uint8_t>(n % (s[kMode] != 0 ? 1U << bits_of(s) : 8 / bits_of(s)));
}
std::size_t bound(const Settings& s, std::size_t n) { return kHead + codes::bytes_for(n, bits_of(s)); }

// Real: double, or float where HiPress is meant literally.
template <typename Real>
struct Range {
  Real min;
  Real max;
  Real steps;  // levels but one

  Range(const std::uint8_t* payload, unsigned bits)
      : min(wire::get<float>(payload + 2)),
        max(wire::get<float>(payload + 6)),
        steps(static_cast<Real>((1U << bits) - 1)) {}
  Real gap() const { return (max - min) / steps; }
  float value(unsigned code) const { return static_cast<float>(min + static_cast<Real>(code) * gap()); }
  // u: 0 <= u < 1, or 1/2 for the nearest level.
  unsigned code(float v, double u) const {
    if (!(gap() > 0)) return 0;
    const Real level =
        std::floor((std::clamp(static_cast<Real>(v), min, max) - min) / gap() + static_cast<Real>(u));
    return static_cast<unsigned>(std::min(level, steps));
  }
};

Status check(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("minmax", payload.size(), bound(s, n)));
  const unsigned bits = bits_of(s);
  if (payload[0] != bits || payload[1] != tail_of(s, n))
    return {Code::kCorrupt, "minmax: other bits, or another number of codes"};
  const float min = wire::get<float>(&payload[2]);
  const float max = wire::get<float>(&payload[6]);
  if (!is_finite(min) || !is_finite(max) || min > max) return {Code::kCorrupt, "minmax: no range"};
  if (!codes::ends_clean(payload.data() + kHead, n, bits))
    return {Code::kCorrupt, "minmax: a bit past the last code"};
  return {};
}

// The smallest and the largest value, both halved where the distance between them is no float: so that no
// value is further from its level than a float can say. 0 and 0 where a value is not finite.
bool find(const Carry& in, float& min, float& max) {
  bool finite = true;
  min = max = in.n == 0 ? 0.0F : in.take(0);
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    min = std::min(min, v);
    max = std::max(max, v);
  }
  if (!finite) min = max = 0.0F;
  if (!is_finite(max - min)) {
    min /= 2;
    max /= 2;
  }
  return finite;
}

template <typename Real>
void send(const Call& call, const Carry& in, bool finite, std::uint8_t* out) {
  const unsigned bits = bits_of(call.settings);
  const bool nearest = call.settings[kRound] != 0;
  const std::uint64_t key = block::key(call);
  const Range<Real> range(out, bits);
  for (std::size_t i = 0; i < in.n; ++i) {
    const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(i)) >> (32 - kDrawBits);
    const unsigned code = finite ? range.code(in.take(i), nearest ? 0.5 : std::ldexp(draw, -kDrawBits)) : 0U;
    codes::put(out + kHead, i, bits, code);
    in.leave(i, range.value(code));
  }
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  float min = 0;
  float max = 0;
  const bool finite = find(in, min, max);
  std::fill_n(out, bound(call.settings, in.n), std::uint8_t{0});
  out[0] = static_cast<std::uint8_t>(bits_of(call.settings));
  out[1] = tail_of(call.settings, in.n);
  wire::put(out + 2, min);
  wire::put(out + 6, max);
  call.settings[kMode] != 0 ? send<float>(call, in, finite, out) : send<double>(call, in, finite, out);
  return finite;
}

template <typename Real>
void merge(unsigned bits, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [bits](ByteView p, std::size_t i) {
    return Range<Real>(p.data(), bits).value(codes::get(p.data() + kHead, i, bits));
  });
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const unsigned bits = bits_of(call.settings);
  call.settings[kMode] != 0 ? merge<float>(bits, payloads, how, out)
                            : merge<double>(bits, payloads, how, out);
}

// A value is lost by a quarter of a squared gap at most; the two ends alone hold half of the squared range.
double contraction(const Settings& s, std::size_t n) {
  const double steps = (1U << bits_of(s)) - 1;
  return static_cast<double>(n) / (2 * steps * steps) + 0x1p-20;
}

// A gap of the widest range; and what fp32 arithmetic rounds, where it is meant literally.
double error(const Settings& s, double, double largest) {
  return 2 * largest / ((1U << bits_of(s)) - 1) + (s[kMode] == 0 ? 0 : 0x1p-20 * largest);
}
bool exact_constants(const Settings& s) { return s[kMode] == 0; }

constexpr std::string_view kWidths[] = {"1", "2", "4", "8"};
constexpr std::string_view kRounds[] = {"stochastic", "nearest"};
constexpr std::string_view kModes[] = {"strict", "literal"};
constexpr ParamSpec kParams[] = {
    {"bits", 1, 0, 3, "bits per value: 2^bits levels from the smallest value to the largest", kWidths},
    {"round", 0, 0, 1, "to one of the two levels at random, unbiased, or to the nearest", kRounds},
    {"mode", 0, 0, 1, "strict rounds once; literal is HiPress' arithmetic in fp32 and its tail byte",
     kModes}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<minmax_codec, encode>,
                            .decode = block::decode<minmax_codec, decode>}};

}  // namespace
}  // namespace minmax

const Codec minmax_codec = {.id = CodecId::minmax,
                            .name = "minmax",
                            .doc = "even levels from the smallest to the largest value (HiPress' quantiser)",
                            .params = minmax::kParams,
                            .phases = minmax::kPhases,
                            .traits = {.fixed_size = true,
                                       .unbiased = true,
                                       .one_pass_feedback = false,
                                       .contraction = minmax::contraction,
                                       .error = minmax::error,
                                       .exact_constants = minmax::exact_constants},
                            .scratch = codec::no_scratch,
                            .impls = minmax::kImpls};

}  // namespace tithe
