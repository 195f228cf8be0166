// SPDX-License-Identifier: Apache-2.0
#pragma once
// Uses a codec once, without a session, for encode, decode, inspect and codecs.
#include <span>
#include <vector>

#include "advisor/measure/codec_speed.h"
#include "tithe/seam/spec.h"

namespace tithe::cli {

using sim::bell_values, sim::Scratch;

struct Lossy {
  std::vector<std::uint8_t> payload;
  std::vector<float> left;  // values minus the decoded payload
};

// The payload of the first phase, without a previous residual. kInvalid names the first value that is not finite.
Result<Lossy> encode_once(const Spec& spec, std::span<const float> values, std::uint64_t seed);

// Decodes payloads that may have been written under any settings. kCorrupt as the codec reports.
Result<std::vector<float>> decode_once(const Codec& codec, std::span<const ByteView> payloads, std::size_t n);

// ||a||
double norm(std::span<const float> a);

}  // namespace tithe::cli
