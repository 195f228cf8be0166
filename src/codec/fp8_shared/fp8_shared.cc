// SPDX-License-Identifier: Apache-2.0
// fp8_shared: fp8 under scales that all ranks share, so that codes add up on the way (Peng et al., "FP8-LM", 2023;
// there one scale per tensor).
//
//   scales   per block of 32 values the largest of all ranks' (max phase), times the smallest power of two that is not
//            below the number of ranks: no sum saturates. The published 1 / sqrt(ranks) takes the risk. What it costs
//            are the lowest octaves of 17 (e5m2: 31), not precision
//   add      codes as floats; the sum is rounded to a code again. What that takes goes to the residual of the rank
//            that added, as in bf16
// Beside fp8: a ring sends the same bytes but does not decode; there a block's scale follows the partial sum, here it
// is that of the whole from the first hop.
//
// Layout   phase 0 (max): u16 ranks counted | u8 format | u8 s per block
//          phase 1 (sum): a payload of fp8
#include <bit>

#include "base/bytes.h"
#include "codec/fp8_format.h"
#include "codec/raw.h"
#include "codec/registry.h"

namespace tithe {
namespace fp8_shared {
namespace {

using fp8::blocks;
using fp8::E4M3;
using fp8::E5M2;
using fp8::kBlock;

constexpr std::size_t kTop = 3;  // bytes in front of the scales
constexpr unsigned kMostRanks = 0xffff;

bool is_e4m3(const Settings& s) { return s[0] == 0; }
std::uint8_t format_of(const Settings& s) { return is_e4m3(s) ? 0 : 1; }

std::size_t bound_scales(const Settings&, std::size_t n) { return kTop + blocks(n); }
std::size_t bound_codes(const Settings&, std::size_t n) { return fp8::bytes(n); }

Status check_scales(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("fp8_shared", payload.size(), bound_scales(s, n)));
  if (wire::get<std::uint16_t>(payload.data()) == 0) return {Code::kCorrupt, "fp8_shared: no ranks"};
  if (payload[2] != format_of(s)) return {Code::kCorrupt, "fp8_shared: another format"};
  return fp8::check_scales("fp8_shared", payload[2], payload.subspan(kTop));
}

Status check_codes(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(fp8::check("fp8_shared", n, payload));
  if (payload[0] != format_of(s)) return {Code::kCorrupt, "fp8_shared: another format"};
  const std::uint32_t largest = is_e4m3(s) ? E4M3::kLargest : E5M2::kLargest;
  for (const std::uint8_t code : payload.subspan(fp8::kHead + blocks(n)))
    if ((code & 0x7fU) > largest) return {Code::kCorrupt, "fp8_shared: a code that is no number"};
  return {};
}

template <typename Float>
bool look(const Carry& in, std::uint8_t* scales) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    std::uint32_t largest = 0;
    for (std::size_t i = first; i < std::min(first + kBlock, in.n); ++i)
      largest = std::max(largest, fp8::magnitude(in.take(i)));
    finite = finite && largest < 0x7f800000U;
    *scales++ = static_cast<std::uint8_t>(Float::scale_of(largest));
  }
  return finite;
}

Encoded encode_scales(const Call& call, const Carry& in, Bytes out) {
  wire::put(out.data(), std::uint16_t{1});
  out[2] = format_of(call.settings);
  std::uint8_t* scales = out.data() + kTop;
  const bool finite = is_e4m3(call.settings) ? look<E4M3>(in, scales) : look<E5M2>(in, scales);
  return {bound_scales(call.settings, in.n), finite};
}

template <typename Float>
bool send(ByteView agreed, const Carry& in, std::uint8_t* scales, std::uint8_t* codes) {
  const unsigned room = std::bit_width(wire::get<std::uint16_t>(agreed.data()) - 1U);
  bool finite = true;
  for (std::size_t b = 0; b < blocks(in.n); ++b) {
    scales[b] = static_cast<std::uint8_t>(std::min(agreed[kTop + b] + room, Float::kMostScale));
    for (std::size_t i = b * kBlock; i < std::min((b + 1) * kBlock, in.n); ++i) {
      finite = finite && fp8::magnitude(in.take(i)) < 0x7f800000U;
      codes[i] = Float::pack(in.take(i) * fp8::scale_value(254U - scales[b]));
      in.leave(i, Float::unpack(codes[i]) * fp8::scale_value(scales[b]));
    }
  }
  return finite;
}

