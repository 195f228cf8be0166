// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/terngrad.h"

namespace tithe {
namespace terngrad {

namespace {

Status check(const Call&, std::size_t n, ByteView payload) { return ternary::check("terngrad", n, payload); }

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  return ternary::encode(Rule(call), in, out);
}

bool exact_constants(const Settings& s) { return s[kCut] == 0; }

constexpr ParamSpec kParams[] = {kCutParam};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = ternary::bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<terngrad_codec, check, kSimd>),
                           codec::reference(block::kImpl<terngrad_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = ternary::decode_ref};

}  // namespace terngrad

const Codec terngrad_codec = {
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
