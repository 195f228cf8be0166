// SPDX-License-Identifier: Apache-2.0
#include "codec/topk/topk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/sparse_output.h"

namespace tithe::sparse {
namespace {

TEST(Topk, EqualMagnitudesGoToTheLowerIndex) {
  const std::vector<float> grad = {1, -2, 2, 3, -2, 2, 0, 1, 1, 1};
  const SparseOutput sent = encode_all(topk_codec, call_of("topk:ratio=0.3"), grad, std::vector<float>(10));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{1, 2, 3}));
  EXPECT_EQ(sent.value, (std::vector<float>{-2, 2, 3}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{1, 0, 0, 0, -2, 2, 0, 1, 1, 1}));
}

TEST(Topk, TakesGradientPlusResidual) {
  const SparseOutput sent =
      encode_all(topk_codec, call_of("topk:ratio=0.25"), {1, 1, 1, 1}, {0, 0.5F, -4, 0});
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{2}));
  EXPECT_EQ(sent.value, (std::vector<float>{-3}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{1, 1.5F, 0, 1}));
}

TEST(Topk, ZerosAreNeverSent) {
  std::vector<float> grad(1000, -0.0F);
  grad[999] = 1e-45F;  // the smallest denormal
  const SparseOutput sent =
      encode_all(topk_codec, call_of("topk:ratio=1"), grad, std::vector<float>(1000, -0.0F));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{999}));
  EXPECT_TRUE(std::signbit(sent.residual_out[0]));
}

TEST(Topk, NotANumberIsReported) {
  std::vector<float> grad(100, 1);
  grad[37] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(encode_all(topk_codec, call_of("topk"), grad, std::vector<float>(100)).finite);
}

}  // namespace
}  // namespace tithe::sparse
