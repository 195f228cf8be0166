// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "support/codec_run.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Blocks, SendsOnlyNonZeroBlocks) {
  std::vector<float> x(5 * 256);
  x[256] = 1.0F;
  x[4 * 256 + 255] = -2.0F;
  const EncodeOutput sent = send("blocks", x);
  EXPECT_EQ(sent.payload.size(), 1 + 1 + 2 * 4 * 256U);
  EXPECT_EQ(sent.payload[1], 0b10010);
  EXPECT_EQ(sent.values, x);
  EXPECT_EQ(sent.residual_out, std::vector<float>(x.size(), 0.0F));
}

TEST(Blocks, RatioSendsTheBlocksOfLargestNorm) {
  std::vector<float> x(4 * 256, 0.5F);
  for (std::size_t i = 2 * 256; i < 3 * 256; ++i) x[i] = -0.75F;
  const EncodeOutput sent = send("blocks:ratio=0.5", x);
  EXPECT_EQ(sent.payload[1], 0b0101);  // of the equal ones, the first
  for (std::size_t i = 0; i < x.size(); ++i) {
    const bool goes = i / 256 == 0 || i / 256 == 2;
    EXPECT_EQ(sent.values[i], goes ? x[i] : 0.0F);
    EXPECT_EQ(sent.residual_out[i], goes ? 0.0F : x[i]);
  }
}

TEST(Blocks, ZerosCostOneBitPerBlock) {
  EXPECT_EQ(send("blocks", std::vector<float>(256 * 16)).payload, (std::vector<std::uint8_t>{0, 0, 0}));
}

TEST(Blocks, RoundingErrorsStayInTheResidual) {
  std::vector<float> x(3 * 256 + 100);
  for (std::size_t i = 256; i < x.size(); ++i) x[i] = 1.0F / static_cast<float>(i);
  for (const auto& [form, bytes] : {std::pair{"bf16", 2 * 612U},
                                    {"fp16", 5 * 2 + 2 * 612U},
                                    {"8bit", 5 * 2 + 612U},
                                    {"4bit", 5 * 2 + 306U}}) {
    const EncodeOutput sent = send(std::string("blocks:values=") + form, x);
    EXPECT_EQ(sent.payload.size(), 1 + 1 + bytes) << form;
    EXPECT_EQ(sent.payload[1], 0b1110) << form;
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(sent.values[i] + sent.residual_out[i], x[i]) << form << ' ' << i;
      EXPECT_LE(std::fabs(sent.residual_out[i]), x[i] / 4) << form << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace tithe
