// SPDX-License-Identifier: Apache-2.0
// Several threads of one rank, and notifications without a waiting caller.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "support/exact.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using harness::same_bits;
using testing::Ranks;
using testing::text;

using Floats = std::vector<float>;

Floats wave(std::size_t n, Rank r, int round) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(r) + 10.0F * static_cast<float>(round));
  return v;
}

Result<Ticket> hand_over(Session& session, std::string_view key, Floats& values) {
  const Tensor t{.key = key, .data = values.data(), .n = values.size()};
  return session.sync({&t, 1});
}

// Without lanes the waiting callers do the work: of two that wait at once, only one may run it at a time.
TEST(Session, ConcurrentWaitsShareTheWork) {
  for (const int lanes : {0, 1}) {
    Ranks ranks(open_loop(2), {.codec = "onebit", .lanes = lanes, .min_values = 0});
    ranks.each([&](Rank r) {
      for (int round = 0; round < 20; ++round) {
        std::map<std::string, Floats> buckets;
        std::vector<Ticket> tickets;
        for (const char* key : {"a", "b", "c"}) {
          const Result<Ticket> ticket = hand_over(ranks[r], key, buckets[key] = wave(3000, 0, round));
          ASSERT_TRUE(ticket.ok()) << text(ticket.status());
          tickets.push_back(*ticket);
        }
        std::vector<std::thread> threads;
        for (const Ticket ticket : tickets)
          threads.emplace_back([&, ticket] { EXPECT_TRUE(ranks[r].wait(ticket).ok()); });
        for (int k = 0; k < 2; ++k) threads.emplace_back([&] { EXPECT_TRUE(ranks[r].commit().ok()); });
        for (std::thread& t : threads) t.join();
        EXPECT_EQ(ranks[r].stats().rounds, static_cast<std::uint64_t>(round + 1));
        EXPECT_TRUE(same_bits(buckets["a"], buckets["b"])) << "equal gradients give equal results";
      }
    });
  }
}

// Each key once per round, whichever thread is first. Callers must use the same order of threads on all ranks.
TEST(Session, ConcurrentHandOversOfATensorAreRefusedExceptOne) {
  Ranks ranks(open_loop(2), {.codec = "fp32"});
  ranks.each([&](Rank r) {
    for (int round = 0; round < 10; ++round) {
      Floats values[2] = {wave(3000, r, round), wave(3000, r, round)};
      std::atomic<int> taken{0};
      std::vector<std::thread> threads;
      for (Floats& mine : values)
        threads.emplace_back([&] {
          const Result<Ticket> ticket = hand_over(ranks[r], "w", mine);
          if (ticket.ok()) return void(++taken);
          EXPECT_EQ(ticket.status().code(), Code::kInvalid);
          EXPECT_TRUE(testing::has(ticket.status().what(), "call commit() first")) << text(ticket.status());
        });
      for (std::thread& t : threads) t.join();
      EXPECT_EQ(taken, 1);
      ASSERT_TRUE(ranks[r].commit().ok());
    }
  });
}

// A refused call must not add its layout: otherwise ranks would differ in the round in which they added it.
TEST(Session, ARefusedBucketLeavesNoLayout) {
  Ranks ranks(open_loop(2), {.codec = "fp32"});
  ranks.each([&](Rank r) {
    Floats a = wave(3000, r, 0), b = wave(3000, r, 0);
    const Tensor both[] = {{.key = "a", .data = a.data(), .n = a.size()},
                           {.key = "b", .data = b.data(), .n = b.size()}};
    ASSERT_TRUE(hand_over(ranks[r], "a", a).ok());
    if (r == 0) {
      const Status s = ranks[0].sync(both).status();
      EXPECT_TRUE(testing::has(s.what(), "tensor 'a' is part of round 0 already")) << text(s);
    }
    ASSERT_TRUE(ranks[r].commit().ok());
    ASSERT_TRUE(ranks[r].sync(both).ok());
    const Status s = ranks[r].commit();
    EXPECT_TRUE(s.ok()) << text(s);
  });
}

