// SPDX-License-Identifier: Apache-2.0
// The promises at the top of session.h, each with a test of its name; many have more tests elsewhere
// (session_test.cc, tests/conformance/).
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <numeric>
#include <regex>
#include <thread>

#include "engine/run/operations.h"
#include "support/exact.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using harness::same_bits;
using testing::Ranks;
using testing::text;

using Floats = std::vector<float>;

struct Named {
  std::string key;
  Floats values;
};

Floats wave(std::size_t n, Rank r, int round) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i)
    v[i] = std::sin(static_cast<float>(3 * i) + static_cast<float>(r) + 10.0F * static_cast<float>(round));
  return v;
}

Status sync_and_wait(Session& session, std::vector<Named>& bucket) {
  std::vector<Tensor> tensors;
  for (Named& t : bucket) tensors.push_back({.key = t.key, .data = t.values.data(), .n = t.values.size()});
  const Result<Ticket> ticket = session.sync(tensors);
  return ticket.ok() ? session.wait(*ticket) : ticket.status();
}

Status round_of(Session& session, std::vector<Named>& bucket) {
  TITHE_TRY(sync_and_wait(session, bucket));
  return session.commit();
}

Floats unsent(const Session& session, std::string_view key, std::size_t n) {
  Floats v(n, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(session.residual(key, v).ok());
  return v;
}

// Values whose sums are exact in any order of additions.
Floats whole(std::size_t n, Rank r, std::uint32_t seed) {
  Floats values = wave(n, r, seed);
  for (float& v : values) v = std::nearbyint(64 * v) / 64;
  return values;
}

// Every rank's tensors have the same bits after wait(): the mean, or the sum.
TEST(Session, mean) {
  for (const char* codec : {"fp32", "bf16", "topk:ratio=0.1", "powersgd"})
    for (const bool average : {true, false}) {
      Ranks ranks(open_loop(3), {.codec = codec, .average = average, .min_values = 0});
      std::vector<Floats> results(3);
      ranks.each([&](Rank r) {
        std::vector<Named> bucket = {{"w", whole(600, r, 0)}, {"b", wave(7, r, 1)}};
        ASSERT_TRUE(sync_and_wait(ranks[r], bucket).ok());
        results[static_cast<std::size_t>(r)] = bucket[0].values;
        ASSERT_TRUE(ranks[r].commit().ok());
      });
      EXPECT_TRUE(same_bits(results[0], results[1]) && same_bits(results[0], results[2])) << codec;
      if (std::string_view(codec) != "fp32") continue;
      const Floats a = whole(600, 0, 0), b = whole(600, 1, 0), c = whole(600, 2, 0);
      for (std::size_t i = 0; i < 600; ++i)
        EXPECT_EQ(results[0][i], (a[i] + b[i] + c[i]) / (average ? 3.0F : 1.0F)) << i;
    }
}

TEST(Session, alone) {
  for (const char* codec : {"onebit", "topk:ratio=0.1", "qsgd"}) {
    const SessionOptions options{.codec = codec, .min_values = 100};
    Ranks by_itself(open_loop(2), options), among_others(open_loop(2), options);
    std::vector<Floats> results(2);
    by_itself.each([&](Rank r) {
      std::vector<Named> bucket = {{"w", wave(500, r, 0)}};
      ASSERT_TRUE(round_of(by_itself[r], bucket).ok());
      if (r == 0) results[0] = bucket[0].values;
    });
    among_others.each([&](Rank r) {
      std::vector<Named> bucket = {{"a", wave(300, r, 2)}, {"b", wave(5, r, 3)}, {"w", wave(500, r, 0)}};
      ASSERT_TRUE(round_of(among_others[r], bucket).ok());
      if (r == 0) results[1] = bucket[2].values;
    });
    EXPECT_TRUE(same_bits(results[0], results[1])) << codec;
  }
}

// The values are multiples of 1/64, whose sums are exact, so the ledger of a codec that sends whole values is exact.
TEST(Session, ledger) {
  constexpr std::size_t kN = 400;
  Ranks ranks(open_loop(3), {.codec = "topk:ratio=0.05", .average = false, .min_values = 0});
  std::vector<double> put_in(kN), came_out(kN), waits(kN);
  std::mutex mutex;
  ranks.each([&](Rank r) {
    for (int round = 0; round < 4; ++round) {
      std::vector<Named> bucket = {{"w", Floats(kN)}};
      for (std::size_t i = 0; i < kN; ++i)
        bucket[0].values[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(r + round)) % 64) / 64;
      const Floats gradient = bucket[0].values;
      ASSERT_TRUE(round_of(ranks[r], bucket).ok());
      const std::lock_guard lock(mutex);
      for (std::size_t i = 0; i < kN; ++i) {
        put_in[i] += gradient[i];
        if (r == 0) came_out[i] += bucket[0].values[i];
      }
    }
    const Floats left = unsent(ranks[r], "w", kN);
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < kN; ++i) waits[i] += left[i];
  });
  for (std::size_t i = 0; i < kN; ++i) EXPECT_EQ(put_in[i], came_out[i] + waits[i]) << i;
  EXPECT_GT(std::accumulate(waits.begin(), waits.end(), 0.0), 0.0)
      << "the residual must not be zero, or the test shows nothing";
}

