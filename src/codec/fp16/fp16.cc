// SPDX-License-Identifier: Apache-2.0
#include "codec/fp16/fp16.h"

#include "codec/half.h"
#include "codec/registry.h"

namespace tithe {
namespace fp16 {
namespace {

using Ref = half::Half<Format>;

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values",
                              .laws = kLaws,
                              .bound = half::bound,
                              .check = half::check<Format>,
                              .combine = Ref::combine}};
constexpr Impl kImpls[] = {
    {.name = "ref", .usable = codec::always, .encode = Ref::encode, .decode = Ref::decode}};

}  // namespace
}  // namespace fp16

const Codec fp16_codec = {.id = CodecId::fp16,
                          .name = "fp16",
                          .doc = "each value as IEEE binary16, rounded to nearest even",
                          .params = {},
                          .phases = fp16::kPhases,
                          .traits = {.fixed_size = true},
                          .scratch = codec::no_scratch,
                          .impls = fp16::kImpls};

}  // namespace tithe
