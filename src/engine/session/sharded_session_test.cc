// SPDX-License-Identifier: Apache-2.0
// Reduce-scatters and all-gathers of a session: results, refusals, undo, states and proposals.
// tests/conformance/sharded_suite.cc tests the laws for all codecs and strategies.
#include <gtest/gtest.h>

#include <numeric>

#include "base/environment.h"
#include "support/ledger.h"
#include "support/sharded_rounds.h"
#include "tithe/tithe.h"

namespace tithe {
namespace {

using testing::at;
using testing::has;
using testing::Ranks;
using testing::text;
using testing::Values;
using Floats = std::vector<float>;
using Cuts = std::vector<std::size_t>;
constexpr RoundKind kScatter = RoundKind::kReduceScatter, kGather = RoundKind::kAllGather;

SessionOptions with(std::string codec) {
  return {.codec = std::move(codec), .lanes = 0, .min_values = 0, .seed = 7};
}

Floats ramp(std::size_t n, Rank r) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<float>(i) + 100.0F * static_cast<float>(r);
  return v;
}

Status play(Session& session, RoundKind kind, std::span<const Tensor> bucket) {
  const Result<Ticket> ticket = session.sync(bucket, {}, kind);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

Status refusal(Session& session, RoundKind kind, const Tensor& t) {
  return session.sync({&t, 1}, {}, kind).status();
}

TEST(ShardedSession, AReduceScatterAveragesTheRangeOfItsOwner) {
  Ranks ranks(open_loop(3), with("fp32"));
  const Cuts cuts = {0, 2, 2, 7};
  ranks.each([&](Rank r) {
    Floats v = ramp(7, r);
    const Tensor t{.key = "w", .data = v.data(), .n = 7, .bounds = cuts};
    const Status s = play(ranks[r], kScatter, {&t, 1});
    ASSERT_TRUE(s.ok()) << text(s);
    for (std::size_t i = 0; i < 7; ++i) {
      const bool mine = i >= cuts[at(r)] && i < cuts[at(r) + 1];
      EXPECT_EQ(v[i], mine ? static_cast<float>(i) + 100.0F : ramp(7, r)[i])
          << "rank " << r << ", value " << i;
    }
  });
}

TEST(ShardedSession, AnAllGatherReturnsAllRangesUndivided) {
  Ranks ranks(open_loop(3), with("fp32"));
  ranks.each([&](Rank r) {
    Floats v(7, -1.0F);
    const Cuts cuts = equal_bounds(7, 0, 3);
    for (std::size_t i = cuts[at(r)]; i < cuts[at(r) + 1]; ++i) v[i] = static_cast<float>(i);
    const Tensor t{.key = "w", .data = v.data(), .n = 7};
    const Status s = play(ranks[r], kGather, {&t, 1});
    ASSERT_TRUE(s.ok()) << text(s);
    for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(v[i], static_cast<float>(i)) << "rank " << r;
  });
}

TEST(ShardedSession, EqualBoundsMatchTorchChunk) {
  EXPECT_EQ(equal_bounds(7, 0, 3), (Cuts{0, 3, 6, 7}));
  EXPECT_EQ(equal_bounds(5, 0, 4), (Cuts{0, 2, 4, 5, 5}));
  EXPECT_EQ(equal_bounds(20, 4, 4), (Cuts{0, 8, 16, 20, 20}));
  EXPECT_EQ(equal_bounds(0, 0, 2), (Cuts{0, 0, 0}));
  EXPECT_EQ(equal_bounds(3, 0, 1), (Cuts{0, 3}));
}

// 16-bit values are converted chunk by chunk; the ranges of other owners keep their bits.
TEST(ShardedSession, TypesOf16Bits) {
  Ranks ranks(open_loop(2), with("fp32"));
  ranks.each([&](Rank r) {
    std::vector<std::uint16_t> v(10, static_cast<std::uint16_t>(r == 0 ? 0x3f80 : 0x4040));  // 1 and 3
    const Tensor t{.key = "w", .data = v.data(), .n = 10, .dtype = DType::kBF16};
    ASSERT_TRUE(play(ranks[r], kScatter, {&t, 1}).ok());
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_EQ(v[i], i / 5 == at(r) ? 0x4000 : (r == 0 ? 0x3f80 : 0x4040))
          << "rank " << r << ", value " << i;
    const Tensor g{.key = "g", .data = v.data(), .n = 10, .dtype = DType::kBF16};
    ASSERT_TRUE(play(ranks[r], kGather, {&g, 1}).ok());
    EXPECT_EQ(v, std::vector<std::uint16_t>(10, 0x4000));
  });
}

// Ring adds partial sums, and clipping and Nesterov momentum change gradients: the ranges of other owners must not
// change.
TEST(ShardedSession, RangesOfOtherOwnersAreUnchanged) {
  for (const char* codec : {"fp32:clip=1", "topk:ratio=0.5,feedback=momentum,nesterov=on,mask=off", "fp8"})
    for (const char* strategy : {"ring", "hosts", "auto"}) {
      SessionOptions o = with(codec);
      o.strategy = strategy;
      o.hosts = "2+1";
      Ranks ranks(open_loop(3), o);
      ranks.each([&](Rank r) {
        for (int round = 0; round < 2; ++round) {
          Floats v = ramp(300, r);
          const Tensor t{.key = "w", .data = v.data(), .n = 300};
          const Status s = play(ranks[r], kScatter, {&t, 1});
          ASSERT_TRUE(s.ok()) << text(s);
          for (std::size_t i = 0; i < 300; ++i)
            if (i / 100 != at(r)) {
              ASSERT_EQ(v[i], ramp(300, r)[i])
                  << codec << " " << strategy << ", rank " << r << ", value " << i;
            }
        }
      });
    }
}

// A round can have buckets of all kinds; a value that is not finite in one of them drops the whole round.
TEST(ShardedSession, ARoundCanContainAllKinds) {
  Ranks ranks(open_loop(2), with("fp8"));
  for (const bool poisoned : {false, true, false})
    ranks.each([&](Rank r) {
      Floats a = ramp(100, r), b = ramp(100, r), c = ramp(100, r);
      if (poisoned && r == 1) b[10] = std::numeric_limits<float>::quiet_NaN();  // in the range of rank 0
      const Tensor ta{.key = "a", .data = a.data(), .n = 100}, tb{.key = "b", .data = b.data(), .n = 100},
          tc{.key = "c", .data = c.data(), .n = 100};
      const auto one = ranks[r].sync({&ta, 1}), two = ranks[r].sync({&tb, 1}, {}, kScatter),
                 three = ranks[r].sync({&tc, 1}, {}, kGather);
      ASSERT_TRUE(one.ok() && two.ok() && three.ok());
      for (const auto& ticket : {one, two, three}) ASSERT_TRUE(ranks[r].wait(*ticket).ok());
      EXPECT_FALSE(std::isnan(a[0]) || std::isnan(c[0]));
      EXPECT_EQ(std::isnan(b[0]), poisoned && r == 0) << "the owner has NaN after wait()";
      ASSERT_TRUE(ranks[r].commit().ok());
      EXPECT_EQ(ranks[r].last_round_dropped(), poisoned);
      for (const Floats* v : {&a, &b, &c}) EXPECT_EQ(std::isnan(v->back()), poisoned) << "rank " << r;
    });
}

TEST(ShardedSession, WrongCallsAreRefusedAndNothingIsWritten) {
  Ranks ranks(open_loop(2), with("fp8"));
  Session& session = ranks[0];
  Floats v = ramp(10, 0);
  const auto bounds_error = [&](RoundKind kind, const Cuts& bounds) {
    const Status s = refusal(session, kind, {.key = "w", .data = v.data(), .n = 10, .bounds = bounds});
    EXPECT_EQ(s.code(), Code::kInvalid);
    EXPECT_EQ(v, ramp(10, 0));
    return s.what();
  };
  EXPECT_EQ(bounds_error(kScatter, {0, 10}), "tensor 'w' has 2 bounds: 2 ranks need 3 bounds, from 0 to 10");
  EXPECT_EQ(bounds_error(kScatter, {0, 5, 9}),
            "tensor 'w' has bounds from 0 to 9; bounds must go from 0 to 10");
  EXPECT_EQ(bounds_error(kGather, {1, 5, 10}),
            "tensor 'w' has bounds from 1 to 10; bounds must go from 0 to 10");
  EXPECT_EQ(bounds_error(RoundKind::kAllReduce, {0, 5, 10}),
            "tensor 'w' has bounds: pass bounds only to reduce_scatter and all_gather");
  Ranks three(open_loop(3), with("fp8"));
  const Cuts falls = {0, 7, 5, 10};
  EXPECT_EQ(refusal(three[0], kScatter, {.key = "w", .data = v.data(), .n = 10, .bounds = falls}).what(),
            "tensor 'w' has bound 5 after bound 7; bounds must not decrease");
}

TEST(ShardedSession, AKeyHasOneKind) {
  Ranks ranks(open_loop(2), with("onebit"));
  ranks.each([&](Rank r) {
    Floats v = ramp(10, r);
    const Tensor t{.key = "w", .data = v.data(), .n = 10};
    ASSERT_TRUE(play(ranks[r], kScatter, {&t, 1}).ok());
    for (const RoundKind other : {kGather, RoundKind::kAllReduce}) {
      const Status s = refusal(ranks[r], other, t);
      EXPECT_EQ(s.code(), Code::kInvalid);
      EXPECT_TRUE(has(s.what(), "tensor 'w' is in a bucket of " + std::string(name(other)))) << s.what();
    }
    EXPECT_TRUE(play(ranks[r], kScatter, {&t, 1}).ok());
  });
}

TEST(ShardedSession, UnsupportedCodecsAndOptionsAreRefusedByName) {
  const auto refused = [](const SessionOptions& o, RoundKind kind) {
    Ranks ranks(open_loop(2), o);
    Floats v = ramp(100, 0);
    const Status s = refusal(ranks[0], kind, {.key = "w", .data = v.data(), .n = 100, .row = 10});
    EXPECT_EQ(s.code(), Code::kUnsupported) << text(s);
    EXPECT_TRUE(s.what().starts_with(name(kind))) << s.what();
    return s.what();
  };
  for (const RoundKind kind : {kScatter, kGather}) {
    for (const Codec* codec : all_codecs()) {
      if (codec->phases.size() == 1 && codec->memory == nullptr) continue;
      EXPECT_TRUE(has(refused(with(std::string(codec->name)), kind), "codec " + std::string(codec->name)));
    }
    SessionOptions o = with("fp8");
    o.servers = 1;
    EXPECT_TRUE(has(refused(o, kind), "servers=0"));
    o = with("auto");
    o.min_values = kDefaultMinValues;
    EXPECT_TRUE(has(refused(o, kind), "codec auto"));
    o = with("fp8");
    o.lanes = 1;
    o.stragglers = "without=1";
    EXPECT_TRUE(has(refused(o, kind), "stragglers="));
  }
}

// If ranks differ in the kind or in the bounds, they detect it before any result is written.
TEST(ShardedSession, ADifferingRankIsNamed) {
  for (const bool in_kind : {true, false}) {
    Ranks ranks(open_loop(3), with("fp8"));
    ranks.each([&](Rank r) {
      Floats v = ramp(12, r);
      const Cuts cuts = !in_kind && r == 1 ? Cuts{0, 1, 2, 12} : Cuts{0, 4, 8, 12};
      const Tensor t{.key = "w", .data = v.data(), .n = 12, .bounds = cuts};
      const Status s = play(ranks[r], in_kind && r == 1 ? kGather : kScatter, {&t, 1});
      EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
      EXPECT_EQ(s.peer(), 1);
      EXPECT_TRUE(has(s.what(), "the kind of round, or keys, sizes, types, bounds")) << s.what();
      EXPECT_EQ(v, ramp(12, r));
    });
  }
}

// The default residual: none for an unbiased codec, and none in an all-gather.
TEST(ShardedSession, FeedbackByDefaultAndIfRequested) {
  const auto left = [](const std::string& codec, RoundKind kind) {
    Ranks ranks(open_loop(2), with(codec));
    bool any = false;
    ranks.each([&](Rank r) {
      Floats v(3000), kept(3000);
      for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i + 7 * at(r)));
      const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
      const Status s = play(ranks[r], kind, {&t, 1});
      EXPECT_TRUE(s.ok()) << text(s);
      EXPECT_TRUE(ranks[r].residual("w", kept).ok());
      if (r == 0) any = std::ranges::any_of(kept, [](float x) { return x != 0; });
      if (r == 0 && any && kind == kGather) {
        EXPECT_TRUE(std::all_of(kept.begin() + 1500, kept.end(), [](float x) { return x == 0; }));
      }
    });
    return any;
  };
  EXPECT_TRUE(left("onebit", kScatter));
  EXPECT_TRUE(left("eden:bits=2", kScatter));
  EXPECT_FALSE(left("eden:bits=2,scale=unbiased", kScatter));
  EXPECT_FALSE(left("qsgd:bits=4", kScatter));
  EXPECT_TRUE(left("threshold:tau=0.9", kScatter))
      << "the codec has no contraction bound and is not unbiased";
  EXPECT_TRUE(left("qsgd:bits=4,feedback=residual", kScatter));
  EXPECT_FALSE(left("onebit:feedback=none", kScatter));
  EXPECT_FALSE(left("onebit", kGather));
  EXPECT_TRUE(left("onebit:feedback=residual", kGather));
  EXPECT_FALSE(left("topk:ratio=0.1,feedback=momentum", kGather)) << "momentum applies to gradients only";
}

