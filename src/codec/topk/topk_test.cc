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

// Each block of 4 sends its largest value, even if other blocks have larger ones.
TEST(Topk, BlocksSendTheirOwnLargest) {
  const std::vector<float> grad = {9, -8, 7, 6, 0, 0.5F, 0, -0.25F, 1, -3, 0, 0, -2};
  const SparseOutput sent =
      encode_all(topk_codec, call_of("topk:ratio=0.25,block=4"), grad, std::vector<float>(13));
  EXPECT_EQ(sent.index, (std::vector<std::uint32_t>{0, 5, 9, 12}));
  EXPECT_EQ(sent.value, (std::vector<float>{9, 0.5F, -3, -2}));
  EXPECT_EQ(sent.residual_out, (std::vector<float>{0, -8, 7, 6, 0, 0, 0, -0.25F, 1, 0, 0, 0, 0}));
}

// A block of zeros sends nothing, and a block longer than the tensor covers the whole tensor.
TEST(Topk, BlocksOfZerosAndLongBlocks) {
  std::vector<float> grad(300);
  grad[299] = 1;
  EXPECT_EQ(encode_all(topk_codec, call_of("topk:ratio=0.1,block=100"), grad, std::vector<float>(300)).index,
            (std::vector<std::uint32_t>{299}));
  for (float& v : grad) v = 1;
  const auto count = [&](const char* spec) {
    return encode_all(topk_codec, call_of(spec), grad, std::vector<float>(300)).index.size();
  };
  EXPECT_EQ(count("topk:ratio=0.01,block=64"), 5U);
  EXPECT_EQ(count("topk:ratio=0.01,block=4096"), 3U);
  EXPECT_EQ(count("topk:ratio=0.01"), 3U);
}

TEST(Topk, NanIsReported) {
  std::vector<float> grad(100, 1);
  grad[37] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(encode_all(topk_codec, call_of("topk"), grad, std::vector<float>(100)).finite);
}

}  // namespace
}  // namespace tithe::sparse
