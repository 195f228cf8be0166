// SPDX-License-Identifier: Apache-2.0
// Several data connections, and ranks at a distance.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/high_latency_ranks.h"
#include "support/transport_world.h"
#include "transport/tcp/records.h"

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

// Pieces of a message overtake each other on their connections, and are reassembled correctly.
TEST(TcpStreams, messages_arrive_whole_over_a_high_latency_link) {
  testing::HighLatencyRanks far({.streams = 4}, 5ms, 100'000);
  ASSERT_TRUE(far.opened().ok()) << far.opened().what();
  const std::size_t sizes[] = {5'000, 1'000'003, 4096, 2'500'000, 40};
  std::vector<std::vector<std::uint8_t>> sent, got;
  for (const std::size_t bytes : sizes) {
    sent.emplace_back(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent.back()[i] = static_cast<std::uint8_t>(i * 31 + i / 253);
    got.emplace_back(bytes);
  }
  for (std::size_t k = 0; k < std::size(sizes); ++k) {
    ASSERT_TRUE(far[1].recv(0, 3, got[k], k).ok());
    ASSERT_TRUE(far[0].send(1, 3, sent[k], k).ok());
  }
  EXPECT_TRUE(far.run(std::size(sizes)).ok());
  EXPECT_EQ(got, sent);
}

// `tithe replay --card lossy --transport tcp:lossy_card=on` lost values: limits on bytes in flight can be odd
// numbers, so writes ended within a float, and a card rounded the later packets at wrong positions.
TEST(TcpStreams, whole_units_remain_after_a_write) {
  for (const std::size_t left : {std::size_t{32}, std::size_t{96}, std::size_t{4096}, std::size_t{262'144}})
    for (std::size_t free = 0; free <= left + 40; free += left < 1000 ? 1 : 37) {
      const std::size_t now = write_bytes(left, free);
      EXPECT_LE(now, std::min(free, left));
      EXPECT_EQ((left - now) % kBodyUnit, 0U) << left << ' ' << free;
      EXPECT_GT(now + kBodyUnit, std::min(free, left)) << "as much as possible";
    }
  // The kernel may take an odd part of a write; the next one ends with a float again.
  EXPECT_EQ(write_bytes(1001, 999), 1001U - 32);
  EXPECT_EQ(write_bytes(1001, 1001), 1001U);
  EXPECT_EQ(write_bytes(20, 19), 0U);
}

// The message still arrives on a data connection, before other messages; the next receive takes it.
TEST(TcpStreams, a_cancelled_granted_receive_blocks_no_other_operation) {
  testing::HighLatencyRanks far({}, 1ms, 4 << 20);
  ASSERT_TRUE(far.opened().ok()) << far.opened().what();
  const std::vector<std::uint8_t> first(300'000, 1), second(300'000, 2);
  std::vector<std::uint8_t> in(first.size()), other(second.size());
  Completion c;
  ASSERT_TRUE(far[1].recv(0, 5, in, 1).ok());
  for (int k = 0; k < 50; ++k) {  // until the grant has arrived
    EXPECT_EQ(far[1].poll({&c, 1}, 0ns), 0U);
    EXPECT_EQ(far[0].poll({&c, 1}, 1ms), 0U);
  }
  far[1].cancel(1);  // the sender does not learn that the receive is withdrawn
  ASSERT_TRUE(far[0].send(1, 5, first, 2).ok());
  ASSERT_TRUE(far[0].send(1, 6, second, 3).ok());
  ASSERT_TRUE(far[1].recv(0, 6, other, 4).ok());
  std::map<OpId, Status> done;
  const auto run = [&](std::size_t n) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (done.size() < n && std::chrono::steady_clock::now() < deadline)
      for (std::size_t r = 0; r < 2; ++r)
        if (far[r].poll({&c, 1}, 1ms) > 0) done[c.op] = c.status;
  };
  run(4);
  EXPECT_EQ(done[1].code(), Code::kCancelled);
  EXPECT_TRUE(done.contains(2) && done.contains(3) && done.contains(4));
  EXPECT_EQ(other, second);
  ASSERT_TRUE(far[1].recv(0, 5, in, 5).ok());
  run(5);
  EXPECT_TRUE(done.contains(5) && done[5].ok());
  EXPECT_EQ(in, first);
}

// A completed send does not need its sender any more. This holds under TLS too, whose records wait in the sender while
// the kernel's buffer is full.
void arrives_by_itself(const std::string& how, std::size_t bytes) {
  constexpr std::size_t kMaxSends = 3000;
  const auto world = testing::open_world(how, 2);
  ASSERT_TRUE(world[0] && world[1]);
  const std::vector<std::uint8_t> sent(bytes, 7);
  std::vector<std::uint8_t> got(bytes);
  const auto poll = [&](std::size_t rank, std::chrono::nanoseconds wait) {
    Completion c;
    const std::size_t n = world[rank]->poll({&c, 1}, wait);
    EXPECT_TRUE(n == 0 || c.status.ok()) << how << ": " << c.status.what();
    return n;
  };
  for (std::size_t k = 0; k < kMaxSends; ++k) ASSERT_TRUE(world[1]->recv(0, 3, got, k).ok());
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  std::size_t done = 0, here = 0;
  ASSERT_TRUE(world[0]->send(1, 3, sent, 0).ok());  // opens the connections and waits for all grants
  while (done + here < 2 && std::chrono::steady_clock::now() < deadline) {
    done += poll(0, 1ms);
    here += poll(1, 1ms);
  }
  for (int k = 0; k < 20; ++k) poll(0, 0ns);
  while (done < kMaxSends) {  // until the kernel's buffers are full
    ASSERT_TRUE(world[0]->send(1, 3, sent, done).ok());
    if (poll(0, 200ms) == 0) break;
    ++done;
  }
  EXPECT_GT(done, 1U) << how;
  EXPECT_LT(done, kMaxSends) << how;
  while (here < done && std::chrono::steady_clock::now() < deadline) here += poll(1, 10ms);
  EXPECT_EQ(here, done) << how << ", of " << bytes << " bytes";
}

TEST(TcpStreams, sent_messages_arrive_without_further_polls_of_the_sender) {
  arrives_by_itself("tcp:tls=KEYS", 4096);  // only the control connection
  arrives_by_itself("tcp:streams=2,tls=KEYS", 100'000);
}

}  // namespace
}  // namespace tithe::tcp