TEST(ShardedSession, RequestedFeedbackRoundTripsThroughTheSpec) {
  EXPECT_EQ(to_string(*parse_spec("qsgd:feedback=residual")), "qsgd:feedback=residual");
  EXPECT_EQ(to_string(*parse_spec("qsgd")), "qsgd");
  EXPECT_EQ(*parse_spec(to_string(*parse_spec("fp8:feedback=residual"))),
            *parse_spec("fp8:feedback=residual"));
}

TEST(ShardedSession, ARoundCanBeUndone) {
  SessionOptions o = with("onebit:feedback=residual");
  o.undo = true;
  Ranks ranks(open_loop(2), o);
  ranks.each([&](Rank r) {
    for (const RoundKind kind : {kScatter, kGather}) {
      const std::string key(name(kind));
      const auto go = [&](int round) {
        Floats v = ramp(1000, r + 3 * round);
        const Tensor t{.key = key, .data = v.data(), .n = v.size()};
        EXPECT_TRUE(play(ranks[r], kind, {&t, 1}).ok());
        return v;
      };
      go(0);
      const Floats first = go(1);
      Floats kept(1000), again(1000);
      EXPECT_TRUE(ranks[r].residual(key, kept).ok());
      EXPECT_TRUE(ranks[r].undo().ok());
      EXPECT_EQ(go(1), first);
      EXPECT_TRUE(ranks[r].residual(key, again).ok());
      EXPECT_EQ(kept, again);
    }
  });
}

