// SPDX-License-Identifier: Apache-2.0
// fp32: no compression, the identity every other codec is measured against.
//
// Layout   n x f32, little-endian
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/raw.h"
#include "codec/registry.h"

namespace tithe {
namespace fp32 {
namespace {

std::size_t bound(const Settings&, std::size_t n) { return 4 * n; }

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return codec::check_size("fp32", payload.size(), bound(s, n));
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room("fp32", out.size(), bound(call.settings, in.n)));
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    wire::put(&out[4 * i], v);
    in.leave(i, v);
  }
  return Encoded{bound(call.settings, in.n), finite};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(fp32_codec, call, payloads, out.size()));
  codec::merge_values(payloads, merge, out,
                      [](ByteView p, std::size_t i) { return wire::get<float>(&p[4 * i]); });
  return {};
}

Status combine(const Settings&, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("fp32", acc.size(), 4 * n));
  TITHE_TRY(codec::check_size("fp32", in.size(), 4 * n));
  for (std::size_t i = 0; i < n; ++i)
    wire::put(&acc[4 * i], wire::get<float>(&acc[4 * i]) + wire::get<float>(&in[4 * i]));
  return {};
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {
    {.name = "values", .laws = kLaws, .bound = bound, .check = check, .combine = combine}};
constexpr Impl kImpls[] = {{.name = "ref", .usable = codec::always, .encode = encode, .decode = decode}};

}  // namespace
}  // namespace fp32

const Codec fp32_codec = {.id = CodecId::fp32,
                          .name = "fp32",
                          .doc = "all values as they are",
                          .params = {},
                          .phases = fp32::kPhases,
                          .traits = {.exact_ledger = true, .lossless = true, .fixed_size = true},
                          .scratch = codec::no_scratch,
                          .impls = fp32::kImpls};

}  // namespace tithe