TEST(Session, commit) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.05", .min_values = 0});
  ranks.each([&](Rank r) {
    std::vector<Named> bucket = {{"w", wave(300, r, 0)}};
    ASSERT_TRUE(sync_and_wait(ranks[r], bucket).ok());
    EXPECT_EQ(unsent(ranks[r], "w", 300), Floats(300)) << "the residual must not change before commit()";
    ASSERT_TRUE(ranks[r].commit().ok());
    const Floats kept = unsent(ranks[r], "w", 300);
    EXPECT_NE(kept, Floats(300)) << "commit() must update the residual";
    bucket[0].values = wave(300, r, 1);
    if (r == 1) bucket[0].values[3] = std::numeric_limits<float>::infinity();
    ASSERT_TRUE(round_of(ranks[r], bucket).ok());
    EXPECT_TRUE(ranks[r].last_round_dropped());
    EXPECT_EQ(unsent(ranks[r], "w", 300), kept) << "a dropped round must not change the residual";
  });
}

// Delays every control message, and counts the messages sent.
class SlowToTake final : public testing::ForwardingTransport {
 public:
  SlowToTake(std::unique_ptr<Transport> inner, std::atomic<int>& taken)
      : ForwardingTransport(std::move(inner)), taken_(taken) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (channel == engine::kControlChannel) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++taken_;
    }
    return ForwardingTransport::send(peer, channel, bytes, op);
  }

 private:
  std::atomic<int>& taken_;
};

// A process may exit as soon as its last commit() has returned. The other ranks need its done message to commit that
// round.
TEST(Session, commit_sends_its_done_message_before_it_returns) {
  for (const int lanes : {0, 2}) {
    std::vector<std::unique_ptr<Transport>> ends = open_loop(3);
    std::atomic<int> taken = 0;
    ends[0] = std::make_unique<SlowToTake>(std::move(ends[0]), taken);
    Ranks ranks(std::move(ends), {.codec = "fp32", .lanes = lanes, .min_values = 0});
    ranks.each([&](Rank r) {
      std::vector<Named> bucket = {{"w", wave(300, r, 0)}};
      ASSERT_TRUE(round_of(ranks[r], bucket).ok());  // includes the cards of the layout
      ASSERT_TRUE(sync_and_wait(ranks[r], bucket).ok());
      // The last rank to end its work sees immediately that all ranks have ended. commit() must wait until this
      // rank's own done message is sent.
      if (r == 0) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      const int before = taken;
      ASSERT_TRUE(ranks[r].commit().ok());
      if (r == 0) {
        EXPECT_EQ(taken, before + 2);
      }
    });
  }
}

// Accepts control messages from some time on, and never completes them.
class NeverDone final : public testing::ForwardingTransport {
 public:
  NeverDone(std::unique_ptr<Transport> inner, std::atomic<bool>& stuck)
      : ForwardingTransport(std::move(inner)), stuck_(stuck) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (stuck_ && channel == engine::kControlChannel) return {};
    return ForwardingTransport::send(peer, channel, bytes, op);
  }

 private:
  std::atomic<bool>& stuck_;
};

