// SPDX-License-Identifier: Apache-2.0
#include "codec/fp16/fp16.h"

#include <algorithm>
#include <cmath>

namespace tithe {
namespace fp16 {
namespace {

// Traits::error: half an ulp of 11 significant bits, or half the smallest value; beyond the largest value, the excess.
double error(const Settings&, double value, double) {
  const double size = std::fabs(value);
  return std::max({0x1p-11 * size, 0x1p-25, size - 65504});
}

constexpr Law kLaws[] = {Law::kSum, Law::kDecode};
constexpr Phase kPhases[] = {{.name = "values", .laws = kLaws, .bound = half::bound}};
constexpr Impl kImpls[] = {codec::simd(half::kImpl<Format, kSimd>),
                           codec::reference(half::kImpl<Format, half::kReference<Format>>)};

}  // namespace
}  // namespace fp16

const Codec fp16_codec = {.name = "fp16",
                          .doc = "each value as IEEE binary16, rounded to nearest even",
                          .params = {},
                          .phases = fp16::kPhases,
                          .traits = {.fixed_size = true, .error = fp16::error},
                          .scratch = codec::no_scratch,
                          .impls = fp16::kImpls};

}  // namespace tithe
