// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec used once, outside any session: what encode, decode, inspect and codecs need.
#include <span>
#include <vector>

#include "measure/codec_speed.h"
#include "tithe/seam/spec.h"

namespace tithe::cli {

using sim::bell_values, sim::Scratch;

struct Lossy {
  std::vector<std::uint8_t> payload;
  std::vector<float> left;  // values - what was sent
};

// The first phase's payload of these values, no residual from before. kInvalid names the first value not finite.
Result<Lossy> encode_once(const Spec& spec, std::span<const float> values, std::uint64_t seed);

// The values of payloads that may have been written under any settings. kCorrupt as the codec says.
Result<std::vector<float>> decode_once(const Codec& codec, std::span<const ByteView> payloads, std::size_t n);

// ||a||
double norm(std::span<const float> a);

}  // namespace tithe::cli
