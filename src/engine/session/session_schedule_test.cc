// SPDX-License-Identifier: Apache-2.0
// Sessions whose ratio changes between rounds (tithe/schedule.h).
#include <gtest/gtest.h>

#include <cmath>

#include "engine/program/laws.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

constexpr int kWorld = 3;
constexpr std::size_t kValues = 3000;
const std::string kSchedule = "warmup:4+theta:1+recover";

std::vector<float> gradient(Rank rank, int round) {
  std::vector<float> g(kValues);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const auto at =
        static_cast<float>(i * (static_cast<std::size_t>(round) + 3) + static_cast<std::size_t>(rank));
    g[i] = std::sin(at) * std::sin(at * 0.37F);
  }
  return g;
}

// Runs and commits one round of one tensor; returns the result.
std::vector<float> round_of(Session& session, int round) {
  std::vector<float> v = gradient(session.rank(), round);
  const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
  const Result<Ticket> ticket = session.sync({&t, 1});
  EXPECT_TRUE(ticket.ok()) << text(ticket.status());
  if (!ticket.ok()) return {};
  const Status waited = session.wait(*ticket);
  EXPECT_TRUE(waited.ok()) << text(waited);
  EXPECT_TRUE(session.commit().ok());
  return v;
}

bool has_ratio(const Codec& codec) {
  for (const ParamSpec& p : codec.params)
    if (p.name == "ratio") return true;
  return false;
}

// Calls body with every codec that has a ratio and every strategy that can run it.
void each_pair(const std::function<void(const std::string& codec, const Strategy&)>& body) {
  for (const Codec* codec : all_codecs()) {
    if (!has_ratio(*codec)) continue;
    const std::string spec = std::string(codec->name) + ":ratio=0.01";
    for (const Strategy* strategy : all_strategies()) {
      if (!engine::choose_laws(*parse_spec(spec), *strategy).ok()) continue;
      SCOPED_TRACE(spec + " by " + std::string(strategy->name));
      body(spec, *strategy);
    }
  }
}

SessionOptions options(const std::string& codec, const Strategy& strategy, const std::string& schedule) {
  return {.codec = codec,
          .strategy = std::string(strategy.name),
          .schedule = schedule,
          .average = false,
          .min_values = 0,
          .part_values = 1100};
}

// A round under a schedule has the same bytes as a round of a session whose codec has that ratio.
TEST(SessionSchedule, ARoundEqualsThatOfACodecWithItsRatio) {
  each_pair([](const std::string& codec, const Strategy& strategy) {
    Ranks scheduled(open_loop(kWorld), options(codec, strategy, kSchedule));
    const double ratio = scheduled[0].ratio();
    EXPECT_DOUBLE_EQ(ratio, 0.25);
    const std::string plain = codec.substr(0, codec.find(':')) + ":ratio=0.25";
    Ranks fixed(open_loop(kWorld), options(plain, strategy, "none"));
    EXPECT_EQ(fixed[0].ratio(), 0);
    std::vector<std::vector<float>> got(kWorld), want(kWorld);
    scheduled.each([&](Rank r) { got[static_cast<std::size_t>(r)] = round_of(scheduled[r], 0); });
    fixed.each([&](Rank r) { want[static_cast<std::size_t>(r)] = round_of(fixed[r], 0); });
    EXPECT_EQ(got, want);
    for (Rank r = 0; r < kWorld; ++r) EXPECT_EQ(scheduled[r].stats().bytes_sent, fixed[r].stats().bytes_sent);
  });
}

TEST(SessionSchedule, TheLedgerHoldsWhileTheRatioChanges) {
  each_pair([](const std::string& codec, const Strategy& strategy) {
    Ranks ranks(open_loop(kWorld), options(codec, strategy, kSchedule));
    std::vector<double> unsent(kValues);
    std::vector<std::vector<float>> got(kWorld, std::vector<float>(kValues)), left = got;
    const auto step = [&](int round) {
      ranks.each([&](Rank r) {
        const auto i = static_cast<std::size_t>(r);
        got[i] = round_of(ranks[r], round);
        EXPECT_TRUE(ranks[r].residual("w", left[i]).ok());
      });
      for (Rank r = 0; r < kWorld; ++r) {
        const std::vector<float> g = gradient(r, round);
        for (std::size_t i = 0; i < kValues; ++i) unsent[i] += static_cast<double>(g[i]);
      }
      for (std::size_t i = 0; i < kValues; ++i) {
        unsent[i] -= static_cast<double>(got[0][i]);
        double kept = 0;
        for (const auto& l : left) kept += static_cast<double>(l[i]);
        ASSERT_NEAR(unsent[i], kept, 1e-5) << "round " << round << ", value " << i;
      }
      EXPECT_EQ(got[1], got[0]);
      EXPECT_EQ(got[2], got[0]);
    };
    const auto all = [&](const std::function<Status(Session&)>& tell) {
      ranks.each([&](Rank r) { EXPECT_TRUE(tell(ranks[r]).ok()); });
    };
    for (int round = 0; round < 6; ++round) step(round);  // the warm-up
    EXPECT_EQ(ranks[0].ratio(), 0.01);
    all([](Session& s) { return s.evaluated(1.0); });
    all([](Session& s) { return s.evaluated(2.0); });
    EXPECT_EQ(ranks[0].ratio(), 0.04);
    step(6);
    all([](Session& s) { return s.learning_rate(0.01); });  // theta = 0.1
    EXPECT_EQ(ranks[0].ratio(), 1);
    step(7);
    all([](Session& s) { return s.evaluated(0.9); });
    EXPECT_NEAR(ranks[0].ratio(), 0.95, 0.051);
    step(8);
  });
}