// Such a bucket would belong to this round or the next, depending on timing, so ranks could differ.
TEST(Session, HandingOverDuringACommitIsRefused) {
  std::atomic<bool> ends{false}, refused{false};
  Ranks ranks(open_loop(2), {.codec = "fp32"}, [&](Rank r, SessionOptions& mine) {
    if (r == 0) mine.interrupted = [&] { return ends = true, false; };
  });
  ranks.each([&](Rank r) {
    Floats a = wave(3000, r, 0), b = wave(3000, r, 0);
    while (r == 1 && !refused) std::this_thread::yield();
    ASSERT_TRUE(hand_over(ranks[r], "a", a).ok());
    std::thread other([&] { EXPECT_TRUE(ranks[r].commit().ok()); });
    if (r == 0) {
      while (!ends) std::this_thread::yield();
      const Status s = hand_over(ranks[0], "b", b).status();
      EXPECT_EQ(s.code(), Code::kInvalid);
      EXPECT_TRUE(testing::has(s.what(), "commit() of round 0 is running on another thread")) << text(s);
      EXPECT_TRUE(same_bits(b, wave(3000, 0, 0)));
      refused = true;
    }
    other.join();
    ASSERT_TRUE(hand_over(ranks[r], "b", b).ok());
    const Status s = ranks[r].commit();
    EXPECT_TRUE(s.ok()) << text(s);
  });
}

// The reported ends of a session's tickets, from any thread.
struct Ends {
  std::mutex mutex;
  std::map<Ticket, std::vector<Status>> by_ticket;

  // Waits for the report: a lane may report a ticket after the waiting caller has continued.
  std::vector<Status> of(Ticket ticket) {
    for (int turn = 0; turn < 10'000; ++turn, std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const std::lock_guard lock(mutex);
      if (const auto found = by_ticket.find(ticket); found != by_ticket.end()) return found->second;
    }
    return {};
  }
};

TEST(Session, polled) {
  for (const int lanes : {0, 1}) {
    Ends ends[2];
    std::atomic<bool> looked{false};
    Ranks ranks(open_loop(2), {.codec = "bf16", .lanes = lanes}, [&](Rank r, SessionOptions& mine) {
      mine.ended = [&mine = ends[r]](Ticket ticket, const Status& how) {
        const std::lock_guard lock(mine.mutex);
        mine.by_ticket[ticket].push_back(how);
      };
    });
    ranks.each([&](Rank r) {
      EXPECT_EQ(ranks[r].poll(1).status().code(), Code::kInvalid);
      Floats values = wave(5000, r, 0), other = wave(4000, r, 0);
      while (r == 1 && !looked) std::this_thread::yield();
      const Result<Ticket> ticket = hand_over(ranks[r], "w", values);
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      if (r == 0) {  // rank 1 has handed over nothing
        const Result<bool> early = ranks[0].poll(*ticket);
        ASSERT_TRUE(early.ok()) << text(early.status());
        EXPECT_FALSE(*early);
        looked = true;
      }
      Result<bool> done = false;
      while (done.ok() && !*done) done = ranks[r].poll(*ticket);
      ASSERT_TRUE(done.ok()) << text(done.status());
      EXPECT_NEAR(values[1], (wave(2, 0, 0)[1] + wave(2, 1, 0)[1]) / 2, 0.01F)
          << "poll() must not return true before the result is stored";
      ASSERT_TRUE(ranks[r].wait(*ticket).ok());
      ASSERT_TRUE(ranks[r].commit().ok());
      EXPECT_TRUE(*ranks[r].poll(*ticket)) << "a ticket of a committed round is done";
      if (r == 1) return ranks[1].cancel();
      const Result<Ticket> lost = hand_over(ranks[0], "u", other);
      if (!lost.ok()) return;  // the rank has already seen the departure
      Result<bool> never = false;
      while (never.ok() && !*never) never = ranks[0].poll(*lost);
      EXPECT_EQ(never.status().code(), Code::kPeerLost) << text(never.status());
      EXPECT_EQ(never.status().peer(), 1);
      EXPECT_EQ(ranks[0].wait(*lost).code(), Code::kPeerLost);
      ASSERT_EQ(ends[0].of(*lost).size(), 1U);
      EXPECT_EQ(ends[0].of(*lost)[0].peer(), 1);
    });
    for (Ends& mine : ends) {
      ASSERT_EQ(mine.of(1).size(), 1U) << "each ticket is reported once";
      EXPECT_TRUE(mine.of(1)[0].ok());
    }
  }
}

// A ticket without a waiting caller is reported at the end of the session.
TEST(Session, TicketsWithoutAWaiterAreReportedAtTheEnd) {
  for (const int lanes : {0, 1}) {
    Status how;
    int calls = 0;
    {
      Ranks ranks(open_loop(2), {.codec = "fp32", .lanes = lanes}, [&](Rank r, SessionOptions& mine) {
        if (r == 0) mine.ended = [&](Ticket, const Status& s) { how = s, ++calls; };
      });
      Floats values = wave(3000, 0, 0);
      ASSERT_TRUE(hand_over(ranks[0], "w", values).ok());
      ranks.close(0);
    }
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(how.code(), Code::kCancelled) << text(how);
  }
}

}  // namespace
}  // namespace tithe
