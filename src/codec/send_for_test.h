// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one worker sends of a gradient and what a reader sees of it, by every impl of a codec, which must agree.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "codec/scratch_for_test.h"
#include "tithe/spec.h"

namespace tithe::worker {

struct Sent {
  std::vector<std::uint8_t> payload;
  std::vector<float> left;
  std::vector<float> values;  // what a reader sees
  bool finite = true;
};

inline Sent send(std::string_view text, const std::vector<float>& grad, std::uint64_t seed = 0) {
  const Result<Spec> spec = parse_spec(text);
  Sent sent;
  EXPECT_TRUE(spec.ok()) << text;
  if (!spec.ok()) return sent;
  const Codec& codec = *spec->codec;
  Call call;
  call.settings = spec->settings;
  call.seed = seed;
  const std::size_t n = grad.size();
  for (const Impl& impl : codec.impls) {
    const ScratchForTest scratch(codec, call.settings, n);
    call.scratch = scratch;
    Sent now{std::vector<std::uint8_t>(codec.phases[0].bound(call.settings, n)), std::vector<float>(n),
             std::vector<float>(n)};
    const auto encoded = impl.encode(call, {grad.data(), nullptr, now.left.data(), n}, now.payload);
    EXPECT_TRUE(encoded.ok()) << impl.name << ": " << encoded.status().what();
    if (!encoded.ok()) return sent;
    now.finite = encoded->finite;
    now.payload.resize(encoded->bytes);
    const ByteView view(now.payload);
    EXPECT_TRUE(impl.decode(call, {&view, 1}, {}, now.values).ok()) << impl.name;
    if (&impl != &codec.impls.front()) {
      EXPECT_EQ(now.payload, sent.payload) << impl.name;
      EXPECT_EQ(now.left, sent.left) << impl.name;
      EXPECT_EQ(now.values, sent.values) << impl.name;
      EXPECT_EQ(now.finite, sent.finite) << impl.name;
    }
    sent = now;
  }
  return sent;
}

}  // namespace tithe::worker
