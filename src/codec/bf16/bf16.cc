// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16/bf16.h"

#include <algorithm>
#include <cmath>

namespace tithe {
namespace bf16 {
namespace {

double contraction(const Settings&, std::size_t) { return 0x1p-16; }  // 8 bits: at most one part in 256 off

// Traits::error: half an ulp of 8 significant bits, or half the smallest bf16.
double error(const Settings&, double value, double) { return std::max(0x1p-8 * std::fabs(value), 0x1p-134); }

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = half::bound}};
constexpr Impl kImpls[] = {codec::simd(half::kImpl<Format, kSimd>),
                           codec::reference(half::kImpl<Format, half::kReference<Format>>)};

}  // namespace
}  // namespace bf16

const Codec bf16_codec = {.name = "bf16",
                          .doc = "the upper 16 bits of each value, rounded to nearest even",
                          .params = {},
                          .phases = bf16::kPhases,
                          .traits = {.exact_ledger = true,
                                     .fixed_size = true,
                                     .always_allowed = true,
                                     .inside_hosts = true,
                                     .contraction = bf16::contraction,
                                     .error = bf16::error},
                          .scratch = codec::no_scratch,
                          .impls = bf16::kImpls};

}  // namespace tithe
