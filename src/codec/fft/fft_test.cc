// SPDX-License-Identifier: Apache-2.0
#include "codec/fft/fft.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "support/codec_run.h"
#include "support/draws.h"
#include "tithe/seam/catalogue.h"

namespace tithe::fft {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;
using harness::EncodeOutput;
using harness::send;

struct Ready {
  Call call;
  std::unique_ptr<std::uint8_t, decltype(&std::free)> scratch{nullptr, std::free};
};

std::unique_ptr<Ready> ready(const std::string& text, std::size_t n) {
  const Result<Spec> spec = parse_spec(text);
  EXPECT_TRUE(spec.ok()) << spec.status().what();
  auto r = std::make_unique<Ready>();
  r->call.settings = spec->settings;
  const std::size_t bytes = fft_codec.scratch(spec->settings, n);
  r->scratch.reset(static_cast<std::uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
  std::fill_n(r->scratch.get(), bytes, std::uint8_t{0x5a});
  r->call.scratch = {r->scratch.get(), bytes};
  return r;
}

double energy_of(const Floats& v) {
  return std::accumulate(v.begin(), v.end(), 0.0, [](double sum, float x) { return sum + double{x} * x; });
}

// The paper's packing: for [1, 0, 1, 0, 1, 0, 0] one bit each, and the three nonzero values without gaps.
TEST(Fft, SentBinsAreMarkedAndContiguous) {
  constexpr std::size_t n = 64;
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / n;
    v[i] = static_cast<float>(1 + 8 * std::cos(2 * angle) - 4 * std::sin(4 * angle));
  }
  const EncodeOutput t = send("fft:block=64,ratio=0.08,bits=10", v);  // 3 of 32 bins
  ASSERT_EQ(t.payload.size(), kHead + kBlockHead + 4 + 8U);           // 6 codes of 10 bits: 7.5 bytes
  EXPECT_EQ(wire::get<std::uint32_t>(&t.payload[kHead + kBlockHead]), 0b10101U);
  const auto codes = range::Codes::of({10, 6}, wire::get<std::uint32_t>(&t.payload[kHead]));
  const float want[] = {1, 0, 4, 0, 0, 2};  // mean | Nyquist | cosine: re | sine: im
  for (std::size_t j = 0; j < 6; ++j)
    EXPECT_EQ(codes.unpack(bit_packing::get(&t.payload[kHead + kBlockHead + 4], j, 10)), want[j]) << j;
  for (std::size_t i = 0; i < n; ++i) EXPECT_NEAR(t.values[i], v[i], 1e-5);
}

// theta = 0.85 and N = 10: with a bit for each bin, 2 bits a value are 1/16 of fp32 (the paper counts no bitmap: 21.3).
TEST(Fft, PayloadSizeOfThePapersSetting) {
  const Spec spec = *parse_spec("fft:ratio=0.15,bits=10");
  const std::size_t n = 1 << 24;
  const double bits = 8.0 * static_cast<double>(fft_codec.phases[0].bound(spec.settings, n)) / n;
  EXPECT_NEAR(bits, 2.0, 0.02);
}

// White noise has 43.5 % of its energy in 15 % of the frequencies: less than in 15 % of the values, 55.7 %. For
// signals with correlated adjacent values the opposite holds.
TEST(Fft, KeepsTheExpectedEnergyOfNoiseAndWaves) {
  Floats v = draws::bell(1 << 17, 1, 3);
  const EncodeOutput white = send("fft:ratio=0.15,bits=12", v);
  EXPECT_NEAR(1 - energy_of(white.residual_out) / energy_of(v), 0.435, 0.005);
  float walk = 0;
  for (float& x : v) x = walk = 0.95F * walk + x;
  const EncodeOutput alike = send("fft:ratio=0.15,bits=12", v);
  EXPECT_GT(1 - energy_of(alike.residual_out) / energy_of(v), 0.9);
}

// An impulse has the same energy in every bin.
TEST(Fft, EqualBinsGoToTheLowerIndex) {
  Floats v(128);
  v[0] = 1;
  const EncodeOutput t = send("fft:block=128,ratio=0.25", v);
  EXPECT_EQ(wire::get<std::uint64_t>(&t.payload[kHead + kBlockHead]), 0xFFFFU);
}

TEST(Fft, SpectraAreAddedBeforeASingleInverse) {
  const std::size_t n = 3 * 4096 + 700;
  const Floats v = draws::bell(n, 1, 5);
  Floats minus = v;
  for (float& x : minus) x = -x;
  const Bytes plus_payload = send("fft", v).payload, minus_payload = send("fft", minus).payload;
  const std::vector<ByteView> both = {plus_payload, minus_payload};
  const auto r = ready("fft", n);
  for (const Impl& impl : fft_codec.impls) {
    Floats out(n, 99.0F);
    ASSERT_TRUE(impl.decode(r->call, both, {}, out).ok());
    // Separate inverse transforms would differ in the last bits of their sum.
    EXPECT_EQ(out, Floats(n)) << impl.name;
  }
}

TEST(Fft, ImplementationsAgreeInEverySetting) {
  const Floats v = draws::bell(70'003, 1, 7);
  for (const char* spec :
       {"fft:block=16", "fft:block=32,ratio=1", "fft:block=64,ratio=0.0001", "fft:block=128,bits=4",
        "fft:block=100,bits=16,mantissa=14", "fft:block=512,ratio=0.9", "fft:block=1024,bits=7,mantissa=1",
        "fft:block=8192", "fft:block=65536,ratio=0.01"}) {
    const EncodeOutput t = send(spec, v);
    const double stated = fft_codec.traits.contraction(parse_spec(spec)->settings, v.size());
    EXPECT_LE(energy_of(t.residual_out), stated * energy_of(v)) << spec;
  }
}

TEST(Fft, AllBinsAndManyBitsAreNearlyLossless) {
  const Floats v = draws::bell(5000, 1, 9);
  const std::string text = "fft:ratio=1,bits=16,mantissa=11";
  EXPECT_LT(energy_of(send(text, v).residual_out), 1e-7 * energy_of(v));
  EXPECT_LE(fft_codec.traits.contraction(parse_spec(text)->settings, 5000), 1e-5);
}

TEST(Fft, ShortBlockIsPaddedToAPowerOfTwo) {
  for (const auto& [n, bins] : {std::pair{1, 8}, {16, 8}, {17, 16}, {700, 512}, {4095, 2048}}) {
    const EncodeOutput t = send("fft", draws::bell(static_cast<std::size_t>(n)));
    const auto kept = static_cast<std::size_t>((308 * bins + 2047) / 2048);
    EXPECT_EQ(t.payload.size(), kHead + kBlockHead + static_cast<std::size_t>(bins / 8) + 2 * kept) << n;
  }
}

TEST(Fft, ValuesNearTheLargestFloatDoNotOverflow) {
  constexpr float kMaxFloat = std::numeric_limits<float>::max();
  for (const float most : {kMaxFloat, 0x1p123F}) {
    Floats v(4096 + 100, most);
    v[1] = v[4097] = -most;
    const EncodeOutput t = send("fft", v);
    EXPECT_TRUE(t.finite);
    for (std::size_t i = 0; i < v.size(); ++i)
      ASSERT_TRUE(std::isfinite(t.values[i]) && std::isfinite(t.residual_out[i])) << i;
  }
}

TEST(Fft, NonFiniteBlockIsNotSent) {
  Floats v = draws::bell(3 * 4096, 1, 2);
  v[5000] = std::numeric_limits<float>::infinity();
  const std::size_t n = v.size();
  const auto r = ready("fft", n);
  for (const Impl& impl : fft_codec.impls) {
    Bytes payload(fft_codec.phases[0].bound(r->call.settings, n));
    const auto encoded = impl.encode(r->call, {v.data(), nullptr, nullptr, n}, payload);
    ASSERT_TRUE(encoded.ok());
    EXPECT_FALSE(encoded->finite);
    Floats out(n);
    const ByteView view(payload);
    ASSERT_TRUE(impl.decode(r->call, {&view, 1}, {}, out).ok());
    for (std::size_t i = 0; i < n; ++i)
      ASSERT_TRUE(std::isfinite(out[i]) && (i / 4096 != 1 || out[i] == 0)) << i;
  }
}

TEST(Fft, CheckRefusesInvalidPayloads) {
  const std::string text = "fft:block=64,bits=5";
  const Call call{.settings = parse_spec(text)->settings};
  // 5 bins: 10 codes of 5 bits, 6 bits are left.
  const Bytes good = send(text, draws::bell(64, 1, 4)).payload;
  const auto check = fft_codec.reference().check;
  ASSERT_TRUE(check(call, 64, good).ok());
  const auto with = [&](std::size_t at, std::uint8_t flip) {
    Bytes p = good;
    p[at] = static_cast<std::uint8_t>(p[at] ^ flip);
    return check(call, 64, p).code();
  };
  for (std::size_t at = 0; at < kHead; ++at) EXPECT_EQ(with(at, 1), Code::kCorrupt) << at;
  EXPECT_EQ(with(kHead + 3, 0x80), Code::kCorrupt);        // base beyond the largest float
  EXPECT_EQ(with(kHead + kBlockHead, 1), Code::kCorrupt);  // a bin more or less
  EXPECT_EQ(with(good.size() - 1, 0x80), Code::kCorrupt);
  EXPECT_EQ(with(good.size() - 1, 0x01), Code::kOk);
  EXPECT_EQ(check(call, 65, good).code(), Code::kCorrupt);
}

}  // namespace
}  // namespace tithe::fft