// A round that all ranks have ended is committed, even if this rank's done message is never sent; the other ranks
// name this rank.
TEST(Session, commit_succeeds_if_the_done_message_is_lost) {
  for (const int lanes : {0, 2}) {
    std::vector<std::unique_ptr<Transport>> ends = open_loop(3);
    std::atomic<bool> stuck = false;
    ends[0] = std::make_unique<NeverDone>(std::move(ends[0]), stuck);
    Ranks ranks(std::move(ends),
                {.codec = "fp32", .lanes = lanes, .min_values = 0, .timeout = std::chrono::seconds(1)});
    ranks.each([&](Rank r) {
      std::vector<Named> bucket = {{"w", wave(300, r, 0)}};
      ASSERT_TRUE(round_of(ranks[r], bucket).ok());
      ASSERT_TRUE(sync_and_wait(ranks[r], bucket).ok());
      if (r == 0) stuck = true;
      const Status s = ranks[r].commit();
      if (r == 0) {
        EXPECT_TRUE(s.ok()) << text(s);
      } else {
        EXPECT_EQ(s.code(), Code::kTimeout) << text(s);
        EXPECT_EQ(s.peer(), 0) << text(s);
      }
    });
  }
}

TEST(Session, together) {
  Ranks ranks(open_loop(2), {.codec = "bf16", .min_values = 10});
  ranks.each([&](Rank r) {
    std::vector<Named> a = {{"a", wave(50, r, 0)}, {"a2", wave(4, r, 1)}}, b = {{"b", wave(60, r, 2)}};
    if (r == 1) b[0].values[59] = std::numeric_limits<float>::quiet_NaN();
    ASSERT_TRUE(sync_and_wait(ranks[r], a).ok());
    ASSERT_TRUE(sync_and_wait(ranks[r], b).ok());
    for (const float v : b[0].values) EXPECT_TRUE(std::isnan(v));
    ASSERT_TRUE(ranks[r].commit().ok());
    for (const Named& t : a)
      for (const float v : t.values) EXPECT_TRUE(std::isnan(v)) << t.key;
  });
}

TEST(Session, keyed) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.05", .min_values = 0});
  ranks.each([&](Rank r) {
    std::vector<Named> first = {{"w", wave(300, r, 0)}, {"b", wave(200, r, 1)}};
    ASSERT_TRUE(round_of(ranks[r], first).ok());
    const Floats kept = unsent(ranks[r], "w", 300);
    std::vector<Named> then = {{"c", wave(100, r, 2)}, {"w", Floats(300)}};
    ASSERT_TRUE(sync_and_wait(ranks[r], then).ok());
    EXPECT_EQ(unsent(ranks[r], "w", 300), kept) << "the residual must move to the other bucket";
    ASSERT_TRUE(ranks[r].commit().ok());
    const Floats now = unsent(ranks[r], "w", 300);
    std::size_t sent = 0;
    for (std::size_t i = 0; i < 300; ++i) {
      EXPECT_TRUE(now[i] == kept[i] || now[i] == 0.0F) << i;
      sent += now[i] != kept[i];
    }
    EXPECT_GT(sent, 0U) << "the residual must be sent from there";
  });
}

TEST(Session, named) {
  Ranks ranks(open_loop(3), {.codec = "fp32", .timeout = std::chrono::milliseconds(5000)});
  ranks.each([&](Rank r) {
    std::vector<Named> bucket = {{"w", wave(5000, r, 0)}};
    ASSERT_TRUE(round_of(ranks[r], bucket).ok());
    if (r == 1) return ranks.close(1);
    const Status s = round_of(ranks[r], bucket);
    EXPECT_EQ(s.code(), Code::kPeerLost) << text(s);
    EXPECT_EQ(s.peer(), 1) << text(s);
  });
}

// sync() and stats() during a wait() of another thread, and cancel() during any call; session_threads_test.cc has
// more.
TEST(Session, threads) {
  Ranks ranks(open_loop(2), {.codec = "bf16", .min_values = 0});
  ranks.each([&](Rank r) {
    for (int round = 0; round < 20; ++round) {
      std::vector<Named> a = {{"a", wave(3000, r, round)}}, b = {{"b", wave(2000, r, round)}};
      const Tensor first{.key = "a", .data = a[0].values.data(), .n = a[0].values.size()};
      const Tensor second{.key = "b", .data = b[0].values.data(), .n = b[0].values.size()};
      const Result<Ticket> one = ranks[r].sync({&first, 1});
      ASSERT_TRUE(one.ok()) << text(one.status());
      Result<Ticket> two = Status(Code::kInvalid, "not yet");
      std::thread other([&] {
        two = ranks[r].sync({&second, 1});
        EXPECT_EQ(ranks[r].stats().rounds, static_cast<std::uint64_t>(round));
      });
      EXPECT_TRUE(ranks[r].wait(*one).ok());
      other.join();
      ASSERT_TRUE(two.ok()) << text(two.status());
      EXPECT_TRUE(ranks[r].wait(*two).ok());
      ASSERT_TRUE(ranks[r].commit().ok());
    }
  });
  ranks.each([&](Rank r) {
    if (r == 1) return;  // it hands over nothing, so rank 0 waits
    std::vector<Named> bucket = {{"a", wave(3000, r, 0)}};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ranks[0].cancel();
    });
    EXPECT_EQ(sync_and_wait(ranks[0], bucket).code(), Code::kCancelled);
    other.join();
  });
}

