// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/terngrad.h"

#include "codec/registry.h"

namespace tithe {
namespace terngrad {

namespace {

Status check(const Settings&, std::size_t n, ByteView payload) {
  return ternary::check("terngrad", n, payload);
}

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  return ternary::encode(Rule(call), in, out);
}

double error(const Settings&, double, double largest) { return largest; }
bool exact_constants(const Settings& s) { return s[kCut] == 0; }

constexpr ParamSpec kParams[] = {kCutParam};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = ternary::bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "simd",
                            .usable = codec::with_simd,
                            .encode = block::encode<terngrad_codec, encode_simd>,
                            .decode = block::decode<terngrad_codec, ternary::decode_simd>},
                           {.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<terngrad_codec, encode_ref>,
                            .decode = block::decode<terngrad_codec, ternary::decode>}};

}  // namespace
}  // namespace terngrad

const Codec terngrad_codec = {
    .id = CodecId::terngrad,
    .name = "terngrad",
    .doc = "minus one, zero or one times a scale, at random, unbiased (Wen et al. 2017)",
    .params = terngrad::kParams,
    .phases = terngrad::kPhases,
    .traits = {.fixed_size = true,
               .unbiased = true,
               .contraction = terngrad::contraction,
               .error = terngrad::error,
               .exact_constants = terngrad::exact_constants},
    .scratch = codec::no_scratch,
    .impls = terngrad::kImpls};

}  // namespace tithe
