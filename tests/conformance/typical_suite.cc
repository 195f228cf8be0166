// SPDX-License-Identifier: Apache-2.0
// The codecs' expected payload sizes for gradients (codec/typical.h) against encode's results for normally
// distributed values in rounds with feedback, as in a session: within a tenth, at default settings. So a prediction
// never uses a bound by mistake.
#include <gtest/gtest.h>

#include <vector>

#include "advisor/measure/codec_speed.h"
#include "advisor/measure/gradients.h"
#include "codec/typical.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

class Typical : public ::testing::TestWithParam<const Codec*> {};

// The mean payload of rounds with a stationary residual; 0 if encode failed.
double mean_payload(const Codec& codec, std::size_t n) {
  const std::uint32_t rounds = codec.traits.fixed_size ? 1 : 60, settled = rounds / 2;
  const Settings settings = defaults(codec);
  const Impl& impl = codec.best(this_machine());
  const std::size_t bound = codec.phases[0].bound(settings, n);
  const sim::Scratch scratch(codec.scratch(settings, n));
  std::vector<std::uint8_t> payload(bound), memory(codec.memory != nullptr ? codec.memory(settings, n) : 0);
  std::vector<float> residual(n);
  double bytes = 0;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const std::vector<float> gradient = sim::synthetic_gradients(n, round + 1);
    Call call{.settings = settings, .seed = 7, .round = round, .scratch = scratch.all(), .memory = memory};
    float* left = codec.traits.lossless ? nullptr : residual.data();
    const Result<Encoded> e = impl.encode(call, {gradient.data(), left, left, n}, payload);
    EXPECT_TRUE(e.ok()) << e.status().what();
    if (!e.ok()) return 0;
    if (round >= settled) bytes += static_cast<double>(e->bytes) / (rounds - settled);
  }
  return bytes;
}

TEST_P(Typical, IsWithinATenthOfEncodedSizes) {
  const Codec& codec = *GetParam();
  for (const std::size_t n : {std::size_t{10'000}, std::size_t{200'000}}) {
    SCOPED_TRACE(testing::Message() << codec.name << ", " << n << " values");
    const double sent = mean_payload(codec, n);
    const auto stated = static_cast<double>(codec::expected_bytes(codec, 0, defaults(codec), n));
    EXPECT_NEAR(stated / sent, 1, 0.1) << "stated " << stated << ", sent " << sent;
    EXPECT_LE(stated, static_cast<double>(codec.phases[0].bound(defaults(codec), n)));
  }
}

std::vector<const Codec*> first_phases() { return {all_codecs().begin(), all_codecs().end()}; }

INSTANTIATE_TEST_SUITE_P(Codecs, Typical, ::testing::ValuesIn(first_phases()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(TypicalSizes, AreExactForFixedSizes) {
  EXPECT_FALSE(codec::size_varies(*find_codec("bf16")));
  EXPECT_TRUE(codec::size_varies(*find_codec("dragonn")));
  const Settings s = defaults(*find_codec("bf16"));
  EXPECT_EQ(codec::expected_bytes(*find_codec("bf16"), 0, s, 1000),
            find_codec("bf16")->phases[0].bound(s, 1000));
}

}  // namespace
}  // namespace tithe
