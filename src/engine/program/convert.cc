// SPDX-License-Identifier: Apache-2.0
#include "engine/program/convert.h"

#include <algorithm>

namespace tithe::engine {
namespace {

template <auto kConvert, typename In, typename Out>
void each(const In* in, std::size_t n, Out* out) {
  std::transform(in, in + n, out, kConvert);
}

}  // namespace

const Conversions kReferenceConversions = {.bf16_to_floats = each<from_bf16>,
                                           .fp16_to_floats = each<from_fp16>,
                                           .floats_to_bf16 = each<to_bf16>,
                                           .floats_to_fp16 = each<to_fp16>};

}  // namespace tithe::engine