// A rank resumes in a world of other ranks, where it owns another range: its residual of the old range stays with it.
TEST(ShardedSession, ResidualsOfAnAllGatherSurviveAChangeOfOwners) {
  SessionOptions o = with("onebit:feedback=residual");
  o.members = {"a", "b", "c"};
  std::vector<std::vector<std::uint8_t>> states(3);
  std::vector<Floats> unsent(3, Floats(900));
  {
    Ranks three(open_loop(3), o);
    three.each([&](Rank r) {
      Floats v = ramp(900, r);
      const Tensor t{.key = "w", .data = v.data(), .n = 900};
      ASSERT_TRUE(play(three[r], kGather, {&t, 1}).ok());
      ASSERT_TRUE(three[r].residual("w", unsent[at(r)]).ok());
      states[at(r)] = *three[r].state();
    });
  }
  o.members = {"a", "b"};
  Ranks two(open_loop(2), o);
  two.each([&](Rank r) {
    std::vector<ByteView> views(states.begin(), states.end());
    const Status s = two[r].restore(views, Lost::kBook);
    ASSERT_TRUE(s.ok()) << text(s);
    for (int round = 0; round < 3; ++round) {
      Floats v = ramp(900, r), kept(900);
      const Tensor t{.key = "w", .data = v.data(), .n = 900};
      ASSERT_TRUE(play(two[r], kGather, {&t, 1}).ok());
      ASSERT_TRUE(two[r].residual("w", kept).ok());
      for (std::size_t i = 0; i < 900; ++i)
        if (i / 450 != at(r)) {
          ASSERT_EQ(kept[i], unsent[at(r)][i]) << "rank " << r << ", round " << round << ", value " << i;
        }
    }
  });
}