// Between two buckets all its frames are sent, so no operation fails: the peers must still end at once and name it.
TEST(Session, ARankThatCancelsBetweenTwoBucketsIsNamed) {
  Ranks ranks(open_loop(2), {.codec = "fp32", .timeout = std::chrono::seconds(2)});
  ranks.each([&](Rank r) {
    std::vector<Named> first = {{"a", wave(100, r, 0)}}, second = {{"b", wave(100, r, 0)}};
    for (auto* bucket : {&first, &second}) ASSERT_TRUE(sync_and_wait(ranks[r], *bucket).ok());
    ASSERT_TRUE(ranks[r].commit().ok());  // the layouts are agreed
    ASSERT_TRUE(sync_and_wait(ranks[r], first).ok());
    if (r == 0) return ranks[0].cancel();
    const Status s = sync_and_wait(ranks[1], second);
    EXPECT_EQ(s.code(), Code::kPeerLost) << text(s);
    EXPECT_EQ(s.peer(), 0) << text(s);
  });
}

TEST(Session, undone) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.1", .undo = true});
  ranks.each([&](Rank r) {
    std::vector<Named> bucket = {{"w", wave(5000, r, 0)}};
    ASSERT_TRUE(round_of(ranks[r], bucket).ok());
    const auto before = ranks[r].state();
    bucket = {{"w", wave(5000, r, 1)}};
    ASSERT_TRUE(round_of(ranks[r], bucket).ok());
    EXPECT_NE(*ranks[r].state(), *before);
    ASSERT_TRUE(ranks[r].undo().ok());
    EXPECT_EQ(*ranks[r].state(), *before);
  });
}

// A communication thread and the compute lanes, or no thread without lanes; nothing is printed.
TEST(Session, quiet) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator{});
  };
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const auto before = threads();
  for (const auto& [lanes, expected] : {std::pair{0, 0}, std::pair{1, 2}, std::pair{3, 4}}) {
    // The kernel may list a thread for a moment after the join.
    for (int looks = 0; threads() != before && looks < 5000; ++looks)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto session = Session::open(std::move(open_loop(1)[0]), {.codec = "fp32", .lanes = lanes});
    ASSERT_TRUE(session.ok());
    EXPECT_EQ(threads() - before, expected) << lanes << " lanes";
    std::vector<Named> bucket = {{"w", wave(100, 0, 0)}};
    EXPECT_TRUE(round_of(**session, bucket).ok());
    bucket[0].values.resize(50);
    EXPECT_EQ(sync_and_wait(**session, bucket).code(), Code::kInvalid);
    EXPECT_EQ(threads() - before, expected);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// The promises of session.h and plan.h: the words at the start of lines at the top, followed by at least two spaces.
TEST(Promises, EachHasATestOfItsName) {
  for (const auto& [header, suite] : {std::pair{"session.h", "Session"}, std::pair{"seam/plan.h", "Plan"}}) {
    std::ifstream file(std::string(TITHE_SOURCE_DIR "/include/tithe/") + header);
    ASSERT_TRUE(file) << header;
    int promises = 0;
    for (std::string line; std::getline(file, line) && !line.starts_with("#include");) {
      std::smatch word;
      if (!std::regex_search(line, word, std::regex("^//   ([a-z_]+)  +[a-zA-Z(]"))) continue;
      ++promises;
      bool found = false;
      const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
      for (int s = 0; s < all.total_test_suite_count(); ++s) {
        const ::testing::TestSuite& tests = *all.GetTestSuite(s);
        for (int t = 0; t < tests.total_test_count() && tests.name() == std::string_view(suite); ++t)
          found = found || std::string_view(tests.GetTestInfo(t)->name()).starts_with(word[1].str());
      }
      EXPECT_TRUE(found) << header << " promises '" << word[1] << "': where is " << suite << '.' << word[1];
    }
    EXPECT_GE(promises, 4) << header;
  }
}

}  // namespace
}  // namespace tithe
