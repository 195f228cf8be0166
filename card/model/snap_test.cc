// SPDX-License-Identifier: Apache-2.0
#include "card/model/snap.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "base/rng.h"
#include "codec/inceptionn/inceptionn.h"

namespace tithe::snap {
namespace {

std::vector<float> some_values(std::size_t n) {
  std::vector<float> v(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t r = draw32(7, i);
    const std::uint32_t exponent = i % 3 ? 100 + i % 40 : draw32(8, i) % 255;
    v[i] = std::bit_cast<float>((r & 0x807fffffU) | exponent << 23);
  }
  return v;
}

// The meaning of "a network card keeps every bit of it": for all bounds and modes, what the card's codec decodes is
// what was snapped, and snapping again changes nothing.
TEST(Snap, MatchesTheCardForAllBoundsAndModes) {
  const std::vector<float> values = some_values(4000);
  for (const auto mode : {inceptionn::kStrict, inceptionn::kLiteral})
    for (int b = 1; b <= inceptionn::kMaxB; ++b) {
      const Classes c = inceptionn::classes(mode, b);
      for (const float v : values) {
        const float once = kept(c, v);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(kept(c, once)), std::bit_cast<std::uint32_t>(once))
            << v << ' ' << b;
        const inceptionn::CodedValue sent = inceptionn::send(c, once);
        std::uint8_t bytes[4];
        inceptionn::put_bytes(bytes, sent.tag, sent.word);
        const float back = inceptionn::receive(c, sent.tag, bytes);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back), std::bit_cast<std::uint32_t>(once)) << v << ' ' << b;
      }
    }
}

TEST(Snap, SendsNoNegativeZero) {
  const Classes c = inceptionn::classes(inceptionn::kLiteral, 10);
  for (const float v : {-0.0F, -0x1p-20F, -0x1p-9F})  // the last one: q = 0 in literal mode
    EXPECT_EQ(std::bit_cast<std::uint32_t>(kept(c, v)), 0U) << v;
}

}  // namespace
}  // namespace tithe::snap
