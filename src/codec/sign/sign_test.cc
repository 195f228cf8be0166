// SPDX-License-Identifier: Apache-2.0
#include "support/agree.h"
#include "support/codec_run.h"

namespace tithe {
namespace {

using harness::EncodeOutput;
using harness::send;

TEST(Sign, SignsAndTheMeanMagnitude) {
  const EncodeOutput sent = send("sign", {1, -3, 2, -2, 0});
  EXPECT_EQ(sent.values, (std::vector<float>{1.6F, -1.6F, 1.6F, -1.6F, 1.6F}));
  ASSERT_EQ(sent.payload.size(), 5U);
  EXPECT_EQ(sent.payload[4], 0b01010);
}

TEST(Sign, EqualMagnitudesAreSentExactly) {
  std::vector<float> grad(4096);
  for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = i % 3 == 0 ? -0.25F : 0.25F;
  EXPECT_EQ(send("sign", grad).values, grad);
}

// |x - C(x)|^2 = |x|^2 - |x|_1^2 / len; for normal values that is 1 - 2 / pi of |x|^2.
TEST(Sign, Contracts) {
  const std::vector<float> normal = harness::bell(65'536);
  EXPECT_NEAR(harness::squares(send("sign", normal).residual_out) / harness::squares(normal), 1 - 2 / 3.14159,
              0.02);
  std::vector<float> lone(2048);
  lone[7] = 5;
  EXPECT_NEAR(harness::squares(send("sign", lone).residual_out), 25 * (1 - 1.0 / 2048), 1e-4);
}

// signSGD with majority vote: with scale=1 the sum's sign is that of most voters.
TEST(Sign, ScaleOneMakesVotes) {
  std::vector<float> sum(3);
  for (const std::vector<float>& grad : {std::vector<float>{9, -1, -1}, {-1, -1, 1}, {-1, 5, 1}}) {
    const EncodeOutput vote = send("sign:scale=1,feedback=none", grad);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += vote.values[i];
  }
  EXPECT_EQ(sum, (std::vector<float>{-1, -1, 1}));
}

TEST(Sign, FastEqualsReferenceOnAnyFloats) {
  for (const char* spec : {"sign", "sign:scale=0.25"}) harness::expect_impls_agree(spec);
}

TEST(Sign, CheckRefusesWhatEncodeCannotWrite) {
  const Spec spec = harness::spec_of("sign");
  std::vector<std::uint8_t> p = send("sign", {1, -3, 2}).payload;
  const auto check = [&] { return spec.codec->reference().check({.settings = spec.settings}, 3, p).code(); };
  EXPECT_EQ(check(), Code::kOk);
  p[4] |= 8;
  EXPECT_EQ(check(), Code::kCorrupt);
  p[4] &= 7;
  p[3] |= 0x80;  // a negative scale
  EXPECT_EQ(check(), Code::kCorrupt);
}

}  // namespace
}  // namespace tithe
