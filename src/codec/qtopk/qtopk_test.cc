// SPDX-License-Identifier: Apache-2.0
#include "codec/qtopk/qtopk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/codec_run.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Qtopk, RoundsToThreeFractionBitsWithAnExactResidual) {
  const EncodeOutput sent = send("qtopk:ratio=1", {1.0F, -1.06F, 1.07F, 0.3F, 1.97F});
  EXPECT_EQ(sent.values, (std::vector<float>{1.0F, -1.0F, 1.125F, 0.3125F, 2.0F}));
  EXPECT_EQ(sent.residual_out,
            (std::vector<float>{0, -1.06F + 1.0F, 1.07F - 1.125F, 0.3F - 0.3125F, 1.97F - 2.0F}));
  EXPECT_EQ(sent.payload.size(), 6U + 1 + 2 * 5);
}

TEST(Qtopk, ValuesSixteenOctavesBelowTheMaximumStayInTheResidual) {
  const float low = std::ldexp(1.125F, -16);  // 127 levels below 1
  const EncodeOutput sent = send("qtopk:ratio=1", {1.0F, low, low / 1.125F, 0.0F});
  EXPECT_EQ(sent.values, (std::vector<float>{1.0F, low, 0.0F, 0.0F}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{0.0F, 0.0F, low / 1.125F, 0.0F}));
}

TEST(Qtopk, TheLargestFloatsStayFinite) {
  const float most = std::numeric_limits<float>::max();
  const EncodeOutput sent = send("qtopk:ratio=1", {most, -most});
  EXPECT_EQ(sent.values, (std::vector<float>{std::ldexp(1.875F, 127), -std::ldexp(1.875F, 127)}));
  EXPECT_EQ(sent.values[0] + sent.residual_out[0], most);
}

TEST(Qtopk, WholeBlockCanBeSent) {
  std::vector<float> grad(600, 0.0F);
  for (std::size_t i = 255; i < 510; ++i) grad[i] = 1.0F + static_cast<float>(i % 8) / 8;
  const EncodeOutput sent = send("qtopk:ratio=1", grad);
  EXPECT_EQ(sent.values, grad);
  EXPECT_EQ(sent.payload[6], 0);
  EXPECT_EQ(sent.payload[7], 255);
}

TEST(Qtopk, ZerosAreNotSent) {
  const EncodeOutput sent = send("qtopk", std::vector<float>(300, 0.0F));
  EXPECT_EQ(sent.payload, std::vector<std::uint8_t>(6 + 2));
}

TEST(Qtopk, ManyPayloadsAddInOrder) {
  const EncodeOutput sent = send("qtopk:ratio=1", {1.0F, 0.0F, 3.0F});
  const std::vector<ByteView> many(150, sent.payload);
  Call call;
  call.settings = parse_spec("qtopk:ratio=1")->settings;
  const std::vector<float> base = {0.5F, 0.5F, 0.5F};
  for (const Impl& impl : qtopk_codec.impls) {
    std::vector<float> out(3);
    ASSERT_TRUE(impl.decode(call, many, {.base = base.data(), .divide = 2.0F}, out).ok());
    EXPECT_EQ(out, (std::vector<float>{75.25F, 0.25F, 225.25F})) << impl.name;
  }
}

}  // namespace
}  // namespace tithe
