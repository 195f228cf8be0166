// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/delta/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "codec/shared/delta/delta_passes.h"
#include "codec/shared/floats/bf16_format.h"

namespace tithe::delta {
namespace {

using Values = std::vector<std::uint16_t>;

double uniform(std::uint64_t seed, std::uint64_t i) {
  return (static_cast<double>(mix64(seed ^ mix64(i)) >> 11) + 0.5) * 0x1p-53;
}
double normal(std::uint64_t seed, std::uint64_t i) {
  return std::sqrt(-2 * std::log(uniform(seed, 2 * i))) *
         std::cos(2 * std::numbers::pi * uniform(seed, 2 * i + 1));
}

// Weights of this rms, rounded to bf16 before and after an update of this size.
std::pair<Values, Values> step(std::size_t n, double rms, double update) {
  Values before(n), now(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double w = rms * normal(1, i);
    before[i] = bf16::Format::pack(static_cast<float>(w));
    now[i] = bf16::Format::pack(static_cast<float>(w + update * normal(2, i)));
  }
  return {before, now};
}

Values random(std::size_t n, std::uint64_t seed) {
  Values out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint16_t>(mix64(seed + i));
  return out;
}

std::vector<std::uint8_t> encoded(Format format, const Values& before, const Values& now) {
  std::vector<std::uint8_t> out(bound(now.size()));
  const std::size_t bytes = encode(format, before, now, out);
  EXPECT_LE(bytes, out.size());
  out.resize(bytes);
  return out;
}

// Bits per value of the difference in ulps, if the exponent of the previous value is known.
double conditional_entropy(const Values& before, const Values& now) {
  const auto ordered = [](std::uint16_t v) {
    return v >> 15 != 0 ? -static_cast<int>(v & 0x7fff) - 1 : static_cast<int>(v);
  };
  std::map<int, std::map<int, double>> counts;
  for (std::size_t i = 0; i < now.size(); ++i)
    ++counts[before[i] >> 7 & 0xff][ordered(now[i]) - ordered(before[i])];
  double bits = 0;
  for (const auto& [exponent, of] : counts) {
    double total = 0;
    for (const auto& [d, count] : of) total += count;
    for (const auto& [d, count] : of) bits -= count * std::log2(count / total);
  }
  return bits / static_cast<double>(now.size());
}

TEST(Delta, IsLosslessForAnyBits) {
  for (const Format format : {Format::kBf16, Format::kFp16})
    for (const std::size_t n : {0U, 1U, 7U, 100U, 1000U, 5000U, 300'000U}) {
      const auto [before, near] = step(n, 0.02, 1e-4);
      for (const Values& now : {near, before, random(n, 3), Values(n, 0x7fc0), Values(n, 0x8000)}) {
        const std::vector<std::uint8_t> payload = encoded(format, before, now);
        Values out = before;  // in place
        const Status s = decode(format, out, payload, out);
        ASSERT_TRUE(s.ok()) << s.what();
        ASSERT_EQ(out, now) << n;
      }
    }
}

TEST(Delta, SimdEqualsTheReference) {
  for (const Format format : {Format::kBf16, Format::kFp16})
    for (const std::size_t n : {1U, 31U, 33U, 2'000U, 70'003U, 300'000U})
      for (const double update : {1e-5, 2e-4, 2e-3}) {
        const auto [before, now] = step(n, 0.02, update);
        std::vector<std::uint8_t> reference(bound(n)), simd(bound(n));
        reference.resize(encode_by(kReference, format, before, now, reference));
        simd.resize(encode_by(kSimd, format, before, now, simd));
        ASSERT_EQ(simd, reference) << n << " values, updates of " << update;
        for (const Passes* passes : {&kReference, &kSimd}) {
          Values out(n);
          ASSERT_TRUE(decode_by(*passes, format, before, simd, out).ok());
          ASSERT_EQ(out, now);
        }
      }
}

// The encoder's division is exact for every frequency and for the states around each multiple of it.
TEST(Delta, ReciprocalsDivideExactly) {
  EncodeTable table{};
  for (std::uint32_t f = 1; f <= kScale; ++f) {
    table[0] = encode_entry(f, 0);
    for (std::uint64_t k = 1; k <= std::uint64_t{1} << kFullBits; k = k * 5 / 4 + 1)
      for (const std::uint64_t x : {k * f - 1, k * f}) {
        if (x < 32 || x >= std::uint64_t{f} << kFullBits) continue;  // 2^(kFullBits - 16) at least
        const Context context = 0;
        States states{static_cast<std::uint32_t>(x)};
        std::array<std::uint16_t, 9> units{};
        kReference.code(table, &context, 1, states, units.data() + units.size());
        ASSERT_EQ(states[0], x / f * kScale + x % f) << "frequency " << f << ", state " << x;
      }
  }
}

TEST(Delta, SizeIsNearTheConditionalEntropy) {
  for (const double update : {2e-5, 6e-5, 2e-4, 4e-4}) {
    const auto [before, now] = step(1'000'000, 0.02, update);
    const double bits = 8.0 * static_cast<double>(encoded(Format::kBf16, before, now).size()) / 1e6;
    const double entropy = conditional_entropy(before, now);
    EXPECT_LT(bits, 1.05 * entropy) << update;
    EXPECT_GT(bits, 0.3);
  }
}

TEST(Delta, SizeIsBoundedForIncompressibleData) {
  const Values before = random(100'000, 1), now = random(100'000, 2);
  EXPECT_LE(encoded(Format::kBf16, before, now).size(), 202'000U);
}

TEST(Delta, NeedsTheSameCopyOfPreviousValues) {
  const auto [before, now] = step(10'000, 0.02, 1e-4);
  const std::vector<std::uint8_t> payload = encoded(Format::kBf16, before, now);
  Values other = before;
  other[77] = static_cast<std::uint16_t>(other[77] ^ 1);
  Values out = other;
  EXPECT_EQ(decode(Format::kBf16, other, payload, out).code(), Code::kMismatch);
  EXPECT_EQ(out, other);
}

// Every byte changed, every length: an error or the same values, never a crash.
TEST(Delta, DamagedPayloadsAreChecked) {
  const auto [before, now] = step(2'000, 0.02, 2e-4);
  const std::vector<std::uint8_t> payload = encoded(Format::kBf16, before, now);
  Values out(now.size());
  for (std::size_t length = 0; length < payload.size(); ++length)
    EXPECT_FALSE(decode(Format::kBf16, before, ByteView(payload).first(length), out).ok());
  for (std::size_t at = 0; at < payload.size(); ++at)
    for (const int flip : {1, 0x80, 0xff}) {
      std::vector<std::uint8_t> damaged = payload;
      damaged[at] = static_cast<std::uint8_t>(damaged[at] ^ flip);
      const Code simd = decode_by(kSimd, Format::kBf16, before, damaged, out).code();
      ASSERT_EQ(simd, decode_by(kReference, Format::kBf16, before, damaged, out).code()) << "byte " << at;
    }
  std::vector<std::uint8_t> longer = payload;
  longer.push_back(0);
  EXPECT_EQ(decode(Format::kBf16, before, longer, out).code(), Code::kCorrupt);
}

TEST(Delta, WordsRoundTripAnyBytes) {
  for (const std::size_t bytes : {0U, 1U, 2U, 3U, 4U, 1000U, 1019U, 1020U, 1021U, 5000U}) {
    std::vector<std::uint8_t> payload(bytes), room(bytes + 10);
    for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::uint8_t>(mix64(i));
    std::vector<float> carried(words(bytes) + 5, NAN);
    pack(payload, carried);
    EXPECT_TRUE(std::ranges::all_of(carried, [](float v) { return std::isfinite(v); }));
    const Result<std::size_t> got = unpack(carried, room);
    ASSERT_TRUE(got.ok());
    ASSERT_EQ(*got, bytes);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), room.begin()));
  }
  // A group with every exponent but one, 255 among them.
  std::vector<std::uint8_t> all(4 * 255), back(all.size());
  for (std::uint32_t k = 0; k < 255; ++k) wire::put(&all[4 * k], (k < 17 ? k : k + 1) << 23 | 1U << 31);
  std::vector<float> packed(words(all.size()));
  pack(all, packed);
  EXPECT_TRUE(std::ranges::all_of(packed, [](float v) { return std::isfinite(v); }));
  ASSERT_TRUE(unpack(packed, back).ok());
  EXPECT_EQ(back, all);
  std::vector<std::uint8_t> room(10);
  EXPECT_FALSE(unpack(std::vector<float>{1}, room).ok());
  EXPECT_FALSE(unpack(std::vector<float>(8, 0.0F), room).ok());
  std::vector<float> carried(words(30));
  pack(std::vector<std::uint8_t>(30), carried);
  EXPECT_FALSE(unpack(carried, room).ok()) << "more bytes than room";
  carried[2] = 0.0F;
  std::vector<std::uint8_t> enough(30);
  EXPECT_FALSE(unpack(carried, enough).ok());
}

}  // namespace
}  // namespace tithe::delta
