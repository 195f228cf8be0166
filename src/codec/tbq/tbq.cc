// SPDX-License-Identifier: Apache-2.0
#include "codec/tbq/tbq.h"

#include "codec/registry.h"

namespace tithe {
namespace tbq {
namespace {

std::size_t bound(const Settings& s, std::size_t n) {
  return is_literal(s) ? literal::bound(n) : ternary::bound(s, n);
}

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return is_literal(s) ? literal::check(n, payload) : ternary::check("tbq", n, payload);
}

bool encode_blocks(const Call& call, const Carry& in, std::uint8_t* out) {
  return ternary::encode(Rule(call.settings), in, out);
}

template <block::Encode kBlocks>
bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  return is_literal(call.settings) ? literal::encode(call, in, out) : kBlocks(call, in, out);
}

template <block::Decode kBlocks>
void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  is_literal(call.settings) ? literal::decode(call, payloads, how, out) : kBlocks(call, payloads, how, out);
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kTau] > 0 || is_literal(s)) return 1;
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, ternary::kBlock)) + 0x1p-20;
}

constexpr std::string_view kModes[] = {"blocks", "literal"};
constexpr ParamSpec kParams[] = {
    {"tau", 0, 0, 1e30,
     "threshold, and what is sent for a value that reaches it; 0 = from each block's values"},
    {"mode", 0, 0, 1, "blocks with their scales, or HiPress' bytes: codes alone, tau (or 1) known to all",
     kModes}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "simd",
                            .usable = codec::with_simd,
                            .encode = block::encode<tbq_codec, encode<encode_simd>>,
                            .decode = block::decode<tbq_codec, decode<ternary::decode_simd>>},
                           {.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<tbq_codec, encode<encode_blocks>>,
                            .decode = block::decode<tbq_codec, decode<ternary::decode>>}};

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
