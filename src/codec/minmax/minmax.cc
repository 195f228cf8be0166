// SPDX-License-Identifier: Apache-2.0
#include "codec/minmax/minmax.h"

namespace tithe {
namespace minmax {
namespace {

std::uint8_t tail_of(const Settings& s, std::size_t n) {
  return static_cast<std::uint8_t>(n % (literal(s) ? 1U << bits_of(s) : 8 / bits_of(s)));
}
std::size_t bound(const Settings& s, std::size_t n) { return kHead + bit_packing::bytes_for(n, bits_of(s)); }

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("minmax", payload.size(), bound(call.settings, n)));
  const unsigned bits = bits_of(call.settings);
  if (payload[0] != bits || payload[1] != tail_of(call.settings, n))
    return {Code::kCorrupt, "minmax: other bits, or another number of codes"};
  const float min = wire::get<float>(&payload[2]);
  const float max = wire::get<float>(&payload[6]);
  if (!is_finite(min) || !is_finite(max) || min > max) return {Code::kCorrupt, "minmax: no range"};
  if (!bit_packing::ends_clean(payload.data() + kHead, n, bits))
    return {Code::kCorrupt, "minmax: a bit past the last code"};
  return {};
}

// If an end is 0, it has the sign of the first zero.
Ends find(const EncodeInput& in) {
  if (in.n == 0) return {};
  Ends ends{in.value(0), in.value(0)};
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.value(i);
    if (!is_finite(v)) return {.finite = false};
    ends.min = std::min(ends.min, v);
    ends.max = std::max(ends.max, v);
  }
  return ends;
}

// If a value is not finite, the range is empty and every code is 0.
bool encode_ref(const Call& call, const EncodeInput& in, std::uint8_t* out) {
  const Ends ends = find(in);
  std::fill_n(out, bound(call.settings, in.n), std::uint8_t{0});
  put_head(call.settings, in.n, ends, out);
  literal(call.settings) ? send_from<float>(0, call, in, out) : send_from<double>(0, call, in, out);
  return ends.finite;
}

void decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                std::span<float> out) {
  const unsigned bits = bits_of(call.settings);
  literal(call.settings) ? decode_from<float>(0, bits, payloads, how, out)
                         : decode_from<double>(0, bits, payloads, how, out);
}

// The squared error of a value is at most a quarter of the squared gap; the energy of the two ends alone is at least
// half of the squared range.
double contraction(const Settings& s, std::size_t n) {
  const double steps = (1U << bits_of(s)) - 1;
  return static_cast<double>(n) / (2 * steps * steps) + 0x1p-20;
}

// A gap of the widest range, or half of it where values go to the nearest level; fp32 arithmetic adds its rounding in
// literal mode.
double error(const Settings& s, double, double largest) {
  const double gaps = s[kRound] != 0 ? 1 : 2;
  return gaps * largest / ((1U << bits_of(s)) - 1) + (literal(s) ? 0x1p-20 * largest : 0);
}
bool exact_constants(const Settings& s) { return !literal(s); }

constexpr std::string_view kWidths[] = {"1", "2", "4", "8"};
constexpr std::string_view kRounds[] = {"stochastic", "nearest"};
constexpr std::string_view kModes[] = {"strict", "literal"};
constexpr ParamSpec kParams[] = {
    {"bits", 1, 0, 3, "bits per value: 2^bits levels from the smallest value to the largest", kWidths},
    {"round", 0, 0, 1, "rounding to one of the two levels at random, unbiased, or to the nearest", kRounds},
    {"mode", 0, 0, 1, "strict rounds once; literal: HiPress' arithmetic in fp32 and its tail byte", kModes}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<minmax_codec, check, kSimd>),
                           codec::reference(block::kImpl<minmax_codec, check, kReference>)};

}  // namespace

void put_head(const Settings& s, std::size_t n, Ends ends, std::uint8_t* payload) {
  const float part = is_finite(ends.max - ends.min) ? 1.0F : 0.5F;
  payload[0] = static_cast<std::uint8_t>(bits_of(s));
  payload[1] = tail_of(s, n);
  wire::put(payload + 2, ends.min * part);
  wire::put(payload + 6, ends.max * part);
}

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace minmax

const Codec minmax_codec = {.name = "minmax",
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
