// SPDX-License-Identifier: Apache-2.0
// The properties that the engine relies on if a codec has the trait `uncompressed`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "codec/fp32/fp32.h"

namespace tithe::codec {
namespace {

using Floats = std::vector<float>;

ByteView bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

Floats some_values(std::size_t n) {
  Floats v{0.0F, -0.0F, 1.5F, std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::max()};
  while (v.size() < n) v.push_back(static_cast<float>(v.size()) * -0.37F);
  v.resize(n);
  return v;
}

TEST(Uncompressed, PayloadEqualsTheValuesMemory) {
  ASSERT_TRUE(fp32_codec.traits.uncompressed) << "on a machine that is little-endian";
  const Floats values = some_values(1003);
  for (const Impl& impl : fp32_codec.impls) {
    if (!impl.usable(this_machine())) continue;
    std::vector<std::uint8_t> payload(values.size() * sizeof(float));
    ASSERT_TRUE(impl.encode({}, {values.data(), nullptr, nullptr, values.size()}, payload).ok());
    EXPECT_TRUE(std::ranges::equal(payload, bytes_of(values))) << impl.name;
  }
}

TEST(Uncompressed, RangesOfAPayloadArePayloads) {
  const Floats values = some_values(1003);
  for (const Impl& impl : fp32_codec.impls) {
    if (!impl.usable(this_machine())) continue;
    for (const std::size_t run : {1U, 7U, 64U, 500U}) {
      Floats out(values.size());
      for (std::size_t at = 0; at < values.size(); at += run) {
        const std::size_t n = std::min(run, values.size() - at);
        const ByteView payload = bytes_of(std::span(values).subspan(at, n));
        ASSERT_TRUE(impl.decode({}, {&payload, 1}, {}, std::span(out).subspan(at, n)).ok());
      }
      EXPECT_TRUE(std::ranges::equal(bytes_of(out), bytes_of(values))) << impl.name << ", runs of " << run;
    }
  }
}

}  // namespace
}  // namespace tithe::codec
