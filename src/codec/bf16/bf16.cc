// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16/bf16.h"

#include "codec/half.h"
#include "codec/registry.h"

namespace tithe {
namespace bf16 {
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
}  // namespace bf16

const Codec bf16_codec = {.id = CodecId::bf16,
                          .name = "bf16",
                          .doc = "the upper 16 bits of each value, rounded to nearest even",
                          .params = {},
                          .phases = bf16::kPhases,
                          .traits = {.exact_ledger = true, .fixed_size = true},
                          .scratch = codec::no_scratch,
                          .impls = bf16::kImpls};

}  // namespace tithe
