// SPDX-License-Identifier: Apache-2.0
#include "codec/natural/natural.h"

#include "support/codec_run.h"

namespace tithe::natural {
namespace {

using harness::EncodeOutput;
using harness::send;
using Payload = std::vector<std::uint8_t>;

TEST(Natural, PowersOfTwoAreSentExactly) {
  const std::vector<float> grad = {0.5F, -0.25F, 0, 0x1p-125F};
  const EncodeOutput sent = send("natural", grad);
  EXPECT_EQ(sent.payload, (Payload{1, 125, 128 + 124, 0, 1}));
  EXPECT_EQ(sent.values, grad);
}

TEST(Natural, TheWindowFollowsLargeValues) {
  const std::vector<float> grad = {1, -0.5F, 0, 4};
  const EncodeOutput sent = send("natural", grad);
  EXPECT_EQ(sent.payload, (Payload{3, 124, 128 + 123, 0, 126}));
  EXPECT_EQ(sent.values, grad);
}

TEST(Natural, AQuarterOfTheWayGoesUpAQuarterOfTheTime) {
  constexpr std::size_t kValues = 65'536;
  const EncodeOutput sent = send("natural", std::vector<float>(kValues, 1.25F));
  double ups = 0;
  for (const float v : sent.values) {
    EXPECT_TRUE(v == 1 || v == 2) << v;
    ups += v == 2;
  }
  EXPECT_NEAR(ups, kValues / 4.0, 6 * std::sqrt(kValues * 3 / 16.0));
}

TEST(Natural, BeyondTheLargestPowerIsHeld) {
  const EncodeOutput sent = send("natural", {3e38F, -3e38F});
  EXPECT_EQ(sent.values, (std::vector<float>{0x1p127F, -0x1p127F}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{3e38F - 0x1p127F, 0x1p127F - 3e38F}));
}

TEST(Natural, TheLedgerIsExact) {
  for (const float scale : {1.0F, 1e-3F, 1e-39F, 1e36F}) {
    const std::vector<float> grad = harness::bell(5000, scale);
    const EncodeOutput sent = send("natural", grad);
    for (std::size_t i = 0; i < grad.size(); ++i)
      ASSERT_EQ(double{sent.values[i]} + double{sent.residual_out[i]}, double{grad[i]}) << i;
  }
}

// The variance of the paper: at most an eighth of the value's square, in the mean.
TEST(Natural, LosesAnEighthAtMost) {
  const std::vector<float> grad = harness::bell(65'536);
  EXPECT_LT(harness::squares(send("natural", grad).residual_out), harness::squares(grad) / 8);
}

TEST(Natural, CheckRefusesBasesThatNoBlockHas) {
  const Spec spec = harness::spec_of("natural");
  EXPECT_TRUE(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{127, 255}).ok());
  EXPECT_EQ(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{128, 1}).code(),
            Code::kCorrupt);
  EXPECT_EQ(spec.codec->reference().check({.settings = spec.settings}, 1, Payload{0, 1}).code(),
            Code::kCorrupt);
}

}  // namespace
}  // namespace tithe::natural
