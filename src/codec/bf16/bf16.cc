// SPDX-License-Identifier: Apache-2.0
#include "codec/bf16/bf16.h"

#include <algorithm>
#include <cmath>

#include "codec/half.h"
#include "codec/registry.h"

namespace tithe {
namespace bf16 {
namespace {

bool combine(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* left) {
  return this_machine().simd ? combine_simd(n, acc, in, left)
                             : half::combine_from<Format>(0, n, acc, in, left);
}

double contraction(const Settings&, std::size_t) { return 0x1p-16; }  // 8 bits: at most one part in 256 off

// Half of the last of 8 bits, or of the smallest float that it holds.
double error(const Settings&, double value, double) { return std::max(0x1p-8 * std::fabs(value), 0x1p-134); }

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values",
                              .laws = kLaws,
                              .bound = half::bound,
                              .check = half::check<Format>,
                              .combine = half::combine<Format, combine>}};
constexpr Impl kImpls[] = {{.name = "simd",
                            .usable = codec::with_simd,
                            .encode = half::encode<Format, encode_simd>,
                            .decode = half::decode<Format, decode_simd>},
                           {.name = "ref",
                            .usable = codec::always,
                            .encode = half::encode<Format, half::encode_ref<Format>>,
                            .decode = half::decode<Format, half::decode_ref<Format>>}};

}  // namespace
}  // namespace bf16

const Codec bf16_codec = {.id = CodecId::bf16,
                          .name = "bf16",
                          .doc = "the upper 16 bits of each value, rounded to nearest even",
                          .params = {},
                          .phases = bf16::kPhases,
                          .traits = {.exact_ledger = true,
                                     .fixed_size = true,
                                     .contraction = bf16::contraction,
                                     .error = bf16::error},
                          .scratch = codec::no_scratch,
                          .impls = bf16::kImpls};

}  // namespace tithe
