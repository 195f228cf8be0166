// SPDX-License-Identifier: Apache-2.0
// A rank that passes other buckets than its peers, or is in another round, is named at once by all ranks.
#include <gtest/gtest.h>

#include "support/ranks.h"
#include "support/transport_world.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::at;
using testing::has;
using testing::Ranks;
using testing::text;

struct Shape {
  std::string key;
  std::size_t n;
};
using Bucket = std::vector<Shape>;
using Round = std::vector<Bucket>;  // each is waited for before the next one

Status play(Session& session, const Round& round) {
  std::vector<std::vector<float>> values;  // until commit()
  for (const Bucket& shapes : round) {
    std::vector<Tensor> bucket;
    for (const Shape& s : shapes) {
      values.emplace_back(s.n, 1.0F);
      bucket.push_back({.key = s.key, .data = values.back().data(), .n = s.n});
    }
    const Result<Ticket> ticket = session.sync(bucket);
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY(session.wait(*ticket));
  }
  return session.commit();
}

// The rounds of all ranks so far, and the next round of most ranks and of the differing rank.
struct Case {
  const char* name;
  std::vector<Round> before;
  Round most, odd;
  const char* says;
};

const Bucket kW = {{"w", 9000}, {"b", 50}}, kV = {{"v", 700}}, kU = {{"u", 5000}};

std::vector<Case> cases() {
  return {
      {"another_name", {{kW}}, {kW}, {{{"w2", 9000}, {"b", 50}}}, "keys, sizes, types, bounds or order"},
      {"one_tensor_more", {{kW}}, {kW}, {{{"w", 9000}, {"b", 50}, {"c", 5}}}, "3 tensors"},
      {"one_tensor_fewer", {{kW}}, {kW}, {{{"w", 9000}}}, "1 tensors"},
      {"another_order", {{kW}}, {kW}, {{{"b", 50}, {"w", 9000}}}, "keys, sizes, types, bounds or order"},
      {"two_buckets_for_one", {{kW}}, {kW}, {{{"w", 9000}}, {{"b", 50}}}, "1 tensors"},
      {"one_bucket_more", {{kW}}, {kW}, {kW, kV}, "no further bucket"},
      {"one_bucket_fewer", {{kW, kV}}, {kW, kV}, {kW}, "no further bucket"},
      {"known_but_another", {{kW}, {kV}, {kW}}, {kV}, {kW}, "2 tensors with 9050 values instead of"},
      {"known_in_turn",
       {{kW}, {kV}, {kW}, {kV}, {kW}, {kV}},
       {kW},
       {kV},
       "1 tensors with 700 values instead of"},
      {"buckets_in_another_order", {{kW, kV}, {kW, kV}}, {kW, kV}, {kV, kW}, "bucket 1 of the round"},
      {"new_on_all_but_different", {{kW}}, {kU}, {{{"u", 5001}}}, "5001 instead of 5000"},
      {"last_of_several",
       {{kW, kV, kU}},
       {kW, kV, kU},
       {kW, kV, {{"y", 4000}, {"x", 10}}},
       "2 tensors with 4010 values instead of"},
  };
}

void expect_named(const std::vector<Status>& status, Rank odd, const char* says) {
  for (const Status& s : status) {
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), odd) << text(s);
    EXPECT_TRUE(has(s.what(), "rank " + std::to_string(odd) + " differs")) << text(s);
    EXPECT_TRUE(has(s.what(), says)) << text(s);
  }
}

SessionOptions options(std::string_view strategy, int lanes) {
  return {.codec = "fp8",
          .strategy = std::string(strategy),
          .undo = true,
          .lanes = lanes,
          .min_values = 0,
          .timeout = 60s,  // no wait below gets that long
          .patience = 120s};
}

void run(std::vector<std::unique_ptr<Transport>> transports, const SessionOptions& o, const Case& c,
         Rank odd) {
  const auto world = static_cast<Rank>(transports.size());
  Ranks ranks(std::move(transports), o);
  std::vector<Status> status(at(world));
  const auto began = std::chrono::steady_clock::now();
  ranks.each([&](Rank r) {
    for (const Round& round : c.before) {
      const Status s = play(ranks[r], round);
      ASSERT_TRUE(s.ok()) << text(s);
    }
    status[at(r)] = play(ranks[r], r == odd ? c.odd : c.most);
  });
  expect_named(status, odd, c.says);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s) << "before any clock of the session runs out";
}

TEST(BucketOrder, DifferingBucketNamesTheRank) {
  for (const Case& c : cases())
    for (const int lanes : {0, 1}) {
      SCOPED_TRACE(std::string(c.name) + ", lanes " + std::to_string(lanes));
      run(open_loop(3), options("auto", lanes), c, 1);
    }
}

TEST(BucketOrder, UnderEveryStrategy) {
  for (const Strategy* strategy : all_strategies())
    for (const Case& c : cases()) {
      SCOPED_TRACE(std::string(strategy->name) + ", " + c.name);
      run(open_loop(4), options(strategy->name, 1), c, 2);
    }
}

