// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "codec/shared/common/block.h"
#include "support/agree.h"
#include "support/codec_run.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Nuqsgd, LevelsArePowersOfTwo) {
  const std::vector<float> grad = {12, -6, 3, 0, -0.0F};
  const EncodeOutput sent = send("nuqsgd:bits=3", grad);  // K = 3: 0, 1/4, 1/2, 1
  EXPECT_EQ(sent.values, grad);
  ASSERT_EQ(sent.payload.size(), 8U);
  EXPECT_EQ(wire::get<float>(&sent.payload[2]), 12.0F);
  // 3 | (4 + 2) << 3 | 1 << 6 | 0 << 9 | 4 << 12
  EXPECT_EQ(wire::get<std::uint16_t>(&sent.payload[6]), 0x4073);
}

TEST(Nuqsgd, ValuesGoToTheNeighboursInProportion) {
  constexpr std::size_t kValues = 65'536;
  struct {
    float value, low, high, share;
  } const cases[] = {{0.0625F, 0, 0.25F, 0.25F}, {0.3125F, 0.25F, 0.5F, 0.25F}, {0.875F, 0.5F, 1, 0.75F}};
  for (const auto& c : cases) {
    std::vector<float> grad(kValues, c.value);
    for (std::size_t i = 0; i < kValues; i += 1024) grad[i] = 1;
    double ups = 0, tries = 0;
    const EncodeOutput sent = send("nuqsgd:bits=3", grad);
    for (std::size_t i = 0; i < kValues; ++i) {
      if (i % 1024 == 0) continue;
      ASSERT_TRUE(sent.values[i] == c.low || sent.values[i] == c.high) << sent.values[i];
      ups += sent.values[i] == c.high;
      ++tries;
    }
    EXPECT_NEAR(ups, tries * c.share, 6 * std::sqrt(tries * c.share * (1 - c.share))) << c.value;
  }
}

TEST(Nuqsgd, EqualMagnitudesAreSentExactlyWhateverTheDraws) {
  for (const char* bits : {"2", "3", "4", "8"})
    for (const float size : {0.3F, 1.0F, 3e38F, 1e-39F}) {
      std::vector<float> grad(1024, size);
      grad[5] = -size;
      for (std::uint32_t round = 0; round < 8; ++round)
        ASSERT_EQ(send(std::string("nuqsgd:bits=") + bits, grad, round).values, grad) << size;
    }
}

TEST(Nuqsgd, FastEqualsReferenceOnAnyFloats) {
  for (const char* bits : {"2", "3", "4", "5", "6", "7", "8"})
    harness::expect_impls_agree(std::string("nuqsgd:bucket=256,bits=") + bits);
  harness::expect_impls_agree("nuqsgd:norm=l2");
}

// Shares on both sides of where each draw tips over, found from the draws themselves.
TEST(Nuqsgd, FastEqualsReferenceWhereDrawsTipOver) {
  constexpr std::size_t kValues = 4096;
  Call call;
  call.seed = 5;
  call.round = 1;
  const std::uint64_t key = block::key(call);
  for (const int bits : {2, 4, 8})
    for (const float norm : {1.0F, 0.7F, 3e38F, 1e-41F}) {
      const int most = (1 << (bits - 1)) - 1;
      std::vector<float> grad(kValues);
      for (std::size_t i = 0; i < kValues; ++i) {
        const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(i)) >> 9;
        const int level = static_cast<int>(i / 16 % static_cast<unsigned>(most));
        const float tips = level == 0
                               ? std::ldexp(static_cast<float>(draw), -22 - most)
                               : std::ldexp(2 - std::ldexp(static_cast<float>(draw), -23), level - most);
        grad[i] = std::min(tips * norm, norm);
        for (std::size_t step = 0; step < i % 5; ++step) grad[i] = std::nextafter(grad[i], i % 2 ? norm : 0);
      }
      for (std::size_t i = 0; i < kValues; i += 1024) grad[i] = norm;
      SCOPED_TRACE(std::to_string(bits) + " bits, norm " + std::to_string(norm));
      send("nuqsgd:bits=" + std::to_string(bits), grad);
    }
}

}  // namespace
}  // namespace tithe
