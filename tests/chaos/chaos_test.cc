// SPDX-License-Identifier: Apache-2.0
// Seeded jobs: README.md in this folder describes the random parameters and how to repeat a seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "chaos/oracles.h"
#include "support/pairs.h"

namespace tithe::chaos {
namespace {

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The fault's position, from the event counts of an undisturbed run.
Fault placed(const Plot& plot, const Course& calm) {
  Fault f = plot.fault;
  const double most =
      static_cast<double>(calm.counts[static_cast<std::size_t>(f.who)][static_cast<std::size_t>(f.point)]);
  f.count = 1 + static_cast<std::uint64_t>(plot.place * most);
  return f;
}

// The states from which all ranks can restart after the same number of rounds; empty if there are none.
std::vector<Bytes8> states_of(const Course& course, const Fault& fault, int& round) {
  round = -1;
  for (std::size_t r = 0; r < course.ends.size(); ++r)
    if (survives(course, fault, static_cast<Rank>(r))) round = std::max(round, course.ends[r].committed);
  std::vector<Bytes8> states;
  for (std::size_t r = 0; r < course.ends.size() && round >= 0; ++r) {
    const RankEnd& end = course.ends[r];
    if (end.committed == round && !end.state.empty())
      states.push_back(end.state);
    else if (round > 0 && !course.rounds[r][static_cast<std::size_t>(round - 1)].saved.empty())
      states.push_back(course.rounds[r][static_cast<std::size_t>(round - 1)].saved);
    else
      return {};
  }
  return states;
}

std::vector<Breach> play(const Plot& plot) {
  const Course calm =
      run(plot, {.weather = {}, .fault = {}, .lanes = 0, .from = 0, .to = plot.rounds, .gpus = false});
  Oracles oracles(plot, calm);
  oracles.judge_calm();
  const Fault fault = placed(plot, calm);
  const int to = plot.restart >= 0 ? plot.restart : plot.rounds;
  const Course course =
      run(plot, {.weather = plot.weather, .fault = fault, .lanes = plot.lanes, .from = 0, .to = to});
  oracles.judge(course, fault, 0, to);
  int round = 0;
  const std::vector<Bytes8> states = states_of(course, fault, round);
  if (!states.empty() && round < plot.rounds) {
    const Course again = run(plot, {.weather = plot.weather,
                                    .fault = {},
                                    .lanes = plot.lanes,
                                    .from = round,
                                    .to = plot.rounds,
                                    .states = &states});
    oracles.judge_restored(again, course, round, plot.rounds);
  }
  return oracles.breaches();
}

// TITHE_CHAOS_IGNORE=honest,saved: oracles with a known failure. Nothing is ignored by default.
bool ignored(const std::string& oracle) {
  const char* list = std::getenv("TITHE_CHAOS_IGNORE");
  return list != nullptr && fmt::format(",{},", list).find(fmt::format(",{},", oracle)) != std::string::npos;
}

std::string breaches(const Plot& plot) {
  std::string text;
  for (const Breach& b : play(plot))
    if (!ignored(b.oracle)) text += fmt::format("  {}: {}\n", b.oracle, b.text);
  return text;
}

void hold(std::uint64_t seed) {
  Plot plot = draw(seed);
  plot.lanes = static_cast<int>(number("TITHE_CHAOS_LANES", static_cast<std::uint64_t>(plot.lanes)));
  const std::string text = breaches(plot);
  if (!text.empty())
    ADD_FAILURE() << "TITHE_CHAOS_SEED=" << seed << " build/tests/chaos_tests --gtest_filter=Chaos.OneSeed\n"
                  << account(plot) << text;
}

constexpr int kBlocks = 40;

class Seeds : public ::testing::TestWithParam<int> {};

// TITHE_CHAOS_SEEDS of them from TITHE_CHAOS_FIRST on, in blocks so that shards share them. TITHE_TEST_FULL=1: 2,000.
TEST_P(Seeds, KeepTheLawsAndNameTheRightRank) {
  const std::uint64_t seeds = number("TITHE_CHAOS_SEEDS", harness::full_products() ? 2000 : 600);
  const std::uint64_t first = number("TITHE_CHAOS_FIRST", 1);
  for (std::uint64_t s = static_cast<std::uint64_t>(GetParam()); s < seeds; s += kBlocks) {
    hold(first + s);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Chaos, Seeds, ::testing::Range(0, kBlocks));

TEST(Chaos, OneSeed) {
  if (std::getenv("TITHE_CHAOS_SEED") == nullptr) GTEST_SKIP() << "TITHE_CHAOS_SEED names one";
  hold(number("TITHE_CHAOS_SEED", 1));
}

// A plot is a function of the seed, and a run without lanes is a function of the plot.
TEST(Chaos, SameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const Plot plot = draw(seed);
    EXPECT_EQ(account(plot), account(draw(seed)));
    const chaos::Run how{.weather = plot.weather, .fault = {}, .lanes = 0, .from = 0, .to = plot.rounds};
    EXPECT_EQ(chaos::run(plot, how).counts, chaos::run(plot, how).counts) << seed;
  }
}

}  // namespace
}  // namespace tithe::chaos
