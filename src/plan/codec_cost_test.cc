// SPDX-License-Identifier: Apache-2.0
// Compares the formulas of codec_cost.h with exhaustive search, and tests the effect of a link on a plan.
#include "plan/codec_cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tithe/seam/catalogue.h"
#include "tithe/seam/plan.h"

namespace tithe {
namespace {

using plan::best_parts;
using plan::codec_cost_of;
using plan::min_worth;
using plan::seconds;
using plan::seconds_among_others;

TEST(CodecCost, BestPartSizeIsOptimal) {
  for (const double compute : {0.1e-9, 1e-9, 30e-9})
    for (const double wire : {0.02e-9, 1e-9, 80e-9})
      for (const double frames : {5e-6, 100e-6, 2e-3})
        for (const std::size_t n : {1UL, 1000UL, 300'000UL, 20'000'000UL}) {
          const CodecCost cost{.compute = compute, .inside = 2e-9, .wire = wire, .frames = frames};
          std::size_t best = 1;
          for (std::size_t k = 2; k <= 2000; ++k)
            if (seconds(cost, n, k) < seconds(cost, n, best)) best = k;
          EXPECT_EQ(best_parts(cost, n), best) << compute << ' ' << wire << ' ' << frames << ' ' << n;
        }
}

TEST(CodecCost, CodecsPayAboveABreakEvenSize) {
  const CodecCost uncompressed{.compute = 0.3e-9, .wire = 8e-9, .frames = 40e-6},
      codec{.compute = 1e-9, .wire = 0.3e-9, .frames = 40e-6};
  const auto least = [](const CodecCost& alone, const CodecCost& together, bool same) {
    const StrategyOption option{.cost = alone};
    return min_worth({&option, 1}, together, same);
  };
  const std::size_t n = least(codec, uncompressed, false);
  const auto alone = [&](std::size_t values) { return seconds_among_others(codec, values); };
  const auto shared = [&](std::size_t values) {
    return static_cast<double>(values) * seconds_among_others(uncompressed, kDefaultPartValues) /
           static_cast<double>(kDefaultPartValues);
  };
  EXPECT_LE(alone(n), shared(n));
  EXPECT_GT(alone(n - 1), shared(n - 1));
  EXPECT_EQ(least(uncompressed, codec, false), kDefaultMinValues) << "the codec is slower for all sizes";
  // Uncompressed tensors gain nothing from their own frames, so the cost of the frames must be small.
  EXPECT_EQ(least(uncompressed, uncompressed, true),
            static_cast<std::size_t>(std::ceil(uncompressed.frames / (0.1 * uncompressed.wire))));
}

TEST(CodecCost, TheMostLoadedResourceDecides) {
  const CodecCost cost{.compute = 1e-9, .inside = 2e-9, .wire = 4e-9, .frames = 40e-6, .delay = 1e-3};
  const auto of = [&](double n) { return seconds_among_others(cost, static_cast<std::size_t>(n)); };
  const auto delay = [](double n) { return 1e-3 * (plan::kSeen + plan::kSeenOfBucket * n / 6.25e6); };
  EXPECT_NEAR(of(1000), 40e-6 + delay(1000), 1e-3 * 40e-6) << "the frames dominate";
  EXPECT_DOUBLE_EQ(of(1e6), 4e-3 * std::pow(1 + 1.0 / 16 + 1.0 / 256 + 1e-8, 0.25) + delay(1e6))
      << "the wire, with a small influence of the less busy resources";
  EXPECT_NEAR(seconds_among_others(cost, 1000, 200), 8e-3 + delay(1000), 1e-3 * 8e-3)
      << "the frames of many parts dominate";
}

TEST(CodecCost, FlowsOfOneHostDoNotReduceTheRateAndLocalTrafficCosts) {
  const Hosts two = *Hosts::parse("2x2", 4), four = *Hosts::parse("4x2", 8);
  const Spec uncompressed = *parse_spec("fp32");
  const Link link{1e9, 1e-5};
  const Strategy& server = *find_strategy("server");
  EXPECT_DOUBLE_EQ(codec_cost_of(uncompressed, server, {.world = 4, .hosts = &two}, link).wire, 4e-9 * 2)
      << "2 L (H-1)/H";
  EXPECT_DOUBLE_EQ(codec_cost_of(uncompressed, server, {.world = 8, .hosts = &four}, link).wire,
                   4e-9 * 3 / plan::kManyToOne);
  // 4 ranks send 1.5 payloads each; 2 payloads leave each of the two hosts.
  EXPECT_DOUBLE_EQ(codec_cost_of(uncompressed, server, {.world = 4, .hosts = &two}, link).inside,
                   4 * (2 * 1.5 - 2) / plan::kInsideRate);
  EXPECT_EQ(codec_cost_of(uncompressed, server, {.world = 4}, link).inside, 0);
}

TEST(CodecCost, EveryCodecHasACost) {
  for (const Codec* codec : all_codecs())
    for (const Strategy* strategy : all_strategies()) {
      const Spec spec = *parse_spec(codec->name);
      const CodecCost slow = codec_cost_of(spec, *strategy, {.world = 4}, {1e8, 1e-4}),
                      fast = codec_cost_of(spec, *strategy, {.world = 4}, {1e9, 1e-5});
      EXPECT_GT(slow.compute, 0) << codec->name;
      EXPECT_NEAR(slow.wire, 10 * fast.wire, 1e-3 * slow.wire) << codec->name;
      EXPECT_EQ(slow.frames, fast.frames)
          << codec->name << ": the work of a rank per frame, not the transfer";
      const CodecCost quick = codec_cost_of(spec, *strategy, {.world = 4}, {1e9, plan::kHandling / 2});
      EXPECT_NEAR(fast.frames, 2 * quick.frames, 1e-3 * fast.frames) << codec->name;
    }
}

TEST(CodecCost, Links) {
  EXPECT_EQ(*parse_link(""), Link{});
  EXPECT_FALSE(parse_link("")->known());
  EXPECT_DOUBLE_EQ(parse_link("10Gb/s")->bytes_per_second, 1.25e9);
  EXPECT_EQ(parse_link("10Gb/s")->seconds_per_frame, Link{}.seconds_per_frame);
  EXPECT_DOUBLE_EQ(parse_link("1.5MB/s+20us")->bytes_per_second, 1.5e6);
  EXPECT_DOUBLE_EQ(parse_link("1.5MB/s+20us")->seconds_per_frame, 20e-6);
  for (const char* wrong : {"10", "10G", "Gb/s", "-1Gb/s", "0Gb/s", "infGb/s", "1e308Gb/s", "1Gb/s+",
                            "1Gb/s+5", "1Gb/s 5us", "1gbits", "1GBit", "1gbps", "1Gib/s", " 1gbit"}) {
    const Result<Link> link = parse_link(wrong);
    ASSERT_FALSE(link.ok()) << wrong;
    EXPECT_NE(link.status().what().find("such as 10Gb/s"), std::string::npos);
  }
}

TEST(CodecCost, LinkOptionCanNameTheLocalLink) {
  const Link link = *parse_link("25Gb/s+30us, inside 10GB/s+9us");
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 3.125e9);
  EXPECT_DOUBLE_EQ(link.seconds_per_frame, 30e-6);
  EXPECT_DOUBLE_EQ(link.inside_bytes_per_second, 1e10);
  EXPECT_DOUBLE_EQ(link.inside_seconds_per_frame, 9e-6);
  EXPECT_EQ(parse_link("25Gb/s, inside 10GB/s")->inside_seconds_per_frame, 0);
  for (const char* wrong :
       {"25Gb/s, inside ", "25Gb/s, inside fast", ", inside 10GB/s", "25Gb/s,inside 10GB/s"})
    EXPECT_FALSE(parse_link(wrong).ok()) << wrong;
}

TEST(CodecCost, SlowLocalLinkCostsItsTraffic) {
  const Hosts hosts = *Hosts::parse("4x8", 32);
  const Place at{.world = 32, .hosts = &hosts};
  const Spec fp8 = *parse_spec("fp8");
  const Strategy& strategy = *find_strategy("hosts");
  const Link link = *parse_link("25Gb/s+30us, inside 5GB/s+9us");
  const CodecCost uncompressed = codec_cost_of(fp8, strategy, at, link),
                  small = codec_cost_of(fp8, strategy, at, link, &fp8);
  const CodecCost assumed = codec_cost_of(fp8, strategy, at, *parse_link("25Gb/s+30us"));
  EXPECT_DOUBLE_EQ(uncompressed.inside, 2 * assumed.inside) << "the link inside has half of kInsideRate";
  EXPECT_LT(uncompressed.delay, assumed.delay);
  EXPECT_LT(small.inside, 0.5 * uncompressed.inside);
  EXPECT_GT(small.compute, uncompressed.compute);
  EXPECT_EQ(small.wire, uncompressed.wire);
}

TEST(CodecCost, LinkOptionAcceptsTcSyntax) {
  for (const char* text :
       {"1Gb/s", "1gb/s", "1gbit", "1Gbit", "1Gbit/s", "1000mbit", "1000Mb/s", "1000000kbit", "125MB/s"}) {
    const Result<Link> link = parse_link(text);
    ASSERT_TRUE(link.ok()) << link.status().what();
    EXPECT_DOUBLE_EQ(link->bytes_per_second, 1.25e8) << text;
  }
  EXPECT_DOUBLE_EQ(parse_link("512kbit+2ms")->seconds_per_frame, 2e-3);
}

std::size_t largest_part(const Choices& choices, std::size_t n) {
  const PlanTensor bucket[] = {{"w", n}};
  std::size_t most = 0;
  for (const Part& p : make_plan(bucket, choices).parts) most = std::max(most, p.n);
  return most;
}

TEST(CodecCost, PlanDependsOnTheLink) {
  const auto with = [](std::string_view link, std::string_view rules = "{}", ChoiceDefaults defaults = {}) {
    defaults.spec = *parse_spec("fp8");
    defaults.strategy = find_strategy("server");
    defaults.world = 4;
    defaults.link = *parse_link(link);
    return *Choices::make(*parse_rules(rules), defaults);
  };
  constexpr std::size_t kLarge = 30'000'000;
  EXPECT_EQ(largest_part(with(""), kLarge), (kLarge + 28) / 29) << "without a link, payloads of about 1 MiB";
  EXPECT_EQ(with("").min_values(), kDefaultMinValues);
  const CodecCost cost =
      codec_cost_of(*parse_spec("fp8"), *find_strategy("server"), {.world = 4}, *parse_link("1Gb/s"));
  EXPECT_EQ(largest_part(with("1Gb/s"), kLarge),
            (kLarge + best_parts(cost, kLarge) - 1) / best_parts(cost, kLarge));
  EXPECT_LE(largest_part(with("10Gb/s+10ms"), kLarge), kDefaultPartValues)
      << "a part never exceeds the default size";
  EXPECT_LT(with("100Mb/s").min_values(), with("1Gb/s+200us").min_values());
  // Configured values stay unchanged.
  EXPECT_EQ(with("100Mb/s", "{}", {.spec = {}, .min_values = 77}).min_values(), 77U);
  EXPECT_EQ(largest_part(with("100Mb/s", "{}", {.spec = {}, .part_values = 1U << 20}), 1U << 22), 1U << 20);
  EXPECT_EQ(largest_part(with("100Mb/s", R"({"w": {"part_values": "1Mi"}})"), 1U << 22), 1U << 20);
}

}  // namespace
}  // namespace tithe
