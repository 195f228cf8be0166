// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8/fp8.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "codec/shared/common/payload.h"
#include "codec/shared/floats/fp8_kernels.h"

namespace tithe {
namespace fp8 {
namespace {

std::size_t bound(const Settings&, std::size_t n) { return bytes(n); }
Status check_payload(const Call&, std::size_t n, ByteView payload) { return check("fp8", n, payload); }

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("fp8", out.size(), bytes(in.n)));
  out[0] = format_of(call.settings);
  std::uint8_t* scales = out.data() + kHead;
  return Encoded{bytes(in.n), kWith.encode(out[0], in, scales, scales + blocks(in.n))};
}

// Traits::error: half an ulp of a code, or half the smallest code at the block's scale, which is below twice the least
// possible scale; beyond the largest code of the largest scale, the excess.
double error(const Settings& s, double value, double largest) {
  const bool e4m3 = s[0] == 0;
  const double size = std::fabs(value);
  const double scale = std::max(2 * largest / (e4m3 ? 448 : 57344), 0x1p-110);
  return std::max({size * (e4m3 ? 0x1p-4 : 0x1p-3), scale * (e4m3 ? 0x1p-10 : 0x1p-17), size - 0x1.cp127});
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "codes", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {
    .encode = encode<kWith>, .decode = codec::decode<check_payload, kWith>, .check = check_payload};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace
}  // namespace fp8

const Codec fp8_codec = {.name = "fp8",
                         .doc = "8-bit floats, a power of two as scale per 32 values (Rouhani et al. 2023)",
                         .params = fp8::kParams,
                         .phases = fp8::kPhases,
                         .traits = {.exact_ledger = true,
                                    .fixed_size = true,
                                    .inside_hosts = true,
                                    .contraction = fp8::contraction,
                                    .error = fp8::error},
                         .scratch = codec::no_scratch,
                         .impls = fp8::kImpls};

}  // namespace tithe