// Choices change for layouts of all kinds; choices that a kind cannot use are refused by all ranks.
TEST(ShardedSession, ChoicesCanChange) {
  Ranks ranks(open_loop(2), with("onebit"));
  const auto go = [&](int round) {
    ranks.each([&](Rank r) {
      Floats v = ramp(1000, r + 3 * round), w = v;
      const Tensor s{.key = "s", .data = v.data(), .n = v.size()},
          g{.key = "g", .data = w.data(), .n = w.size()};
      const auto one = ranks[r].sync({&s, 1}, {}, kScatter), two = ranks[r].sync({&g, 1}, {}, kGather);
      ASSERT_TRUE(one.ok() && two.ok()) << text(one.status()) << text(two.status());
      ASSERT_TRUE(ranks[r].commit().ok());
    });
  };
  go(0);
  ASSERT_TRUE(ranks[0].propose(R"({"s": "thc"})").ok());
  for (int round = 1; round < 6; ++round) go(round);
  EXPECT_EQ(ranks[0].proposal().state, Proposal::State::kRefused);
  EXPECT_TRUE(has(ranks[0].proposal().why.what(), "reduce_scatter: codec thc"))
      << text(ranks[0].proposal().why);
  ASSERT_TRUE(ranks[0].propose(R"({"*": "fp32"})").ok());
  for (int round = 6; round < 12; ++round) go(round);
  EXPECT_EQ(ranks[0].proposal().state, Proposal::State::kSwitched);
  Floats kept(1000);
  EXPECT_TRUE(ranks[1].residual("s", kept).ok());
  EXPECT_EQ(kept, Floats(1000)) << "the residual must be sent";
}

