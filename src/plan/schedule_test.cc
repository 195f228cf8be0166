// SPDX-License-Identifier: Apache-2.0
#include "tithe/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr std::uint64_t kLate = 1'000'000;

Result<Schedule> parse(std::string_view text, std::string_view codec = "topk") {
  return Schedule::parse(text, *parse_spec(codec));
}

Schedule made(std::string_view text, std::string_view codec = "topk") { return *parse(text, codec); }

TEST(Schedule, NoneKeepsTheRatioOfAnyCodec) {
  for (const char* text : {"", "none"}) {
    EXPECT_FALSE(made(text, "onebit").active());
    EXPECT_TRUE(made(text).ratios().empty());
    EXPECT_EQ(made(text).text(), "");
  }
}

// Lin et al. 2018: sparsity 75, 93.75, 98.4375, 99.6 and 99.9 %.
TEST(Schedule, WarmupMatchesTheDgcPaper) {
  const Schedule s = made("warmup:8", "dgc:ratio=0.001");
  const double paper[] = {0.25, 0.0625, 0.015625, 0.004};
  for (std::uint64_t round = 0; round < 8; ++round)
    EXPECT_NEAR(s.ratio(round) / paper[round / 2], 1, 0.02) << "round " << round;
  EXPECT_EQ(s.ratio(8), 0.001);
  EXPECT_EQ(s.ratio(kLate), 0.001);
}

TEST(Schedule, WarmupFallsByEqualFactorsAndNeverBelowTheTarget) {
  const Schedule s = made("warmup:4", "topk:ratio=0.01");
  for (std::uint64_t round = 0; round < 4; ++round)
    EXPECT_NEAR(s.ratio(round + 1) / s.ratio(round), std::pow(0.04, 0.25), 1e-12);
  const Schedule wide = made("warmup:4", "topk:ratio=0.5");
  for (std::uint64_t round = 0; round < 6; ++round) EXPECT_EQ(wide.ratio(round), 0.5);
}

// Wang et al. 2020, theorem 3.5: theta^2 = L eta, theta = 1 - ratio.
TEST(Schedule, ThetaFollowsTheLearningRate) {
  Schedule s = made("theta:2", "topk:ratio=0.01");
  EXPECT_EQ(s.ratio(0), 0.01) << "learning_rate() was not called yet";
  double last = 0.01;
  for (const double eta : {10.0, 0.4, 0.2, 0.05, 0.005, 1e-6, 1e-12}) {
    ASSERT_TRUE(s.learning_rate(eta).ok());
    const double theta = std::sqrt(2 * eta);
    const double least = std::max(0.01, 1 - theta);
    EXPECT_GE(s.ratio(kLate), least) << eta;
    EXPECT_LE(s.ratio(kLate), std::min(1.0, least * 1.19)) << eta;
    EXPECT_GE(s.ratio(kLate), last) << "theta decreases with the rate";
    last = s.ratio(kLate);
  }
  EXPECT_EQ(last, 1);
}

TEST(Schedule, RefusesInvalidLearningRates) {
  Schedule s = made("theta:2");
  for (const double bad : {0.0, -1.0, kInf, std::nan("")})
    EXPECT_EQ(s.learning_rate(bad).code(), Code::kInvalid);
  EXPECT_EQ(s.state(), Schedule::State{});
}

TEST(Schedule, RecoverRaisesTheRatioWhileTheLossIsWorse) {
  Schedule s = made("recover:0.1", "topk:ratio=0.01");
  const std::pair<double, double> steps[] = {
      {1.0, 0.01}, {0.8, 0.01},  {0.87, 0.01}, {0.9, 0.04}, {0.95, 0.16}, {0.89, 0.64}, {0.9, 1},
      {0.9, 1},    {0.85, 0.64}, {0.7, 0.16},  {0.6, 0.04}, {0.5, 0.01},  {0.4, 0.01}};
  for (const auto& [loss, ratio] : steps) {
    s.evaluated(loss);
    EXPECT_DOUBLE_EQ(s.ratio(kLate), ratio) << "after loss " << loss;
  }
}

