// SPDX-License-Identifier: Apache-2.0
// Seeded jobs with changing members: README.md in this folder.
#include "chaos/members.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace tithe::chaos {
namespace {

constexpr std::uint64_t kSeeds = 2000;
constexpr int kBlocks = 20;

std::uint64_t number(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void hold(std::uint64_t seed) {
  const Job job = draw_job(seed);
  const JobOutcome result = play(job);
  std::string text;
  for (const Violation& b : judge(job, result)) text += fmt::format("  {}: {}\n", b.oracle, b.text);
  if (!text.empty())
    ADD_FAILURE() << "TITHE_CHAOS_SEED=" << seed
                  << " build/tests/chaos_tests --gtest_filter=Members.OneSeed\n"
                  << account(job) << account(result) << text;
}

class MemberSeeds : public ::testing::TestWithParam<int> {};

TEST_P(MemberSeeds, ContinueWithoutLoss) {
  const std::uint64_t first = number("TITHE_CHAOS_FIRST", 1);
  for (auto s = static_cast<std::uint64_t>(GetParam()); s < number("TITHE_CHAOS_SEEDS", kSeeds); s += kBlocks)
    hold(first + s);
}

INSTANTIATE_TEST_SUITE_P(Members, MemberSeeds, ::testing::Range(0, kBlocks));

TEST(Members, OneSeed) { hold(number("TITHE_CHAOS_SEED", 1)); }

TEST(Members, SameSeedGivesTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Job job = draw_job(seed);
    EXPECT_EQ(account(job), account(draw_job(seed)));
    EXPECT_EQ(play(job).counts, play(job).counts) << seed;
  }
}

}  // namespace
}  // namespace tithe::chaos
