// SPDX-License-Identifier: Apache-2.0
#include "codec/fp16/fp16.h"

#include <algorithm>
#include <cmath>

#include "codec/half.h"
#include "codec/registry.h"

namespace tithe {
namespace fp16 {
namespace {

bool combine(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* left) {
  return this_machine().simd ? combine_simd(n, acc, in, left)
                             : half::combine_from<Format>(0, n, acc, in, left);
}

// Half of the last of 11 bits, or of the smallest value; what is beyond the largest is sent as that.
double error(const Settings&, double value, double) {
  const double size = std::fabs(value);
  return std::max({0x1p-11 * size, 0x1p-25, size - 65504});
}

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
}  // namespace fp16

const Codec fp16_codec = {.id = CodecId::fp16,
                          .name = "fp16",
                          .doc = "each value as IEEE binary16, rounded to nearest even",
                          .params = {},
                          .phases = fp16::kPhases,
                          .traits = {.fixed_size = true, .error = fp16::error},
                          .scratch = codec::no_scratch,
                          .impls = fp16::kImpls};

}  // namespace tithe