TEST(SessionSchedule, ARankWithAnotherReportedValueIsNamed) {
  Ranks ranks(open_loop(kWorld), {.codec = "topk", .schedule = "recover", .min_values = 0});
  ranks.each([&](Rank r) { round_of(ranks[r], 0); });
  std::vector<Status> fates(kWorld);
  ranks.each([&](Rank r) {
    EXPECT_TRUE(ranks[r].evaluated(1.0).ok());
    EXPECT_TRUE(ranks[r].evaluated(r == 1 ? 3.0 : 1.0).ok());
  });
  ranks.each([&](Rank r) {  // all ranks have both values before the first rank fails
    std::vector<float> v = gradient(r, 1);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = ranks[r].sync({&t, 1});
    fates[static_cast<std::size_t>(r)] = ticket.ok() ? ranks[r].wait(*ticket) : ticket.status();
  });
  for (const Status& s : fates) {
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_NE(s.what().find("ratio"), std::string::npos) << s.what();
  }
}

TEST(SessionSchedule, RanksWithDifferentSchedulesAreNamedBeforeTheFirstRound) {
  Ranks ranks(open_loop(kWorld), {.codec = "topk", .schedule = "warmup:10", .min_values = 0},
              [](Rank r, SessionOptions& o) { o.schedule = r == 2 ? "warmup:20" : o.schedule; });
  ranks.each([&](Rank r) {
    std::vector<float> v = gradient(r, 0);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = ranks[r].sync({&t, 1});
    const Status s = ticket.ok() ? ranks[r].wait(*ticket) : ticket.status();
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2);
    EXPECT_NE(s.what().find("warmup:20"), std::string::npos) << s.what();
  });
}

TEST(SessionSchedule, AStateRestoresReportedValues) {
  const SessionOptions options{
      .codec = "topk", .schedule = "warmup:2+recover", .average = false, .min_values = 0};
  const auto run = [&](bool through_a_state) {
    std::vector<std::vector<float>> out(kWorld);
    std::vector<std::vector<std::uint8_t>> states(kWorld);
    auto ranks = std::make_unique<Ranks>(open_loop(kWorld), options);
    ranks->each([&](Rank r) {
      Session& s = (*ranks)[r];
      for (int round = 0; round < 3; ++round) round_of(s, round);
      EXPECT_TRUE(s.evaluated(1.0).ok());
      EXPECT_TRUE(s.evaluated(2.0).ok());
      states[static_cast<std::size_t>(r)] = *s.state();
    });
    if (through_a_state) {
      ranks = std::make_unique<Ranks>(open_loop(kWorld), options);
      ranks->each(
          [&](Rank r) { EXPECT_TRUE((*ranks)[r].restore(states[static_cast<std::size_t>(r)]).ok()); });
    }
    EXPECT_EQ((*ranks)[0].ratio(), 0.04);
    ranks->each([&](Rank r) { out[static_cast<std::size_t>(r)] = round_of((*ranks)[r], 3); });
    return out;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(SessionSchedule, AStateOfAnotherScheduleIsRefused) {
  Ranks with(open_loop(1), {.codec = "topk", .schedule = "warmup:2"});
  Ranks without(open_loop(1), {.codec = "topk"});
  const Status s = without[0].restore(*with[0].state());
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_NE(s.what().find("schedule 'warmup:2'"), std::string::npos) << s.what();
}

TEST(SessionSchedule, ACodecWithoutARatioIsRefused) {
  Ranks ranks(open_loop(1), {.codec = "onebit", .schedule = "warmup:2"});
  EXPECT_EQ(ranks.open_status(0).code(), Code::kInvalid);
}

}  // namespace
}  // namespace tithe