TEST(ShardedSession, ThePlanContainsTheKind) {
  SessionOptions o = with("fp8");
  o.hosts = "2x2";
  Ranks ranks(open_loop(4), o);
  ranks.each([&](Rank r) {
    Floats v = ramp(5000, r);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    ASSERT_TRUE(play(ranks[r], kScatter, {&t, 1}).ok());
  });
  EXPECT_TRUE(has(ranks[0].plan_text(), "5000 values from 0, reduce_scatter of fp8")) << ranks[0].plan_text();
}

// Each byte crosses between two hosts once.
TEST(ShardedSession, ABlockCrossesBetweenHostsOnce) {
  for (const RoundKind kind : {kScatter, kGather}) {
    SessionOptions o = with("fp32");
    o.hosts = "2x2";
    o.strategy = "hosts";
    Ranks ranks(open_loop(4), o);
    Values results(4);
    ranks.each([&](Rank r) {
      results[at(r)] = ramp(400, r);
      const Tensor t{.key = "w", .data = results[at(r)].data(), .n = 400};
      const Status s = play(ranks[r], kind, {&t, 1});
      ASSERT_TRUE(s.ok()) << text(s);
    });
    for (std::size_t i = 0; i < 400; ++i) {
      const std::size_t owner = i / 100;
      const float want =
          static_cast<float>(i) + (kind == kScatter ? 150.0F : 100.0F * static_cast<float>(owner));
      EXPECT_EQ(results[owner][i], want);
      if (kind == kGather) {
        EXPECT_EQ(results[3 - owner][i], want);
      }
    }
  }
}

TEST(ShardedSession, TheCInterface) {
  tithe_transport* transports[2];
  ASSERT_EQ(tithe_open_loop(2, transports, nullptr), TITHE_OK);
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      tithe_options o;
      tithe_options_init(&o);
      o.codec = "fp32";
      o.lanes = 0;
      tithe_session* session = nullptr;
      tithe_error error;
      ASSERT_EQ(tithe_session_open(transports[r], &o, &session, &error), TITHE_OK) << error.what;
      Floats v = ramp(10, r);
      const std::size_t cuts[] = {0, 3, 10};
      uint64_t ticket = 0;
      const tithe_tensor t{"w", v.data(), 10, TITHE_F32, 0, cuts};
      ASSERT_EQ(tithe_sync_kind(session, TITHE_REDUCE_SCATTER, &t, 1, -1, nullptr, &ticket, &error), TITHE_OK)
          << error.what;
      ASSERT_EQ(tithe_commit(session, &error), TITHE_OK) << error.what;
      const tithe_tensor g{"g", v.data(), 10, TITHE_F32, 0, cuts};
      ASSERT_EQ(tithe_sync_kind(session, TITHE_ALL_GATHER, &g, 1, -1, nullptr, &ticket, &error), TITHE_OK);
      ASSERT_EQ(tithe_commit(session, &error), TITHE_OK) << error.what;
      for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(v[i], static_cast<float>(i) + 50.0F);
      EXPECT_EQ(
          tithe_sync_kind(session, static_cast<tithe_round_kind>(3), &g, 1, -1, nullptr, &ticket, &error),
          TITHE_INVALID);
      tithe_session_close(session);
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace
}  // namespace tithe
