// SPDX-License-Identifier: Apache-2.0
// The kernels between the caller's types and fp32 return the bits of the reference for all inputs.
#include "engine/program/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "support/targets.h"

namespace tithe::engine {
namespace {

using Halves = std::vector<std::uint16_t>;
using Floats = std::vector<float>;

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Floats as_floats(void (*convert)(const std::uint16_t*, std::size_t, float*), const Halves& in) {
  Floats out(in.size());
  convert(in.data(), in.size(), out.data());
  return out;
}
Halves as_halves(void (*convert)(const float*, std::size_t, std::uint16_t*), const Floats& in) {
  Halves out(in.size());
  convert(in.data(), in.size(), out.data());
  return out;
}

// Every sign and exponent, with mantissas around each rounding boundary.
Floats odd_floats() {
  Floats out;
  for (std::uint32_t top = 0; top < 512; ++top)
    for (std::uint32_t bit = 0; bit < 23; ++bit)
      for (const std::uint32_t off : {0U, 1U, 2U, 0x7fffffU})
        for (const std::uint32_t base : {0U, 0x2000U, 0x10000U})
          out.push_back(std::bit_cast<float>(top << 23 | (((1U << bit) + base + off) & 0x7fffffU)));
  for (std::uint32_t k = 0; k < 100'000; ++k)
    out.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(mix64(k))));
  return out;
}

TEST(Convert, KernelsGiveTheBitsOfTheReference) {
  Halves all(65536);
  for (std::size_t k = 0; k < all.size(); ++k) all[k] = static_cast<std::uint16_t>(k);
  const Floats odd = odd_floats();
  const Conversions& slow = kReferenceConversions;
  const Conversions& fast = kSimdConversions;
  harness::on_every_target([&] {
    EXPECT_TRUE(same(as_floats(fast.bf16_to_floats, all), as_floats(slow.bf16_to_floats, all)));
    EXPECT_TRUE(same(as_floats(fast.fp16_to_floats, all), as_floats(slow.fp16_to_floats, all)));
    EXPECT_EQ(as_halves(fast.floats_to_bf16, odd), as_halves(slow.floats_to_bf16, odd));
    EXPECT_EQ(as_halves(fast.floats_to_fp16, odd), as_halves(slow.floats_to_fp16, odd));
    for (std::size_t n = 0; n < 70; ++n) {  // the tail after the last whole vector, and no write past it
      const Halves some(all.begin() + 17000, all.begin() + 17000 + static_cast<std::ptrdiff_t>(n));
      EXPECT_TRUE(same(as_floats(fast.fp16_to_floats, some), as_floats(slow.fp16_to_floats, some))) << n;
      Floats more(n + 1, 7.0F);
      fast.bf16_to_floats(some.data(), n, more.data());
      EXPECT_EQ(more[n], 7.0F) << n;
      Halves back(n + 1, 7);
      fast.floats_to_fp16(odd.data(), n, back.data());
      EXPECT_EQ(back[n], 7) << n;
    }
  });
}

}  // namespace
}  // namespace tithe::engine
