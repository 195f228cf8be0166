// SPDX-License-Identifier: Apache-2.0
#include "codec/fp32/fp32.h"

#include <bit>

namespace tithe {
namespace fp32 {
namespace {

std::size_t bound(const Settings&, std::size_t n) { return 4 * n; }

Status check(const Call& call, std::size_t n, ByteView payload) {
  return codec::check_size("fp32", payload.size(), bound(call.settings, n));
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("fp32", out.size(), bound(call.settings, in.n)));
  return Encoded{4 * in.n, kWith.encode(in, out.data())};
}

template <const Kernels& kWith>
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(check(call, n, acc));
  TITHE_TRY(check(call, n, in));
  const bool finite = kWith.combine(acc, in);
  if (!finite) sums::clear(acc, {});
  return Combined{finite};
}

double contraction(const Settings&, std::size_t) { return 0; }

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>,
                        .decode = codec::decode<check, kWith>,
                        .check = check,
                        .combine = combine<kWith>};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {
    .encode = [](const EncodeInput& in, std::uint8_t* out) { return sums::encode_from(0, in, out); },
    .decode = [](std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) { decode_from(0, payloads, how, out); },
    .combine = [](Bytes acc, ByteView in) { return sums::add_from(0, acc, in); }};

}  // namespace fp32

const Codec fp32_codec = {.name = "fp32",
                          .doc = "all values, unchanged",
                          .params = {},
                          .phases = fp32::kPhases,
                          .traits = {.exact_ledger = true,
                                     .lossless = true,
                                     .fixed_size = true,
                                     .uncompressed = std::endian::native == std::endian::little,
                                     .contraction = fp32::contraction},
                          .scratch = codec::no_scratch,
                          .impls = fp32::kImpls};

}  // namespace tithe