// If most ranks deviate from the usual order, the minority rank is named.
TEST(BucketOrder, MinorityIsNamed) {
  for (const Case& c : cases()) {
    if (std::string_view(c.name) == "new_on_all_but_different") continue;
    SCOPED_TRACE(c.name);
    Case other = c;
    std::swap(other.most, other.odd);
    other.says = "";
    run(open_loop(4), options("auto", 1), other, 0);
  }
}

// The result of two ranks: rank 0's buckets count.
TEST(BucketOrder, OfTwoRanksTheSecondIsNamed) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    Case accepted = c;
    accepted.says = "";
    run(open_loop(2), options("auto", 1), accepted, 1);
  }
}

// ---- The round itself

void run_undo(std::vector<std::unique_ptr<Transport>> transports, const SessionOptions& o,
              const std::vector<Rank>& undo, Rank named, const Round& next) {
  const auto world = static_cast<Rank>(transports.size());
  Ranks ranks(std::move(transports), o);
  std::vector<Status> status(at(world));
  ranks.each([&](Rank r) {
    for (int round = 0; round < 2; ++round) ASSERT_TRUE(play(ranks[r], {kW, kV}).ok());
  });
  for (const Rank r : undo) ASSERT_TRUE(ranks[r].undo().ok());
  ranks.each([&](Rank r) { status[at(r)] = play(ranks[r], next); });
  const bool all = at(world) == undo.size();
  for (const Status& s : status) {
    EXPECT_EQ(s.code(), all ? Code::kOk : Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), all ? Status::kNoPeer : named) << text(s);
    const bool did = std::find(undo.begin(), undo.end(), named) != undo.end();
    EXPECT_TRUE(all || has(s.what(), did ? "round 1 instead of 2" : "round 2 instead of 1")) << text(s);
    EXPECT_TRUE(all || has(s.what(), " last round, or restored")) << text(s);
  }
}

TEST(BucketOrder, UndoOnSomeRanksNamesThem) {
  const Round as_before = {kW, kV}, fresh = {kU};
  for (const Strategy* strategy : all_strategies())
    for (const int lanes : {0, 1})
      for (const Round& next : {as_before, fresh}) {
        SCOPED_TRACE(std::string(strategy->name) + ", lanes " + std::to_string(lanes));
        const SessionOptions o = options(strategy->name, lanes);
        run_undo(open_loop(3), o, {1}, 1, next);
        run_undo(open_loop(3), o, {1, 2}, 0, next);
        run_undo(open_loop(2), o, {1}, 1, next);
        run_undo(open_loop(4), o, {0, 1, 2, 3}, -1, next);
      }
}

// A rank that restores an older state together with its peers is accepted.
TEST(BucketOrder, RestoreOnOneRankNamesIt) {
  for (const int lanes : {0, 1}) {
    Ranks ranks(open_loop(3), options("auto", lanes));
    std::vector<Status> status(3);
    ranks.each([&](Rank r) {
      ASSERT_TRUE(play(ranks[r], {kW}).ok());
      const auto state = *ranks[r].state();
      ASSERT_TRUE(play(ranks[r], {kW}).ok());
      if (r == 2) {
        ASSERT_TRUE(ranks[r].restore(state).ok());
      }
      status[at(r)] = play(ranks[r], {kW});
    });
    expect_named(status, 2, "round 1 instead of 2");
  }
}

// Restoring a state of the present round changes nothing, on one rank or on all.
TEST(BucketOrder, RestoreOfTheSameRoundContinues) {
  for (const bool all : {false, true}) {
    Ranks ranks(open_loop(3), options("auto", 1));
    ranks.each([&](Rank r) {
      ASSERT_TRUE(play(ranks[r], {kW}).ok());
      if (all || r == 1) {
        ASSERT_TRUE(ranks[r].restore(*ranks[r].state()).ok());
      }
      for (int k = 0; k < 2; ++k) {
        const Status s = play(ranks[r], {kW});
        EXPECT_TRUE(s.ok()) << text(s);
      }
    });
  }
}

class BucketOrderOver : public ::testing::TestWithParam<std::string> {};

TEST_P(BucketOrderOver, DifferingBucketNamesTheRank) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    auto transports = testing::open_world(GetParam(), 3);
    for (const auto& t : transports) ASSERT_NE(t, nullptr);
    run(std::move(transports), options("auto", 1), c, 1);
  }
}

TEST_P(BucketOrderOver, UndoOnOneRankNamesIt) {
  for (const char* strategy : {"ring", "gather", "server"}) {
    auto transports = testing::open_world(GetParam(), 3);
    for (const auto& t : transports) ASSERT_NE(t, nullptr);
    run_undo(std::move(transports), options(strategy, 1), {1}, 1, {kW, kV});
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, BucketOrderOver, ::testing::ValuesIn(testing::transport_examples()),
                         [](const auto& way) { return testing::in_a_name(way.param); });

}  // namespace
}  // namespace tithe
