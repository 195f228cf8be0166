// SPDX-License-Identifier: Apache-2.0
#include "advisor/measure/links.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "support/forwarding_transport.h"
#include "tithe/connect.h"

namespace tithe::bench {
namespace {

// A transport with a broken link between two ranks: messages are refused at once, or never arrive.
class Broken : public tithe::testing::ForwardingTransport {
 public:
  Broken(std::unique_ptr<Transport> inner, Rank other, bool refuses)
      : ForwardingTransport(std::move(inner)), other_(other), refuses_(refuses) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (peer != other_) return ForwardingTransport::send(peer, channel, bytes, op);
    return refuses_ ? Status(Code::kPeerLost, "cut", peer) : Status{};
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    if (peer != other_) return ForwardingTransport::recv(peer, channel, into, op);
    return refuses_ ? Status(Code::kPeerLost, "cut", peer) : Status{};
  }

 private:
  const Rank other_;
  const bool refuses_;
};

class Barrier {
 public:
  explicit Barrier(int ranks) : ranks_(ranks) {}
  bool wait() {
    std::unique_lock lock(mutex_);
    const int turn = turn_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++turn_;
      all_.notify_all();
    }
    all_.wait(lock, [&] { return turn_ != turn; });
    return true;
  }

 private:
  const int ranks_;
  std::mutex mutex_;
  std::condition_variable all_;
  int here_ = 0, turn_ = 0;
};

struct Found {
  std::vector<FoundLink> links;
  std::vector<FoundTogether> together;
};

Found measured(std::vector<std::unique_ptr<Transport>> ranks) {
  const auto world = ranks.size();
  Found found{std::vector<FoundLink>(world * world), std::vector<FoundTogether>(world)};
  Barrier barrier(static_cast<int>(world));
  std::vector<LinkBuffers> rooms(world);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      const LinkOptions options{.bulk_bytes = 1 << 16, .bulk_messages = 3, .patience = 0.3};
      const auto reach_barrier = [&] { return barrier.wait(); };
      const Status s = measure_links(*ranks[r], options, {reach_barrier, reach_barrier}, rooms[r],
                                     found.links, found.together[r]);
      EXPECT_TRUE(s.ok()) << s.what();
    });
  for (std::thread& t : threads) t.join();
  return found;
}

TEST(Links, EachPairIsMeasuredInBothDirections) {
  const Found found = measured(open_loop(3));
  for (std::size_t a = 0; a < 3; ++a)
    for (std::size_t b = 0; b < 3; ++b) {
      const FoundLink& l = found.links[a * 3 + b];
      EXPECT_FALSE(l.failed());
      EXPECT_EQ(l.latency > 0, a != b);
      EXPECT_EQ(l.bytes_per_second > 0, a != b);
    }
  for (const FoundTogether& t : found.together) {
    EXPECT_GT(t.rate, 0);
    EXPECT_GT(t.mutual, 0);
    EXPECT_GT(t.turn, 0);
  }
}

TEST(Links, MessageSizesFitTheLink) {
  EXPECT_EQ(options_for(125e6).bulk_bytes, std::size_t{1} << 22);  // 1 Gbit/s
  EXPECT_EQ(options_for(125e6).bulk_messages, 29);
  EXPECT_EQ(options_for(12.5e9).bulk_messages, 60);
  const LinkOptions slow = options_for(1e5);
  EXPECT_LT(static_cast<double>(slow.bulk_bytes) / 1e5, 1);
  EXPECT_EQ(slow.bulk_messages, 3);
}

TEST(Links, OneRankHasNone) {
  const Found found = measured(open_loop(1));
  EXPECT_EQ(found.together[0].rate, 0);
  EXPECT_FALSE(found.links[0].failed());
}

class FailingLinks : public ::testing::TestWithParam<bool> {};

TEST_P(FailingLinks, AreReportedAndOtherLinksKept) {
  const bool refuses = GetParam();
  auto ranks = open_loop(4);
  ranks[1] = std::make_unique<Broken>(std::move(ranks[1]), 2, refuses);
  ranks[2] = std::make_unique<Broken>(std::move(ranks[2]), 1, refuses);
  const Found found = measured(std::move(ranks));
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = 0; b < 4; ++b) {
      const FoundLink& l = found.links[a * 4 + b];
      const bool cut = (a == 1 && b == 2) || (a == 2 && b == 1);
      EXPECT_EQ(l.failed(), cut) << a << " to " << b;
      EXPECT_EQ(l.bytes_per_second > 0, a != b && !cut);
      if (cut) {
        EXPECT_EQ(static_cast<Code>(static_cast<int>(l.code)), refuses ? Code::kPeerLost : Code::kTimeout);
      }
    }
  EXPECT_GT(found.together[0].rate, 0);  // from rank 3 and to rank 1, over working links
  EXPECT_GT(found.together[3].rate, 0);
}

INSTANTIATE_TEST_SUITE_P(Ways, FailingLinks, ::testing::Bool());

}  // namespace
}  // namespace tithe::bench
