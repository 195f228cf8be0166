// SPDX-License-Identifier: Apache-2.0
#include "codec/tbq/tbq.h"

#include "codec/registry.h"

namespace tithe {
namespace tbq {
namespace {

Status check(const Settings&, std::size_t n, ByteView payload) { return ternary::check("tbq", n, payload); }

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  return ternary::encode(Rule(call.settings), in, out);
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kTau] > 0) return 1;
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, ternary::kBlock)) + 0x1p-20;
}

constexpr ParamSpec kParams[] = {
    {"tau", 0, 0, 1e30,
     "threshold, and what is sent for a value that reaches it; 0 = from each block's values"}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = ternary::bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "simd",
                            .usable = codec::with_simd,
                            .encode = block::encode<tbq_codec, encode_simd>,
                            .decode = block::decode<tbq_codec, ternary::decode_simd>},
                           {.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<tbq_codec, encode_ref>,
                            .decode = block::decode<tbq_codec, ternary::decode>}};

}  // namespace
}  // namespace tbq

const Codec tbq_codec = {.id = CodecId::tbq,
                         .name = "tbq",
                         .doc = "plus or minus a threshold for values that reach it (Strom 2015; HiPress)",
                         .params = tbq::kParams,
                         .phases = tbq::kPhases,
                         .traits = {.fixed_size = true, .contraction = tbq::contraction},
                         .scratch = codec::no_scratch,
                         .impls = tbq::kImpls};

}  // namespace tithe
