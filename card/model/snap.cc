// SPDX-License-Identifier: Apache-2.0
#include "card/model/snap.h"

#include <cmath>

namespace tithe {
namespace snap {
namespace {

using inceptionn::Mode;

enum Param : std::size_t { kBoundParam, kModeParam };
constexpr std::string_view kModes[] = {"strict", "literal"};
constexpr ParamSpec kParams[] = {
    {"bound", 0x1p-10, 0x1p-100, 0.5, "the card's bound 2^-b; rounded down to a power of two"},
    {"mode", 0, 0, 1, "the card's mode: strict, or literal as in the paper", kModes}};

Mode mode_of(const Settings& s) { return s[kModeParam] == 0 ? inceptionn::kStrict : inceptionn::kLiteral; }
Classes classes_of(const Settings& s) { return inceptionn::classes(mode_of(s), -std::ilogb(s[kBoundParam])); }

std::size_t bound(const Settings&, std::size_t n) { return 4 * n; }

Status check(const Call& call, std::size_t n, ByteView payload) {
  return codec::check_size("snap", payload.size(), bound(call.settings, n));
}

template <const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room("snap", out.size(), bound(call.settings, in.n)));
  return Encoded{4 * in.n, kWith.encode(classes_of(call.settings), in, out.data())};
}

template <const Kernels& kWith>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  kWith.decode(payloads, how, out);
  return {};
}

double error(const Settings& s, double, double) {
  const double bound = std::ldexp(1.0, std::ilogb(s[kBoundParam]));
  return mode_of(s) == inceptionn::kStrict ? bound : std::max(bound, 0x1p-7);
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = bound}};
template <const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<kWith>, .decode = decode<kWith>, .check = check};
constexpr Impl kImpls[] = {codec::simd(kImpl<kSimd>), codec::reference(kImpl<kReference>)};

}  // namespace

const Kernels kReference = {.encode = [](const Classes& c, const EncodeInput& in,
                                         std::uint8_t* out) { return encode_from(0, c, in, out); },
                            .decode = [](std::span<const ByteView> payloads, const Merge& how,
                                         std::span<float> out) { decode_from(0, payloads, how, out); }};

}  // namespace snap

const Codec snap_codec = {
    .name = "snap",
    .doc = "fp32 values that INCEPTIONN's network card packs without loss (card/docs/card.md)",
    .params = snap::kParams,
    .phases = snap::kPhases,
    // No contraction below 1: values below the bound are not sent.
    .traits = {.exact_ledger = true, .fixed_size = true, .error = snap::error},
    .scratch = codec::no_scratch,
    .impls = snap::kImpls};

}  // namespace tithe
