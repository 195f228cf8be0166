// SPDX-License-Identifier: Apache-2.0
#include "codec/fp32/fp32.h"

#include "codec/registry.h"
#include "codec/sums.h"

namespace tithe {
namespace fp32 {
namespace {

std::size_t bound(const Settings&, std::size_t n) { return 4 * n; }

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return codec::check_size("fp32", payload.size(), bound(s, n));
}

bool encode_ref(const Carry& in, std::uint8_t* out) { return encode_from(0, in, out); }
void decode_ref(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_from(0, payloads, how, out);
}

template <bool (*kBody)(const Carry&, std::uint8_t*)>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("fp32", out.size(), bound(call.settings, in.n)));
  return Encoded{4 * in.n, kBody(in, out.data())};
}

template <void (*kBody)(std::span<const ByteView>, const Merge&, std::span<float>)>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(fp32_codec, call, payloads, out.size()));
  kBody(payloads, how, out);
  return {};
}

Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(check(call.settings, n, acc));
  TITHE_TRY(check(call.settings, n, in));
  const bool finite = this_machine().simd ? combine_simd(n, acc.data(), in.data())
                                          : combine_from(0, n, acc.data(), in.data());
  if (!finite) sums::clear(acc, {});
  return Combined{finite};
}

double contraction(const Settings&, std::size_t) { return 0; }

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {
    {.name = "values", .laws = kLaws, .bound = bound, .check = check, .combine = combine}};
constexpr Impl kImpls[] = {
    {.name = "simd",
     .usable = codec::with_simd,
     .encode = encode<encode_simd>,
     .decode = decode<decode_simd>},
    {.name = "ref", .usable = codec::always, .encode = encode<encode_ref>, .decode = decode<decode_ref>}};

}  // namespace
}  // namespace fp32

const Codec fp32_codec = {
    .id = CodecId::fp32,
    .name = "fp32",
    .doc = "all values as they are",
    .params = {},
    .phases = fp32::kPhases,
    .traits = {.exact_ledger = true, .lossless = true, .fixed_size = true, .contraction = fp32::contraction},
    .scratch = codec::no_scratch,
    .impls = fp32::kImpls};

}  // namespace tithe
