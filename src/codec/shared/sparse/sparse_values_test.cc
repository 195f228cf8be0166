// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/sparse_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tithe::sparse {
namespace {

constexpr ValueForm kAll[] = {ValueForm::kF32,  ValueForm::kBF16,       ValueForm::kF16, ValueForm::k8Bit,
                              ValueForm::k4Bit, ValueForm::kInceptionn, ValueForm::k2Bit};

std::vector<std::uint8_t> array_of(ValueForm form, const std::vector<float>& values) {
  std::vector<std::uint8_t> array(value_bytes(form, values.size()));
  const std::uint8_t* end = write_values(form, values, array.data());
  if (form != ValueForm::kInceptionn) {
    EXPECT_EQ(end, array.data() + array.size());
  }
  array.resize(static_cast<std::size_t>(end - array.data()));
  EXPECT_EQ(array_bytes(form, array, values.size()), array.size());
  return array;
}

std::vector<float> read(ValueForm form, const std::vector<float>& values) {
  const std::vector<std::uint8_t> array = array_of(form, values);
  EXPECT_TRUE(values_hold(form, array, values.size()));
  std::vector<float> back(values.size());
  ValueReader reader(form, array.data(), values.size());
  for (float& v : back) v = reader.next();
  return back;
}

TEST(SparseValues, BytesFollowTheLayout) {
  EXPECT_EQ(value_bytes(ValueForm::kF32, 129), 516U);
  EXPECT_EQ(value_bytes(ValueForm::kBF16, 129), 258U);
  EXPECT_EQ(value_bytes(ValueForm::kF16, 129), 2 + 256U + 2 + 2);
  EXPECT_EQ(value_bytes(ValueForm::k8Bit, 129), 2 + 128U + 2 + 1);
  EXPECT_EQ(value_bytes(ValueForm::k4Bit, 129), 2 + 64U + 2 + 1);
  EXPECT_EQ(value_bytes(ValueForm::k2Bit, 129), 4 + 32U + 4 + 1);
  for (const ValueForm form : kAll) EXPECT_EQ(value_bytes(form, 0), 0U);
}

// For any finite floats in one block, sent value + residual equals the value bit for bit.
TEST(SparseValues, ValueEqualsSentPlusResidual) {
  std::mt19937 rng(4);
  for (const ValueForm form : kAll)
    for (const int spread : {0, 1, 3, 30, 254}) {
      const auto width = static_cast<std::uint32_t>(spread) + 1;
      std::vector<float> values;
      for (std::uint32_t i = 0; i < 5000; ++i) {
        const std::uint32_t exponent =
            i / 500 * 20 % (256 - width) + static_cast<std::uint32_t>(rng()) % width;
        const auto fraction = static_cast<std::uint32_t>(rng()) & 0x807fffffU;
        values.push_back(std::bit_cast<float>(fraction | exponent << 23));
      }
      values[7] = 0.0F;
      values[8] = -0.0F;
      values[9] = std::numeric_limits<float>::max();
      values[10] = -std::numeric_limits<float>::denorm_min();
      const std::vector<float> sent = read(form, values);
      for (std::size_t j = 0; j < values.size(); ++j) {
        const float rest = values[j] - sent[j];
        ASSERT_TRUE(std::isfinite(sent[j]));
        ASSERT_EQ(double{sent[j]} + double{rest}, double{values[j]})
            << j << ", form " << static_cast<int>(form);
        ASSERT_EQ(sent[j] + rest, values[j]);
        ASSERT_LE(std::fabs(rest), std::fabs(values[j])) << "never further away than 0";
      }
    }
}

TEST(SparseValues, RoundsAsStated) {
  const std::vector<float> values = {1.0F, -1.07F, 1.2F, 0.3F, 1.97F, 0.0F};
  EXPECT_EQ(read(ValueForm::k8Bit, values), (std::vector<float>{1, -1.125F, 1.25F, 0.3125F, 2, 0}));
  EXPECT_EQ(read(ValueForm::k4Bit, values), (std::vector<float>{1, -1, 1, 0.25F, 2, 0}));
  const float large = std::nearbyint(1e30F / 0x1p89F) * 0x1p89F;  // 11 bits of it
  EXPECT_EQ(read(ValueForm::kF16, {1.0F / 3, 1e30F}), (std::vector<float>{0, large}));
}

// The mean of the five is 2.5: 1, 1.5 and 2 fall below it, with the mean 1.5.
TEST(SparseValues, TwoBitsHoldASignAndAMean) {
  EXPECT_EQ(read(ValueForm::k2Bit, {1, -2, 5, -3, 1.5F}), (std::vector<float>{1.5F, -1.5F, 4, -4, 1.5F}));
  EXPECT_EQ(read(ValueForm::k2Bit, {3, -3, 3}), (std::vector<float>{3, -3, 3})) << "equal magnitudes";
  EXPECT_EQ(array_of(ValueForm::k2Bit, {1, -2, 5, -3, 1.5F}),
            (std::vector<std::uint8_t>{0xc0, 0x3f, 0x80, 0x40, 0b11'01'10'00, 0b00}));
}

TEST(SparseValues, TwoBitsAtMostDoubleAValue) {
  EXPECT_EQ(read(ValueForm::k2Bit, {0.25F, 1, 1, 1, 9}), (std::vector<float>{0.5F, 0.5F, 0.5F, 0.5F, 9}));
  EXPECT_EQ(read(ValueForm::k2Bit, {0, 1, 1, 1, -9}), (std::vector<float>{0, 0, 0, 0, -9})) << "only zeros";
}

// Values of a top-k selection from a Gaussian or heavier tail have similar magnitudes: the error is a small part of
// the values.
TEST(SparseValues, TwoBitsKeepMostOfASelection) {
  std::mt19937 rng(3);
  std::exponential_distribution<float> tail(1);
  std::vector<float> values;
  for (int i = 0; i < 1280; ++i) values.push_back((i % 2 == 0 ? 1.0F : -1.0F) * (4 + tail(rng)));
  const std::vector<float> sent = read(ValueForm::k2Bit, values);
  double all = 0, lost = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    all += double{values[i]} * values[i];
    lost += (double{values[i]} - sent[i]) * (double{values[i]} - sent[i]);
  }
  EXPECT_LT(lost, 0.02 * all);
}

TEST(SparseValues, SmallValuesBecomeZeroOnlyWithinTheirBlock) {
  std::vector<float> values(kValueBlock + 1, 1.0F);
  values[0] = 256.0F;
  EXPECT_EQ(read(ValueForm::k4Bit, values)[1], 0.0F);
  EXPECT_EQ(read(ValueForm::k4Bit, values)[kValueBlock], 1.0F);
  EXPECT_EQ(read(ValueForm::k8Bit, values)[1], 1.0F);
  values[0] = 0x1p17F;
  EXPECT_EQ(read(ValueForm::k8Bit, values)[1], 0.0F);
  EXPECT_EQ(read(ValueForm::kF16, values)[1], 1.0F);
}

// 0.75, largest of its block, is 2^-1 * 1.5: values over 2^0. In units of 2^-15, 0.75 is 24576 and 0.3 is 9830; in
// units of 2^-12, -0.01 is 40.
TEST(SparseValues, InceptionnBytes) {
  EXPECT_EQ(array_of(ValueForm::kInceptionn, {0.75F, -0.01F, 0.0005F, 0.3F, 0.0F}),
            (std::vector<std::uint8_t>{126, 0b10000110, 0, 0x00, 0x60, 0x80 | 40, 0x66, 0x26, 12, 0, 0, 0}));
  EXPECT_EQ(array_of(ValueForm::kInceptionn, {}).size(), 0U);
}

TEST(SparseValues, InceptionnErrorIsBoundedByTheLargestValue) {
  std::mt19937 rng(9);
  for (const int exponent : {-140, -126, -100, -20, 0, 60, 126}) {
    std::vector<float> values;
    for (int i = 0; i < 1000; ++i) {
      const float fraction = static_cast<float>(rng() % 65'536) / 65'536.0F - 0.5F;
      values.push_back(std::ldexp(fraction, exponent - static_cast<int>(rng() % 12)));
    }
    const std::vector<float> sent = read(ValueForm::kInceptionn, values);
    for (std::size_t first = 0; first < values.size(); first += kValueBlock) {
      const std::size_t end = std::min(values.size(), first + kValueBlock);
      double largest = 0;
      for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(double{values[i]}));
      for (std::size_t i = first; i < end; ++i)
        ASSERT_LE(std::fabs(double{values[i]} - double{sent[i]}), std::max(0x1p-9 * largest, 0x1p-136))
            << exponent << " at " << i;
    }
  }
}

TEST(SparseValues, RefusesInvalidCodes) {
  const auto holds = [](ValueForm form, std::vector<std::uint8_t> array, std::size_t count) {
    return values_hold(form, array, count);
  };
  EXPECT_TRUE(holds(ValueForm::kF16, {254, 0, 0xff, 0x77}, 1));
  EXPECT_FALSE(holds(ValueForm::kF16, {255, 0, 0, 0}, 1)) << "exponent of no finite value";
  EXPECT_FALSE(holds(ValueForm::kF16, {254, 0, 0, 0x78}, 1)) << "beyond the largest";
  EXPECT_TRUE(holds(ValueForm::k8Bit, {0xf7, 7, 0, 126, 127, 255}, 4));
  EXPECT_FALSE(holds(ValueForm::k8Bit, {0xf8, 7, 0}, 1)) << "top is infinite";
  EXPECT_FALSE(holds(ValueForm::k8Bit, {5, 0, 5}, 1)) << "below the smallest";
  EXPECT_TRUE(holds(ValueForm::k4Bit, {0xfd, 1, 0x7f}, 2));
  EXPECT_FALSE(holds(ValueForm::k4Bit, {0xfe, 1, 0x00}, 1)) << "top is infinite";
  EXPECT_FALSE(holds(ValueForm::k4Bit, {0xfd, 1, 0x10}, 1)) << "padding";
  EXPECT_FALSE(holds(ValueForm::k4Bit, {3, 0, 0x30}, 2)) << "below the smallest";
  EXPECT_TRUE(holds(ValueForm::k2Bit, {0x7f, 0x7f, 0x7f, 0x7f, 0x3f}, 3));
  EXPECT_FALSE(holds(ValueForm::k2Bit, {0x00, 0x00, 0x80, 0x7f, 0x3f}, 3)) << "infinite";
  EXPECT_FALSE(holds(ValueForm::k2Bit, {0x00, 0x80, 0x00, 0x80, 0x3f}, 3)) << "a sign";
  EXPECT_FALSE(holds(ValueForm::k2Bit, {0x02, 0x40, 0x01, 0x40, 0x3f}, 3)) << "low above high";
  EXPECT_FALSE(holds(ValueForm::k2Bit, {0x01, 0x40, 0x02, 0x40, 0x40}, 3)) << "padding";
  EXPECT_TRUE(holds(ValueForm::kInceptionn, {254, 0b0110, 9, 8, 7, 9, 0, 0, 0}, 2));
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {255, 0b0110, 9, 8, 7, 9, 0, 0, 0}, 2))
      << "exponent of no finite value";
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {254, 0b0111, 9, 8, 7, 6, 5, 11, 0, 0, 0}, 2))
      << "not below the largest";
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {254, 0b0110, 9, 8, 7, 9, 0, 0, 0}, 1))
      << "a tag past the last value";
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {254, 0b0110, 9, 8, 8, 0, 0, 0}, 2)) << "too short";
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {254, 0b0110, 9, 8, 7, 6, 10, 0, 0, 0}, 2)) << "too long";
  EXPECT_FALSE(holds(ValueForm::kInceptionn, {1, 0}, 1)) << "no room for the length";
}

}  // namespace
}  // namespace tithe::sparse