TEST(Schedule, NanLossCountsAsWorse) {
  Schedule s = made("recover");
  s.evaluated(std::nan(""));
  EXPECT_DOUBLE_EQ(s.ratio(0), 0.04);
  s.evaluated(kInf);
  EXPECT_DOUBLE_EQ(s.ratio(0), 0.16);
  s.evaluated(3.0);
  EXPECT_DOUBLE_EQ(s.ratio(0), 0.04);
  s.evaluated(2.0);
  EXPECT_DOUBLE_EQ(s.ratio(0), 0.01);
}

TEST(Schedule, NegativeLossesCountAsWorseWhenTheyRise) {
  Schedule s = made("recover:0.1");
  s.evaluated(-10.0);
  s.evaluated(-9.5);
  EXPECT_EQ(s.state().steps, 0U);
  s.evaluated(-8.0);
  EXPECT_EQ(s.state().steps, 1U);
}

TEST(Schedule, WithoutRecoverLossesAreIgnored) {
  Schedule s = made("warmup:4");
  s.evaluated(1.0);
  s.evaluated(100.0);
  EXPECT_EQ(s.state(), Schedule::State{});
}

TEST(Schedule, RatiosListsEveryRatio) {
  for (const char* codec : {"topk:ratio=0.01", "qtopk:ratio=0.000001", "dgc:ratio=0.3", "blocks"})
    for (const char* text : {"warmup:5", "theta:0.7", "recover", "warmup:5+theta:0.7+recover:0.2"}) {
      Schedule s = made(text, codec);
      const std::vector<double> listed = s.ratios();
      double loss = 1;
      for (std::uint64_t round = 0; round < 200; ++round) {
        ASSERT_TRUE(s.learning_rate(2.0 / static_cast<double>(1 + round * round)).ok());
        s.evaluated(round / 10 % 2 == 0 ? loss *= 1.5 : loss *= 0.6);
        const double r = s.ratio(round / 20);
        ASSERT_NE(std::find(listed.begin(), listed.end(), r), listed.end())
            << codec << " " << text << " " << r;
      }
      for (const double r : listed) EXPECT_TRUE(r > 0 && r <= 1) << r;
    }
}

TEST(Schedule, ReportedRatesAndLossesCanBeRestored) {
  Schedule a = made("warmup:5+theta:0.7+recover");
  a.evaluated(1.0);
  a.evaluated(2.0);
  ASSERT_TRUE(a.learning_rate(0.1).ok());
  Schedule b = made("warmup:5+theta:0.7+recover");
  EXPECT_NE(a.ratio(9), b.ratio(9));
  b.restore(a.state());
  EXPECT_EQ(a.ratio(9), b.ratio(9));
  for (Schedule* s : {&a, &b}) s->evaluated(0.9);
  EXPECT_EQ(a.state(), b.state());
}

TEST(Schedule, TextsRoundTrip) {
  for (const char* text : {"warmup:400", "theta:0.5", "recover:0.05", "warmup:400+theta:2+recover:0.1"})
    EXPECT_EQ(made(text).text(), text);
  EXPECT_EQ(made("recover+warmup:3").text(), "warmup:3+recover:0.05");
}

TEST(Schedule, InvalidTextsAreRefusedWithTheReason) {
  const std::pair<const char*, const char*> wrong[] = {
      {"warm:4", "warmup:ROUNDS"},       {"warmup", "warmup:ROUNDS"},     {"warmup:", "number"},
      {"warmup:0", "more than 0"},       {"warmup:2.5", "whole"},         {"warmup:4x", "number"},
      {"theta:-1", "more than 0"},       {"theta:nan", "more than 0"},    {"recover:1e10", "at most"},
      {"warmup:4+warmup:5", "twice"},    {"warmup:4+", "after the last"}, {"+warmup:4", "warmup:ROUNDS"},
      {"none+warmup:4", "warmup:ROUNDS"}};
  for (const auto& [text, why] : wrong) {
    const Result<Schedule> got = parse(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_EQ(got.status().code(), Code::kInvalid);
    EXPECT_NE(got.status().what().find(why), std::string::npos) << text << ": " << got.status().what();
  }
  const Result<Schedule> no_ratio = parse("warmup:4", "onebit");
  ASSERT_FALSE(no_ratio.ok());
  EXPECT_NE(no_ratio.status().what().find("onebit has no parameter 'ratio'"), std::string::npos);
}

}  // namespace
}  // namespace tithe
