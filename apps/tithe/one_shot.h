// SPDX-License-Identifier: Apache-2.0
#pragma once
// A codec used once, outside any session: what encode, decode, inspect and codecs need.
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "tithe/spec.h"

namespace tithe::cli {

// 64-byte aligned bytes, as Call::scratch wants them.
class Scratch {
 public:
  explicit Scratch(std::size_t bytes)
      : bytes_(bytes),
        p_(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free) {}
  Bytes all() const { return {p_.get(), bytes_}; }

 private:
  std::size_t bytes_;
  std::unique_ptr<std::uint8_t, void (*)(void*)> p_;
};

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

// Arbitrary values of roughly normal distribution, mean 0 and deviation 1: the sum of eight uniform draws, without
// the platform's libm. The same on every machine.
std::vector<float> bell_values(std::size_t n, std::uint64_t seed);

}  // namespace tithe::cli
