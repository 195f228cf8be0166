// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/sparse.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "tithe/seam/spec.h"

namespace tithe::sparse {
namespace {

std::vector<std::uint8_t> payload(const std::vector<std::uint32_t>& index, const std::vector<float>& value) {
  std::vector<std::uint8_t> p(kHead + 4 * index.size() + 4 * value.size());
  wire::put(p.data(), static_cast<std::uint32_t>(index.size()));
  for (std::size_t j = 0; j < index.size(); ++j) wire::put(&p[kHead + 4 * j], index[j]);
  for (std::size_t j = 0; j < value.size(); ++j) wire::put(&p[kHead + 4 * (index.size() + j)], value[j]);
  return p;
}

TEST(Sparse, CountOfIsAtLeastOneAndAtMostAll) {
  EXPECT_EQ(count_of(0.01, 0), 0U);
  EXPECT_EQ(count_of(0.01, 1), 1U);
  EXPECT_EQ(count_of(0.01, 100), 1U);
  EXPECT_EQ(count_of(0.01, 101), 2U);
  EXPECT_EQ(count_of(1, 77), 77U);
}

TEST(Sparse, CheckRefusesInvalidPayloads) {
  EXPECT_TRUE(check("t", 8, 2, payload({0, 7}, {1, 2})).ok());
  EXPECT_TRUE(check("t", 8, 2, payload({}, {})).ok());
  EXPECT_TRUE(check("t", 0, 0, payload({}, {})).ok());
  const auto refused = [](std::size_t n, std::size_t most, const std::vector<std::uint8_t>& p) {
    const Status s = check("t", n, most, p);
    return s.code() == Code::kCorrupt && s.what().starts_with("t: ");
  };
  EXPECT_TRUE(refused(8, 1, payload({0, 7}, {1, 2}))) << "more than allowed";
  EXPECT_TRUE(refused(8, 2, payload({0, 8}, {1, 2}))) << "index past the end";
  EXPECT_TRUE(refused(8, 2, payload({7, 0}, {1, 2}))) << "falling";
  EXPECT_TRUE(refused(8, 2, payload({3, 3}, {1, 2}))) << "twice";
  EXPECT_TRUE(refused(8, 9, payload({0, 7}, {1}))) << "a value is missing";
  EXPECT_TRUE(refused(8, 9, {0, 0, 0})) << "no count";
}

TEST(Sparse, DuplicatesBetweenWorkersAddInOrder) {
  const auto a = payload({1, 3}, {1e8F, 2});
  const auto b = payload({1}, {1});
  const auto c = payload({0, 1}, {5, -1e8F});
  const ByteView all[] = {a, b, c};
  std::vector<float> out(4, -7);
  decode_simd(all, {.divide = 3}, out);
  EXPECT_EQ(out, (std::vector<float>{5.0F / 3, ((1e8F + 1.0F) - 1e8F) / 3, 0, 2.0F / 3}));
  std::vector<float> base = {1, 1, 1, -0.0F};
  decode_ref(all, {.base = base.data()}, out);
  EXPECT_EQ(out, (std::vector<float>{6, ((1.0F + 1e8F) + 1.0F) - 1e8F, 1, 2}));
}

// Every third payload names half of the values, the others few of them. Every other one is written in `form`.
void expect_the_bits_of_the_reference(std::size_t n, std::size_t peers, const Form& form,
                                      std::span<const float> divides, std::mt19937& rng) {
  std::vector<std::vector<std::uint8_t>> all;
  for (std::size_t p = 0; p < peers; ++p) {
    std::vector<std::uint32_t> index;
    std::vector<float> value;
    const std::uint32_t step = p % 3 == 0 ? 3 : 3000;
    for (std::size_t i = rng() % step; i < n; i += 1 + rng() % step) {
      index.push_back(static_cast<std::uint32_t>(i));
      value.push_back(static_cast<float>(rng() % 2000) * 0.37F - 300);
    }
    const Form& written = p % 2 == 0 ? form : Form();
    all.emplace_back(bound(written, index.size(), n));
    all.back().resize(write(written, n, index, value.data(), nullptr, all.back()));
  }
  const std::vector<ByteView> views(all.begin(), all.end());
  std::vector<float> base(n);
  for (float& b : base) b = static_cast<float>(rng() % 100) - 50;
  for (const float divide : divides)
    for (const int from : {0, 1, 2}) {
      std::vector<float> want = base;
      std::vector<float> got = base;
      const auto merge = [&](std::vector<float>& out) {
        return Merge{from == 0 ? nullptr : from == 1 ? base.data() : out.data(), divide};
      };
      decode_ref(views, merge(want), want);
      decode_simd(views, merge(got), got);
      ASSERT_TRUE(n == 0 || std::memcmp(got.data(), want.data(), 4 * n) == 0)
          << n << " values, " << peers << " peers, divide " << divide << ", base " << from;
    }
}

TEST(Sparse, BlockwiseOutputEqualsPayloadByPayload) {
  std::mt19937 rng(5);
  for (const std::size_t n : {0U, 1U, 5U, 8191U, 8192U, 8193U, 40'000U})
    for (const std::size_t peers : {0U, 1U, 2U, 5U, 256U, 257U})
      expect_the_bits_of_the_reference(n, peers, {}, std::array{1.0F, 3.0F, 4.0F, 257.0F}, rng);
  for (const std::size_t n : {1U, 8193U, 40'000U})
    for (const ValueForm values : {ValueForm::kF32, ValueForm::kBF16, ValueForm::kF16, ValueForm::k8Bit})
      for (const IndexForm indices : {IndexForm::kU32, IndexForm::kDelta, IndexForm::kBitmap})
        expect_the_bits_of_the_reference(n, 5, {values, indices}, std::array{3.0F}, rng);
}

// Covers the prefetches ahead of the additions.
TEST(Sparse, BlocksLargerThanTheCachesAreEqual) {
  std::mt19937 rng(6);
  constexpr std::size_t kMany = (std::size_t{1} << 22) + 4097;
  expect_the_bits_of_the_reference(kMany, 3, {}, std::array{1.0F, 3.0F}, rng);
  expect_the_bits_of_the_reference(kMany, 3, {ValueForm::kBF16, IndexForm::kDelta}, std::array{3.0F}, rng);
}

// A value that is sent as 0, as packed forms may, has not been sent.
TEST(Sparse, ClearSentClearsIndicesOfNonZeroValues) {
  for (const auto clear : {clear_sent_ref, clear_sent_simd}) {
    std::vector<float> values(10, 1.0F), want = values;
    clear(payload({2, 5, 9}, {1, 0, -1}), values.data());
    want[2] = want[9] = 0.0F;
    EXPECT_EQ(values, want);
  }
}

}  // namespace
}  // namespace tithe::sparse
