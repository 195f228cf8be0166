// SPDX-License-Identifier: Apache-2.0
// Tags change no value: every codec x strategy gives the same bits and residuals with and without them, for any
// coverage. The other suites run with tags over ucx, where frames always have them.
#include "support/law_cases.h"

namespace tithe {
namespace {

using testing::Data;
using testing::gradients;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::synchronise;
using testing::Values;

struct TagCase {
  testing::LawCase law;
  const Strategy* strategy;
};

class TagSuite : public ::testing::TestWithParam<TagCase> {};

TEST_P(TagSuite, tagged_rounds_give_the_same_bits) {
  constexpr int kWorld = 3;
  constexpr std::size_t kFew[] = {0, 1, 33, 1025, 9001};
  const std::vector<std::uint8_t> key(32, 5);
  std::vector<Values> results, left;
  for (const char* authenticate : {"", "auto", "headers", "payloads"}) {
    const bool tagged = *authenticate != 0;
    SessionOptions o{.strategy = std::string(GetParam().strategy->name),
                     .hosts = testing::hosts_of(kWorld),
                     .lanes = 2,
                     .min_values = 0,
                     .part_values = 4'000,
                     .seed = 7,
                     .spec = GetParam().law.spec,
                     .rules = GetParam().law.rules};
    if (tagged) o.authenticate = authenticate;
    Ranks ranks(open_loop(kWorld, tagged ? ByteView(key) : ByteView{}), o);
    std::vector<Values> mine(kWorld), kept(kWorld);
    ranks.each([&](Rank r) {
      const auto i = static_cast<std::size_t>(r);
      for (int round = 0; round < 3; ++round) {
        mine[i] = gradients(kFew, Data::kGaussian, r, round);
        const Status s = synchronise(ranks[r], kFew, mine[i]);
        ASSERT_TRUE(s.ok()) << authenticate << ": " << s.what();
      }
      kept[i] = residuals(ranks[r], kFew);
    });
    results.push_back(mine[1]);
    left.push_back(kept[1]);
    EXPECT_TRUE(same_bits(results[0], results.back())) << authenticate;
    EXPECT_TRUE(same_bits(left[0], left.back())) << authenticate;
  }
}

std::vector<TagCase> cases() {
  std::vector<TagCase> all;
  for (const testing::LawCase& law : testing::law_cases())
    for (const Strategy* strategy : all_strategies()) all.push_back({law, strategy});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, TagSuite, ::testing::ValuesIn(cases()), [](const auto& one) {
  return one.param.law.label + "_" + std::string(one.param.strategy->name);
});

}  // namespace
}  // namespace tithe
