// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/int_sum/int_fields.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tithe::int_fields {
namespace {

using Payload = std::vector<std::uint8_t>;

const Kernels* const kBoth[] = {&kReference, &kSimd};

constexpr std::size_t kSizes[] = {0, 1, 15, 16, 17, 31, 80, 81, 95, 96, 1000, 4096};

Payload payload_of(const std::vector<std::uint32_t>& numbers, unsigned added, unsigned bits) {
  Payload p(bytes(numbers.size(), bits), 0xa5);
  put_head(p.data(), {added, bits});
  for (std::size_t i = 0; i < numbers.size(); ++i) put(p.data(), i, bits, numbers[i]);
  return p;
}

std::vector<std::uint32_t> numbers_of(const Payload& p, std::size_t n) {
  std::vector<std::uint32_t> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = get(p.data(), i, head_of(p).bits);
  return all;
}

std::vector<std::uint32_t> draw(std::size_t n, std::uint32_t top, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<std::uint32_t> all(n);
  for (std::uint32_t& v : all) v = rng() % 4 == 0 ? top : static_cast<std::uint32_t>(rng()) % (top + 1);
  return all;
}

// Six fields of 5 bits in a word: integer 16 is the second field of word 0, integer 96 starts the next group.
TEST(IntFields, FieldsFormGroups) {
  std::vector<std::uint32_t> numbers(98);
  numbers[0] = 3;
  numbers[16] = 5;
  numbers[81] = 31;
  numbers[97] = 9;
  const Payload p = payload_of(numbers, 2, 5);
  ASSERT_EQ(p.size(), 4 + 4 * (16 + 2));
  EXPECT_EQ(p[0], 2);
  EXPECT_EQ(p[2], 5);
  EXPECT_EQ(wire::get<std::uint32_t>(&p[4]), 3U | 5U << 5);
  EXPECT_EQ(wire::get<std::uint32_t>(&p[8]), 31U << 25);
  EXPECT_EQ(wire::get<std::uint32_t>(&p[4 + 4 * 17]), 9U);
}

TEST(IntFields, NumbersRoundTrip) {
  for (unsigned bits = 1; bits <= 16; ++bits)
    for (const std::size_t n : kSizes) {
      const auto numbers = draw(n, (1U << bits) - 1, bits);
      EXPECT_EQ(numbers_of(payload_of(numbers, 1, bits), n), numbers) << bits << " bits, " << n;
    }
}

// The largest integers, from the maximum number of workers for the width: no carry reaches the next field.
TEST(IntFields, SumsStayInTheirFields) {
  for (const Kernels* with : kBoth)
    for (const unsigned top : {1U, 2U, 14U, 15U, 30U, 255U})
      for (const unsigned workers : {1U, 2U, 3U, 4U, 7U, 16U, 85U, 256U}) {
        const unsigned bits = bits_for(top, workers);
        ASSERT_LE(bits, 16U);
        const std::size_t n = 1003;
        std::vector<std::uint32_t> want = draw(n, top, 0);
        Payload acc = payload_of(want, 1, bits);
        for (unsigned w = 1; w < workers; ++w) {
          const auto more = draw(n, top, w);
          for (std::size_t i = 0; i < n; ++i) want[i] += more[i];
          ASSERT_TRUE(add(*with, {"test", n, top, workers}, {}, acc, payload_of(more, 1, bits)).ok());
        }
        EXPECT_EQ(numbers_of(acc, n), want) << top << " from " << workers;
        EXPECT_EQ(head_of(acc).added, workers);
        EXPECT_TRUE(check(*with, {"test", n, top, workers}, acc).ok());
      }
}

TEST(IntFields, RefusesMoreRanksThanCounted) {
  const Form form = {"test", 40, 15, 16};
  const Payload one = payload_of(draw(40, 15, 1), 1, bits_for(15, 2));
  for (const Kernels* with : kBoth) {
    Payload acc = one;
    ASSERT_TRUE(add(*with, form, {}, acc, one).ok());
    const Payload two = acc;
    EXPECT_EQ(add(*with, form, {}, acc, one).code(), Code::kUnsupported);
    EXPECT_EQ(acc, two);
    Payload wider = payload_of(draw(40, 15, 1), 1, bits_for(15, 2) + 1);
    EXPECT_EQ(add(*with, form, {}, acc, wider).code(), Code::kCorrupt);
    EXPECT_EQ(acc, two);
  }

  std::uint8_t mine[2], other[2];
  wire::put(mine, std::uint16_t{9});
  wire::put(other, std::uint16_t{7});
  ASSERT_TRUE(count(form, {}, mine, other).ok());
  EXPECT_EQ(wire::get<std::uint16_t>(mine), 16);
  wire::put(mine, std::uint16_t{9});
  wire::put(other, std::uint16_t{8});
  const Status refused = count(form, {}, mine, other);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_NE(refused.what().find("raise workers=16"), std::string::npos) << refused.what();
  EXPECT_EQ(wire::get<std::uint16_t>(mine), 9);
  EXPECT_EQ(count(form, {.settings = {}, .ranks = 16}, mine, other).code(), Code::kCorrupt);
}

TEST(IntFields, CheckRefusesInvalidPayloads) {
  const Form form = {"test", 98, 15, 2};
  const Payload good = payload_of(draw(98, 15, 1), 1, 5);
  for (const Kernels* with : kBoth) {
    ASSERT_TRUE(check(*with, form, good).ok());
    const auto damaged = [&](std::size_t byte, std::uint8_t bits) {
      Payload p = good;
      p[byte] |= bits;
      return check(*with, form, p).code();
    };
    EXPECT_EQ(damaged(0, 2), Code::kCorrupt);       // 3 ranks
    EXPECT_EQ(damaged(2, 2), Code::kCorrupt);       // 7 bits
    EXPECT_EQ(damaged(3, 1), Code::kCorrupt);       // not 0
    EXPECT_EQ(damaged(4, 16), Code::kCorrupt);      // more than one payload's top
    EXPECT_EQ(damaged(7, 0x80), Code::kCorrupt);    // above the last field
    EXPECT_EQ(damaged(4 + 67, 1), Code::kCorrupt);  // after the last integer
    Payload none = good;
    none[0] = 0;
    EXPECT_EQ(check(*with, form, none).code(), Code::kCorrupt);
    EXPECT_EQ(check(*with, form, ByteView(good).first(good.size() - 4)).code(), Code::kCorrupt);
  }
}

TEST(IntFields, BothImplementationsFindTheLargest) {
  for (unsigned bits = 1; bits <= 16; ++bits)
    for (const std::size_t n : kSizes) {
      const Payload p = payload_of(draw(n, (1U << bits) - 1, bits + 7), 1, bits);
      std::uint32_t want = 0;
      for (const std::uint32_t number : numbers_of(p, n)) want = std::max(want, number);
      for (const Kernels* with : kBoth)
        EXPECT_EQ(with->largest(p.data() + kHead, words(n, bits), bits), want) << bits << " bits, " << n;
    }
}

}  // namespace
}  // namespace tithe::int_fields
