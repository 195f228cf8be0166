// SPDX-License-Identifier: Apache-2.0
// The timeouts of a session, over loop: detection of dead and slow ranks, and the messages that each peer may send.
#include <gtest/gtest.h>

#include <atomic>

#include "conformance/faulty_net.h"
#include "engine/peers/control.h"
#include "engine/peers/peer.h"
#include "support/ranks.h"
#include "support/transport_world.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::Faulty;
using testing::FaultyNet;
using testing::Ranks;
using testing::run_ranks;
using testing::text;
using Clock = std::chrono::steady_clock;

struct World {
  explicit World(int world, SessionOptions options, std::size_t n = 50'000)
      : net(std::make_shared<FaultyNet>(world)),
        values(static_cast<std::size_t>(world), std::vector<float>(n, 1.0F)) {
    std::vector<std::unique_ptr<Transport>> transports;
    for (auto& t : open_loop(world)) transports.push_back(std::make_unique<Faulty>(std::move(t), net));
    ranks = std::make_unique<Ranks>(std::move(transports), options);
  }
  ~World() {
    net->thaw_all();
    ranks.reset();
  }
  Status round(Rank r) {
    std::vector<float>& v = values[static_cast<std::size_t>(r)];
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = (*ranks)[r].sync({&t, 1});
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY((*ranks)[r].wait(*ticket));
    return (*ranks)[r].commit();
  }
  std::shared_ptr<FaultyNet> net;
  std::vector<std::vector<float>> values;
  std::unique_ptr<Ranks> ranks;
};

// 4 MB by gather over a slow link take longer than the timeout, but bytes arrive continuously.
TEST(Liveness, ReceivedBytesCountAsProgress) {
  World w(3, {.codec = "fp32", .strategy = "gather", .timeout = 500ms});
  w.net->slow(1, 100e3);  // 200 KB: two seconds
  w.ranks->each([&](Rank r) {
    const Status s = w.round(r);
    EXPECT_TRUE(s.ok()) << text(s);
  });
}

// Session::present, between rounds: a dead rank is reported, a rank that sent a farewell is not.
TEST(Liveness, SilentLossIsDetectedWithoutAWaitingRank) {
  for (const bool dies : {true, false}) {
    World w(3, {.codec = "fp32", .strategy = "gather"});
    w.ranks->each([&](Rank r) {
      const Status s = w.round(r);
      EXPECT_TRUE(s.ok()) << text(s);
    });
    Ranks& all = *w.ranks;
    for (Rank r = 0; r < 3; ++r) EXPECT_TRUE(all[r].present().ok()) << text(all[r].present());
    if (dies) w.net->kill(1);
    all[1].cancel();  // a dead rank's message is not sent
    EXPECT_EQ(all[1].present().code(), Code::kCancelled);
    for (const Rank r : {0, 2}) {
      const auto end = Clock::now() + (dies ? 20s : 1s);
      while (all[r].present().ok() && Clock::now() < end) std::this_thread::sleep_for(5ms);
      const Status s = all[r].present();
      EXPECT_EQ(s.code(), dies ? Code::kPeerLost : Code::kOk) << text(s);
      EXPECT_EQ(s.peer(), dies ? 1 : Status::kNoPeer) << text(s);
    }
  }
}

// If bytes are in flight and do not move, no rank is named, and the text has the speed of the link.
TEST(Liveness, StalledLinkNamesNoRank) {
  World w(2, {.codec = "fp32", .strategy = "gather", .timeout = 400ms});
  w.net->slow(1, 100e3);
  w.net->stick(1, 40'000);  // bytes; smaller messages still arrive
  w.ranks->each([&](Rank r) {
    const Status s = w.round(r);
    EXPECT_EQ(s.code(), Code::kTimeout) << text(s);
    EXPECT_EQ(s.peer(), Status::kNoPeer) << text(s);
    EXPECT_NE(s.what().find("the link from rank 1 to rank 0 is stuck or too slow"), std::string::npos)
        << text(s);
    EXPECT_NE(s.what().find("Mbit/s"), std::string::npos) << text(s);
  });
}

// A rank that evaluates a model for many timeouts is not reported as dead.
TEST(Liveness, RankInEvaluationAnswers) {
  World w(3, {.codec = "fp32", .strategy = "ring", .timeout = 500ms});
  w.ranks->each([&](Rank r) {
    EXPECT_TRUE(w.round(r).ok());
    if (r == 1) std::this_thread::sleep_for(2000ms);
    const Status s = w.round(r);
    EXPECT_TRUE(s.ok()) << "rank " << r << ": " << text(s);
  });
}

// But not without limit.
TEST(Liveness, TimeoutNamesTheRankWithoutContribution) {
  World w(4, {.codec = "fp32", .strategy = "ring", .timeout = 300ms, .patience = 900ms});
  w.ranks->each([&](Rank r) {
    EXPECT_TRUE(w.round(r).ok());
    if (r == 2) return;
    const Status s = w.round(r);
    EXPECT_EQ(s.code(), Code::kTimeout) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
    EXPECT_NE(s.what().find("rank 2 is alive, but did not pass its buckets"), std::string::npos) << text(s);
  });
}

// Detection takes 1.1 times the timeout. The machine may be busy, so the best of a few attempts counts.
TEST(Liveness, FrozenRankIsDetectedWithin110PercentOfTheTimeout) {
  constexpr auto kTimeout = 1000ms;
  auto best = Clock::duration::max();
  for (int tries = 0; tries < 5 && best > kTimeout * 11 / 10 + 5ms; ++tries) {
    World w(3, {.codec = "fp32", .strategy = "ring", .timeout = kTimeout});
    w.ranks->each([&](Rank r) { EXPECT_TRUE(w.round(r).ok()); });
    w.net->freeze(2, true);
    const auto begin = Clock::now();
    std::atomic<Clock::rep> longest{0};
    run_ranks(2, [&](Rank r) {
      const Status s = w.round(r);
      EXPECT_EQ(s.peer(), 2) << text(s);
      Clock::rep mine = (Clock::now() - begin).count();
      for (Clock::rep seen = longest; seen < mine && !longest.compare_exchange_weak(seen, mine);) {
      }
    });
    best = std::min(best, Clock::duration(longest.load()));
  }
  EXPECT_LE(best, kTimeout * 11 / 10 + 5ms);
}

// ---- Messages of a peer. The test plays rank 1: a transport without a session.

struct UnknownPeer {
  explicit UnknownPeer(SessionOptions options, bool begins = true) {
    auto transports = open_loop(2);
    other = std::move(transports[1]);
    session = std::move(*Session::open(std::move(transports[0]), options));
    if (begins) begin();
  }
  void begin() {
    const Tensor t{.key = "w", .data = values.data(), .n = values.size()};
    const Result<Ticket> begun = session->sync({&t, 1});
    status = begun.status();
    if (begun.ok()) ticket = *begun;
  }
  void say(std::size_t bytes) {
    EXPECT_TRUE(other->send(0, 0, {frame.data(), bytes}, 1).ok());
    Completion done[8];
    other->poll(done, 0ns);
  }
  std::vector<float> values = std::vector<float>(100, 1.0F);
  std::vector<std::uint8_t> frame = std::vector<std::uint8_t>(engine::kControlBytes);
  std::unique_ptr<Transport> other;
  std::unique_ptr<Session> session;
  Ticket ticket = 0;
  Status status;
};

constexpr engine::ControlIdentity kPeer{.me = 1, .world = 2};

// Unsolicited messages must not reset the timeout: a peer that sent some now and then kept wait() from timing out.
TEST(Liveness, UnrequestedMessagesDoNotResetTheTimeout) {
  std::atomic<bool> over{false};
  UnknownPeer s({.codec = "fp32", .timeout = 600ms});
  const auto begin = Clock::now();
  std::thread asker([&] {  // requests are answered, and do not count as progress
    for (std::uint32_t k = 1; !over && k < 100; ++k) {
      s.say(engine::write_report(engine::ControlKind::kAsk, {.number = k}, kPeer, s.frame));
      std::this_thread::sleep_for(100ms);
    }
  });
  const Status end = s.session->wait(s.ticket);
  over = true;
  asker.join();
  EXPECT_EQ(end.code(), Code::kTimeout) << text(end);
  EXPECT_EQ(end.peer(), 1) << text(end);
  EXPECT_LT(Clock::now() - begin, 5s);
}

// An unlimited number of cards would use unlimited memory: 193,000 of them took 284 MB.
TEST(Liveness, RoundStatusesAreBounded) {
  UnknownPeer s({.codec = "fp32", .timeout = 20s}, false);
  for (std::uint32_t k = 0; k <= engine::kMaxCardsAhead; ++k)
    s.say(engine::write_card({.number = k, .world = 2, .codec = "x", .strategy = "y"}, kPeer, s.frame));
  Status end;
  for (const auto until = Clock::now() + 20s; end.ok() && Clock::now() < until;) end = s.session->commit();
  EXPECT_EQ(end.code(), Code::kCorrupt) << text(end);
  EXPECT_EQ(end.peer(), 1) << text(end);
  EXPECT_NE(end.what().find("descriptions of more than"), std::string::npos) << text(end);
}

TEST(Liveness, InvalidControlMessageNamesItsSender) {
  using engine::ControlKind;
  const std::vector<std::function<std::size_t(std::vector<std::uint8_t>&)>> frames = {
      [](auto& f) {
        return engine::write_card({.number = 1, .world = 2, .codec = "x", .strategy = "y"}, kPeer, f);
      },  // not its next
      [](auto& f) { return engine::write_done({}, kPeer, f); },
      [](auto& f) { return engine::write_done({.ended = 2, .begun = 2}, kPeer, f); },
      [](auto& f) { return engine::write_done({.ended = 0, .begun = 2}, kPeer, f); },
      [](auto& f) { return engine::write_done({.ended = 1, .begun = 0}, kPeer, f); },
      [](auto& f) {
        return engine::write_report(ControlKind::kHere, {.number = 77}, kPeer, f);
      },  // unsolicited
  };
  for (const auto& write : frames) {
    UnknownPeer s({.codec = "fp32", .timeout = 20s});
    s.say(write(s.frame));
    const Status end = s.session->wait(s.ticket);
    EXPECT_EQ(end.code(), Code::kCorrupt) << text(end);
    EXPECT_EQ(end.peer(), 1) << text(end);
  }
}

TEST(Liveness, FarewellThatBlamesAnUnknownRankNamesItsSender) {
  UnknownPeer s({.codec = "fp32", .timeout = 20s});
  s.say(engine::write_farewell({.code = Code::kCorrupt, .blamed = 1'000'000, .round = 0, .what = "so"}, kPeer,
                               s.frame));
  const Status end = s.session->wait(s.ticket);
  EXPECT_EQ(end.code(), Code::kCorrupt) << text(end);
  EXPECT_EQ(end.peer(), 1) << text(end);
}

// ---- Ctrl-C

// The time until a waiting session call returns after cancel(), or after `interrupted` returned true.
Clock::duration until_withdrawn(int lanes, bool in_commit, bool by_cancel) {
  std::atomic<bool> pressed{false};
  SessionOptions options{.codec = "fp32", .lanes = lanes};
  auto transports = open_loop(2);
  auto other = std::move(*Session::open(std::move(transports[1]), {.codec = "fp32"}));
  if (!by_cancel) options.interrupted = [&] { return pressed.load(); };
  auto mine = std::move(*Session::open(std::move(transports[0]), options));
  std::vector<float> a(100), b(100);
  const Tensor ta{.key = "w", .data = a.data(), .n = a.size()},
      tb{.key = "w", .data = b.data(), .n = b.size()};
  if (in_commit) {
    EXPECT_TRUE(other->sync({&tb, 1}).ok());  // and never commits
  }
  const Result<Ticket> ticket = mine->sync({&ta, 1});
  EXPECT_TRUE(ticket.ok());
  if (!ticket.ok()) return {};
  if (in_commit) {
    EXPECT_TRUE(mine->wait(*ticket).ok());
  }
  Clock::time_point when;
  std::thread user([&] {
    std::this_thread::sleep_for(50ms);
    when = Clock::now();
    if (by_cancel)
      mine->cancel();
    else
      pressed = true;
  });
  const Status s = in_commit ? mine->commit() : mine->wait(*ticket);
  const Clock::time_point end = Clock::now();
  user.join();
  EXPECT_EQ(s.code(), Code::kCancelled) << text(s);
  return end - when;
}

// Every waiting call ends within a second. The machine may be busy, so the best of a few attempts counts.
TEST(Liveness, CancelEndsEveryCallWithinASecond) {
  for (const int lanes : {0, 1})
    for (const bool in_commit : {false, true})
      for (const bool by_cancel : {false, true}) {
        auto best = Clock::duration::max();
        for (int tries = 0; tries < 5 && best >= 1s; ++tries)
          best = std::min(best, until_withdrawn(lanes, in_commit, by_cancel));
        EXPECT_LT(best, 1s) << "lanes " << lanes << " commit " << in_commit << " cancel " << by_cancel;
      }
}

}  // namespace
}  // namespace tithe