Encoded encode_codes(const Call& call, const Carry& in, Bytes out) {
  out[0] = format_of(call.settings);
  std::uint8_t* scales = out.data() + fp8::kHead;
  std::uint8_t* codes = scales + blocks(in.n);
  const bool finite = is_e4m3(call.settings) ? send<E4M3>(call.context, in, scales, codes)
                                             : send<E5M2>(call.context, in, scales, codes);
  return {bound_codes(call.settings, in.n), finite};
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  const Phase& phase = fp8_shared_codec.phases[call.phase];
  TITHE_TRY(codec::check_room("fp8_shared", out.size(), phase.bound(call.settings, in.n)));
  return call.phase == 0 ? encode_scales(call, in, out) : encode_codes(call, in, out);
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(fp8_shared_codec, call, payloads, out.size()));
  const std::size_t n = out.size();
  codec::merge_values(payloads, how, out, [n](ByteView p, std::size_t i) { return fp8::value_at(p, i, n); });
  return {};
}

Status largest(const Settings& s, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("fp8_shared", in.size(), acc.size()));
  TITHE_TRY(check_scales(s, n, in));
  const unsigned ranks = wire::get<std::uint16_t>(acc.data()) + wire::get<std::uint16_t>(in.data());
  if (ranks > kMostRanks) return {Code::kUnsupported, "fp8_shared: more than 65535 ranks"};
  wire::put(acc.data(), static_cast<std::uint16_t>(ranks));
  for (std::size_t b = kTop; b < acc.size(); ++b) acc[b] = std::max(acc[b], in[b]);
  return {};
}

// In fp64 sums of two codes are exact, so what goes to left is rounded once.
template <typename Float>
void add_codes(std::size_t n, Bytes acc, ByteView in, float* left) {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t& code = acc[fp8::kHead + blocks(n) + i];
    const float a = Float::unpack(code), b = Float::unpack(in[fp8::kHead + blocks(n) + i]);
    code = Float::pack(a + b);
    if (!left) continue;
    const double scale = fp8::scale_value(acc[fp8::kHead + i / kBlock]);
    left[i] = static_cast<float>(left[i] + (double{a} + double{b} - double{Float::unpack(code)}) * scale);
  }
}

Status add(const Settings& s, std::size_t n, Bytes acc, ByteView in, float* left) {
  TITHE_TRY(codec::check_size("fp8_shared", in.size(), acc.size()));
  TITHE_TRY(check_codes(s, n, in));
  if (!std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(fp8::kHead + blocks(n)), acc.begin()))
    return {Code::kCorrupt, "fp8_shared: payloads under different scales"};
  is_e4m3(s) ? add_codes<E4M3>(n, acc, in, left) : add_codes<E5M2>(n, acc, in, left);
  return {};
}

constexpr Law kLargest[] = {Law::kMax};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {
    {.name = "scales", .laws = kLargest, .bound = bound_scales, .check = check_scales, .combine = largest},
    {.name = "codes", .laws = kAdds, .bound = bound_codes, .check = check_codes, .combine = add}};
constexpr Impl kImpls[] = {{.name = "ref", .usable = codec::always, .encode = encode, .decode = decode}};

}  // namespace
}  // namespace fp8_shared

const Codec fp8_shared_codec = {
    .id = CodecId::fp8_shared,
    .name = "fp8_shared",
    .doc = "8-bit floats under scales that all ranks share; codes add up (Peng et al. 2023)",
    .params = fp8::kParams,
    .phases = fp8_shared::kPhases,
    .traits = {.fixed_size = true, .one_pass_feedback = false, .contraction = fp8::contraction},
    .scratch = codec::no_scratch,
    .impls = fp8_shared::kImpls};

}  // namespace tithe
