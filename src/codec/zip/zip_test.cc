// SPDX-License-Identifier: Apache-2.0
#include "codec/zip/zip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "support/codec_run.h"
#include "support/targets.h"

namespace tithe::zip {
namespace {

using harness::bell;
using harness::Floats;
using harness::Payload;

Floats from_bits(const std::vector<std::uint32_t>& bits) {
  Floats out(bits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) out[i] = std::bit_cast<float>(bits[i]);
  return out;
}

// Rounded to bf16, as gradients under bf16 autocast are.
Floats halves(Floats x) {
  for (float& v : x) {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    v = std::bit_cast<float>((bits + 0x7fffU + (bits >> 16 & 1U)) & 0xffff0000U);
  }
  return x;
}

double share(const Payload& payload, std::size_t n) {
  return static_cast<double>(payload.size()) / static_cast<double>(4 * n);
}

// Sends x by every impl and instruction set; every bit is restored, finite or not, and all write the same bytes.
Payload there_and_back(const Floats& x) {
  Payload want;
  harness::on_every_target([&] {
    for (const Impl& impl : zip_codec.impls) {
      const harness::EncodeOutput sent = harness::encode(zip_codec, impl, {}, x, {}, harness::Keep::kNothing);
      if (want.empty()) want = sent.payload;
      EXPECT_EQ(harness::first_difference(sent.payload, want), "") << impl.name;
      const Status valid = impl.check({}, x.size(), sent.payload);
      EXPECT_TRUE(valid.ok()) << impl.name << ": " << valid.what();
      if (!valid.ok()) continue;
      const Floats got = harness::decode_one(zip_codec, impl, {}, x.size(), sent.payload);
      EXPECT_TRUE(harness::same_bits(got, x)) << impl.name;
    }
  });
  EXPECT_LE(want.size(), kHead * blocks_of(x.size()) + 4 * x.size());
  return want;
}

// ---- Losslessness

TEST(Zip, AllBf16PatternsRoundTrip) {
  std::vector<std::uint32_t> bits(65'536);
  for (std::uint32_t i = 0; i < bits.size(); ++i) bits[i] = i << 16;
  EXPECT_LT(there_and_back(from_bits(bits)).size(), 2 * bits.size());
  std::mt19937 rng(1);
  std::ranges::shuffle(bits, rng);
  EXPECT_LE(there_and_back(from_bits(bits)).size(), 2 * bits.size() + kHead * blocks_of(bits.size()));
}

TEST(Zip, AnyBitsRoundTrip) {
  std::mt19937 rng(2);
  for (const std::size_t n : {1, 7, 8, 9, 1023, 1024, 1025, 5000}) {
    std::vector<std::uint32_t> bits(n);
    for (const std::uint32_t kept :
         {0xffffffffU, 0x807fffffU, 0xff800000U, 0x80000000U, 0xffff0000U, 0x0000ffffU}) {
      for (std::uint32_t& b : bits) b = static_cast<std::uint32_t>(rng()) & kept;
      SCOPED_TRACE(testing::Message() << n << " values, bits " << kept);
      there_and_back(from_bits(bits));
    }
  }
}

// A window must not wrap from the last exponent to the first.
TEST(Zip, LargestFloatsAmongZerosRoundTrip) {
  for (const std::size_t n : {std::size_t{40}, kBlock}) {
    Floats x(n);
    for (std::size_t i = 0; i < n; i += 3)
      x[i] = (i % 2 == 0 ? 1 : -1) * std::ldexp(1.0F, 127 - static_cast<int>(i % 5));
    there_and_back(x);
  }
}

TEST(Zip, BlocksOfZerosHaveNoBody) {
  EXPECT_EQ(there_and_back(Floats(5000)).size(), kHead * 5);
  Floats x(3 * kBlock);
  x[kBlock + 5] = -0.0F;
  EXPECT_GT(there_and_back(x).size(), kHead * 3 + kBlock);
}

// A NaN or an infinity is reported, and restored too.
TEST(Zip, NonFiniteValuesAreReported) {
  for (const std::uint32_t bad : {0x7f800000U, 0xff800000U, 0x7f800001U, 0xffc12345U})
    for (const std::size_t at : {std::size_t{0}, kBlock - 1, kBlock + 2}) {
      Floats x = bell(kBlock + 3);
      x[at] = std::bit_cast<float>(bad);
      there_and_back(x);
      for (const Impl& impl : zip_codec.impls)
        EXPECT_FALSE(harness::encode(zip_codec, impl, {}, x).finite) << impl.name << " " << at;
    }
}

// ---- Sizes

TEST(Zip, NormalValuesShrink) {
  const std::size_t n = 64 * kBlock;
  const Floats x = bell(n, 1e-3F);
  EXPECT_LE(share(there_and_back(x), n), 1 / 1.17);
  EXPECT_LE(share(there_and_back(halves(x)), n), 0.37);
  EXPECT_LE(share(there_and_back(halves(x)), n), 0.5 / 1.4) << "of bf16";
}

// The size of a block with the best of all windows, including those that encode does not try.
std::size_t min_size(const Floats& x) {
  std::size_t least = kBlock;
  for (unsigned width = kMinWidth; width <= kMaxWidth; ++width)
    for (unsigned first = 0; first + span_of(width) <= kInf + 1; ++first) {
      const auto outside = std::ranges::count_if(x, [&](float v) {
        return ((exponent_of(std::bit_cast<std::uint32_t>(v)) - first) & kInf) >= span_of(width);
      });
      least = std::min(least, width * kBlock / 8 + static_cast<std::size_t>(outside));
    }
  return kHead + least + 3 * kBlock;
}

TEST(Zip, WindowsAreNearlyOptimal) {
  std::mt19937 rng(3);
  std::normal_distribution<float> normal;
  for (const float spread : {0.0F, 1.0F, 2.0F})    // of the scales of values
    for (const unsigned zeros : {0U, 50U, 90U}) {  // percent
      for (const float outlier : {1.0F, 1e3F}) {
        Floats x(kBlock);
        for (float& v : x) v = rng() % 100 < zeros ? 0.0F : normal(rng) * std::exp(spread * normal(rng));
        x[7] = outlier;
        EXPECT_LE(there_and_back(x).size(), min_size(x) + kBlock / kRest)
            << spread << " " << zeros << " " << outlier;
      }
    }
}

TEST(Zip, OutlierCostsAtMostTheUncompressedSize) {
  Floats x = bell(kBlock, 1e-3F);
  x[3] = 1e30F;
  EXPECT_LE(there_and_back(x).size(), kHead + 4 * kBlock);
}

// ---- Damage

TEST(Zip, CheckRefusesInvalidBlocks) {
  const std::size_t n = kBlock + 13;
  Floats x = bell(n);
  x[2] = 1e-20F;  // an escape at least
  const Payload good = there_and_back(x);
  const Head head = Head::read(good.data());
  ASSERT_EQ(head.width, 3U);
  ASSERT_GT(head.escapes, 0U);
  const std::size_t bodies = 2 * kHead, escaped = bodies + head.code_bytes(kBlock),
                    tail = bodies + head.body(kBlock);
  const auto refused = [&](std::size_t at, unsigned byte) {
    for (const Impl& impl : zip_codec.impls) {
      Payload bad = good;
      bad[at] = static_cast<std::uint8_t>(byte);
      EXPECT_EQ(impl.check({}, n, bad).code(), Code::kCorrupt) << impl.name << " byte " << at << " " << byte;
    }
  };
  for (const unsigned kind : {1U, 5U, 9U, 16U, 32U + 3U, 128U}) refused(0, kind);
  for (const unsigned first : {250U, 255U}) refused(1, first);
  refused(2, good[2] + 1U);
  refused(3, good[3] + 1U);
  refused(bodies, good[bodies] ^ 0xffU);
  refused(escaped, head.first);
  const Head last = Head::read(&good[kHead]);
  ASSERT_NE(last.width, kWhole);
  refused(tail + 1, good[tail + 1] | 0x80U);  // a bit past 13 values
}

TEST(Zip, ManyPayloadsAddInOrder) {
  const std::size_t n = 2 * kBlock + 100;
  for (const std::size_t count : {1U, 2U, 8U, 9U, 17U})
    for (const harness::Base base : {harness::Base::kNull, harness::Base::kInPlace}) {
      std::vector<Payload> payloads;
      Floats want = bell(n, 1e-3F, 99);
      const Floats onto = want;
      for (unsigned p = 0; p < count; ++p) {
        const Floats x = bell(n, 1e-3F, p);
        payloads.push_back(harness::send(zip_codec, {}, x).payload);
        for (std::size_t i = 0; i < n; ++i)
          want[i] = p == 0 && base == harness::Base::kNull ? x[i] : want[i] + x[i];
      }
      for (float& v : want) v /= 3;
      for (const Impl& impl : zip_codec.impls) {
        Floats got(n);
        ASSERT_TRUE(harness::decode(zip_codec, impl, {}, payloads, base, onto, 3, got).ok());
        EXPECT_TRUE(harness::same_bits(got, want)) << impl.name << " " << count;
      }
    }
}

}  // namespace
}  // namespace tithe::zip
