// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8_shared/fp8_shared.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/floats/fp8_kernels.h"

namespace tithe {
namespace fp8_shared {
namespace {

using fp8::blocks;
using fp8::E4M3;
using fp8::E5M2;
using fp8::format_of;
using fp8::Kernels;

constexpr std::size_t kTop = 3;  // bytes before the scales
constexpr unsigned kMaxRanks = 0xffff;

std::size_t bound_scales(const Settings&, std::size_t n) { return kTop + blocks(n); }
std::size_t bound_codes(const Settings&, std::size_t n) { return fp8::bytes(n); }

Status check_scales(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("fp8_shared", payload.size(), bound_scales(call.settings, n)));
  if (wire::get<std::uint16_t>(payload.data()) == 0) return {Code::kCorrupt, "fp8_shared: no ranks"};
  if (payload[2] != format_of(call.settings)) return {Code::kCorrupt, "fp8_shared: another format"};
  return fp8::check_scales("fp8_shared", payload[2], payload.subspan(kTop));
}

Status check_codes(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(fp8::check("fp8_shared", n, payload));
  if (payload[0] != format_of(call.settings)) return {Code::kCorrupt, "fp8_shared: another format"};
  std::uint8_t largest = 0;
  for (const std::uint8_t code : payload.subspan(fp8::kHead + blocks(n)))
    largest = std::max(largest, static_cast<std::uint8_t>(code & 0x7fU));
  if (largest > (payload[0] == 0 ? E4M3::kLargest : E5M2::kLargest))
    return {Code::kCorrupt, "fp8_shared: a code that is not a number"};
  return {};
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return call.phase == 0 ? check_scales(call, n, payload) : check_codes(call, n, payload);
}

Encoded encode_scales(const Kernels& with, const Call& call, const EncodeInput& in, Bytes out) {
  wire::put(out.data(), std::uint16_t{1});
  out[2] = format_of(call.settings);
  return {bound_scales(call.settings, in.n), with.find_scales(out[2], in, out.data() + kTop)};
}

Encoded encode_codes(const Kernels& with, const Call& call, const EncodeInput& in, Bytes out) {
  out[0] = format_of(call.settings);
  std::uint8_t* scales = out.data() + fp8::kHead;
  const unsigned ranks = wire::get<std::uint16_t>(call.context.data());
  const unsigned room = static_cast<unsigned>(std::bit_width(ranks - 1));
  const unsigned most = fp8::max_scale(out[0]);
  // An addition rounds off at most 1/8 of a sum (e5m2), and a rank makes one per other rank: up to this scale the
  // rounding errors add up to a finite value.
  const unsigned highest = most - room - (room > 3 ? room - 3 : 0);
  bool fits = true;
  for (std::size_t b = 0; b < blocks(in.n); ++b) {
    const unsigned scale = call.context[kTop + b];
    fits = fits && scale <= highest;
    scales[b] = static_cast<std::uint8_t>(std::min(scale + room, most));
  }
  return {bound_codes(call.settings, in.n), with.send(out[0], in, scales, scales + blocks(in.n)) && fits};
}

// Up to this scale, adding the largest code to any residual does not overflow.
unsigned harmless_scale(std::uint8_t format) { return format == E4M3::kNumber ? 220 : 213; }

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const Phase& phase = fp8_shared_codec.phases[call.phase];
  TITHE_TRY(codec::check_room("fp8_shared", out.size(), phase.bound(call.settings, in.n)));
  return call.phase == 0 ? encode_scales(kWith, call, in, out) : encode_codes(kWith, call, in, out);
}

Result<Combined> largest(const Call& call, std::size_t n, Bytes acc, ByteView in) {
  TITHE_TRY(codec::check_size("fp8_shared", in.size(), acc.size()));
  TITHE_TRY(check_scales(call, n, in));
  const unsigned ranks = wire::get<std::uint16_t>(acc.data()) + wire::get<std::uint16_t>(in.data());
  TITHE_TRY(codec::check_ranks("fp8_shared", call, ranks));
  if (ranks > kMaxRanks) return Status(Code::kUnsupported, "fp8_shared: more than 65535 ranks");
  wire::put(acc.data(), static_cast<std::uint16_t>(ranks));
  for (std::size_t b = kTop; b < acc.size(); ++b) acc[b] = std::max(acc[b], in[b]);
  return Combined{};
}

Result<Combined> add(const Kernels& with, const Call& call, std::size_t n, Bytes acc, ByteView in,
                     float* residual_out) {
  TITHE_TRY(codec::check_size("fp8_shared", in.size(), acc.size()));
  TITHE_TRY(check_codes(call, n, in));
  if (!std::equal(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(fp8::kHead + blocks(n)), acc.begin()))
    return Status(Code::kCorrupt, "fp8_shared: payloads under different scales");
  const std::size_t codes = fp8::kHead + blocks(n);
  with.add(in[0], n, in.data() + fp8::kHead, acc.data() + codes, in.data() + codes, residual_out);
  const ByteView scales = in.subspan(fp8::kHead, blocks(n));
  const bool harmless =
      residual_out == nullptr ||
      std::all_of(scales.begin(), scales.end(), [&](std::uint8_t s) { return s <= harmless_scale(in[0]); });
  return Combined{harmless || all_finite({residual_out, n})};
}

template <const Kernels& kWith>
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* residual_out) {
  return call.phase == 0 ? largest(call, n, acc, in) : add(kWith, call, n, acc, in, residual_out);
}

constexpr Law kLargest[] = {Law::kMax};
constexpr Law kAdds[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "scales", .laws = kLargest, .bound = bound_scales},
                             {.name = "codes", .laws = kAdds, .bound = bound_codes}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>,
                        .decode = codec::decode<check, kWith>,
                        .check = check,
                        .combine = combine<kWith>};
constexpr Impl kImpls[] = {codec::simd(kImpl<fp8::kSimd>), codec::reference(kImpl<fp8::kReference>)};

}  // namespace
}  // namespace fp8_shared

const Codec fp8_shared_codec = {
    .name = "fp8_shared",
    .doc = "8-bit floats under scales that all ranks share; codes add up (Peng et al. 2023)",
    .params = fp8::kParams,
    .phases = fp8_shared::kPhases,
    .traits = {.fixed_size = true, .one_pass_feedback = false, .contraction = fp8::contraction},
    .scratch = codec::no_scratch,
    .impls = fp8_shared::kImpls};

}  // namespace tithe
