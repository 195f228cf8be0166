// SPDX-License-Identifier: Apache-2.0
// Long messages: their progress while in transit, and cancellation by either side in the middle. ucx splits them into
// pieces.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>

#include "conformance/transport_fixture.h"

namespace tithe::testing {
namespace {

// A large buffer that is too small for messages that arrived long before, and one for a small message in between.
TEST_P(TransportSuite, whole_too_small_for_a_buffered_message) {
  open(2);
  const auto large = content(1'000'003, 1), small = content(24, 2);
  ASSERT_TRUE(at(0).send(1, 1, large, 1).ok());
  ASSERT_TRUE(at(0).send(1, 1, small, 2).ok());
  ASSERT_TRUE(at(0).send(1, 1, large, 3).ok());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(at(0).poll({}, 0ns), 0U);
    EXPECT_EQ(at(1).poll({}, 1ms), 0U);
  }
  run_ranks(2, [&](Rank me) {
    if (me == 0) {
      EXPECT_EQ(next_all(at(0), 3).size(), 3U);
      return;
    }
    std::vector<std::uint8_t> in(large.size(), 0xAA), in2(24), in3(large.size());
    ASSERT_TRUE(at(1).recv(0, 1, std::span(in).first(7), 1).ok());
    ASSERT_TRUE(at(1).recv(0, 1, in2, 2).ok());
    ASSERT_TRUE(at(1).recv(0, 1, in3, 3).ok());
    const auto done = next_all(at(1), 3);
    ASSERT_EQ(done.size(), 3U);
    EXPECT_EQ(done.at(1).status.code(), Code::kTooSmall);
    EXPECT_EQ(in[7], 0xAA);
    EXPECT_TRUE(done.at(2).status.ok());
    EXPECT_EQ(in2, small);
    EXPECT_TRUE(done.at(3).status.ok());
    EXPECT_EQ(in3, large);
  });
}

// Arrived bytes are counted per peer; in ucx also during a long message.
TEST_P(TransportSuite, counted) {
  open(3);
  EXPECT_EQ(at(1).bytes_received(0), 0U);
  const auto out = content(64 << 20, 1);
  std::vector<std::uint8_t> in(out.size());
  ASSERT_TRUE(at(1).recv(0, 5, in, 1).ok());
  ASSERT_TRUE(at(0).send(1, 5, out, 2).ok());
  std::vector<std::uint64_t> seen;
  std::size_t sent = 0, received = 0;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while ((sent == 0 || received == 0) && std::chrono::steady_clock::now() < deadline) {
    Completion c;
    sent += at(0).poll({&c, 1}, 0ns);
    received += at(1).poll({&c, 1}, 0ns);
    seen.push_back(at(1).bytes_received(0));
  }
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), out.size());
  EXPECT_EQ(at(1).bytes_received(2), 0U);
  EXPECT_EQ(at(0).bytes_received(1), 0U);
  EXPECT_EQ(in, out);
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  std::erase_if(seen, [&](std::uint64_t n) { return n == 0 || n == out.size(); });
  if (choose_transport(GetParam())->kind->open != nullptr) {
    EXPECT_GE(seen.size(), 2U) << "no progress was counted before the message was complete";
  }
}

// With a send window a send completes when it has matched its receive, not when its bytes were copied to a buffer.
TEST_P(TransportSuite, windowed) {
  open(2);
  std::map<OpId, std::vector<std::uint8_t>> in;
  OpId op = 0;
  for (const std::size_t window : {std::size_t{1}, std::size_t{100'000}}) {
    at(0).window(window);
    for (const std::size_t bytes : {4097, 65'536, 65'537, 1'000'003, 8 << 20}) {
      ++op;
      const auto out = content(bytes, op);
      ASSERT_TRUE(at(0).send(1, 6, out, op).ok());
      Completion c;
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(at(0).poll({&c, 1}, 1ms), 0U) << bytes << " bytes without a receiver";
        EXPECT_EQ(at(1).poll({}, 1ms), 0U);
      }
      in[op].resize(bytes);
      run_ranks(2, [&](Rank me) {
        if (me == 1) {
          EXPECT_TRUE(at(1).recv(0, 6, in[op], op).ok());
        }
        const Completion done = next(at(me));
        EXPECT_EQ(done.op, op);
        EXPECT_TRUE(done.status.ok()) << done.status.what();
      });
      EXPECT_EQ(in[op], out);
    }
  }
}

// A receive that is cancelled while its message arrives: its buffer is released, and the channel stays usable.
TEST_P(TransportSuite, one_answer_when_a_receive_is_cancelled_in_the_middle) {
  open(2);
  const auto out = content(48 << 20, 3), small = content(100, 4);
  auto in = std::make_unique<std::vector<std::uint8_t>>(out.size());
  std::vector<std::uint8_t> after(100);
  ASSERT_TRUE(at(1).recv(0, 2, *in, 1).ok());
  ASSERT_TRUE(at(1).recv(0, 2, after, 2).ok());
  ASSERT_TRUE(at(0).send(1, 2, out, 1).ok());
  ASSERT_TRUE(at(0).send(1, 2, small, 2).ok());
  Completion c;
  std::map<OpId, Completion> done;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(at(0).poll({}, 0ns), 0U);
    if (at(1).poll({&c, 1}, 1ms) > 0) done[c.op] = c;
  }
  at(1).cancel(1);
  std::atomic<int> over = 0;  // a rank that is done keeps polling for the other one
  const auto go_on = [&](Rank me) {
    for (++over; over < 2;) EXPECT_EQ(at(me).poll({}, 1ms), 0U);
  };
  run_ranks(2, [&](Rank me) {
    if (me == 0) {
      EXPECT_EQ(next_all(at(0), 2).size(), 2U);
      return go_on(0);
    }
    for (const auto& [id, one] : next_all(at(1), 2 - done.size())) done[id] = one;
    go_on(1);
    ASSERT_EQ(done.size(), 2U);
    if (done.at(1).status.ok()) {
      EXPECT_EQ(*in, out);
      EXPECT_TRUE(done.at(2).status.ok());
      EXPECT_EQ(after, small);
    } else {
      EXPECT_EQ(done.at(1).status.code(), Code::kCancelled) << done.at(1).status.what();
      in.reset();
    }
  });
  EXPECT_TRUE(at(1).peer_status(0).ok()) << at(1).peer_status(0).what();
}

// A send that is cancelled in transit: the receiver gets a completion too, and the channel stays usable.
TEST_P(TransportSuite, one_answer_when_a_send_is_cancelled_in_the_middle) {
  open(2);
  auto out = std::make_unique<std::vector<std::uint8_t>>(content(256 << 20, 3));
  const auto small = content(100, 4);
  std::vector<std::uint8_t> in(out->size()), after(100);
  ASSERT_TRUE(at(1).recv(0, 2, in, 1).ok());
  ASSERT_TRUE(at(0).send(1, 2, *out, 1).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(at(0).poll({}, 0ns), 0U);
    EXPECT_EQ(at(1).poll({}, 0ns), 0U);
  }
  at(0).cancel(1);
  std::atomic<int> over = 0;
  run_ranks(2, [&](Rank me) {
    const Completion first = next(at(me));
    EXPECT_EQ(first.op, 1U);
    EXPECT_TRUE(first.status.ok() || first.status.code() == Code::kCancelled) << first.status.what();
    if (me == 0) {
      if (!first.status.ok()) out.reset();
      ASSERT_TRUE(at(0).send(1, 2, small, 2).ok());
    } else {
      ASSERT_TRUE(at(1).recv(0, 2, after, 2).ok());
    }
    const Completion second = next(at(me));
    EXPECT_EQ(second.op, 2U);
    EXPECT_TRUE(second.status.ok()) << second.status.what();
    for (++over; over < 2;)
      EXPECT_EQ(at(me).poll({}, 1ms), 0U);  // the peer may depend on operations that this rank has started
  });
  EXPECT_EQ(after, small);
}

// Small messages among large ones, of which some are cancelled: cancelled messages are never replaced by others.
class InPlace {
 public:
  static constexpr std::size_t kCount = 7;
  static constexpr Channel kChannel = 3;
  explicit InPlace(std::size_t large) {
    for (std::size_t k = 0; k < kCount; ++k) {
      out_.push_back(content(is_large(k) ? large : 10 + k, k));
      in_.emplace_back(large);
    }
  }
  static bool is_large(std::size_t k) { return k % 2 == 1; }
  void send(Transport& t, Rank to) const {
    for (std::size_t k = 0; k < kCount; ++k) ASSERT_TRUE(t.send(to, kChannel, out_[k], k).ok());
  }
  void receive(Transport& t, Rank from) {
    for (std::size_t k = 0; k < kCount; ++k) ASSERT_TRUE(t.recv(from, kChannel, in_[k], k).ok());
  }
  // Each receive has its own message; a large one may have none.
  void check(const std::map<OpId, Completion>& done, Code other) {
    ASSERT_EQ(done.size(), kCount);
    for (const auto& [k, c] : done) {
      if (is_large(k) && !c.status.ok()) {
        EXPECT_TRUE(c.status.code() == Code::kCancelled || c.status.code() == other) << c.status.what();
        EXPECT_EQ(c.status.peer(), 0);
        continue;
      }
      ASSERT_TRUE(c.status.ok()) << "message " << k << ": " << c.status.what();
      ASSERT_EQ(c.bytes, out_[k].size()) << "message " << k;
      in_[k].resize(c.bytes);
      EXPECT_EQ(in_[k], out_[k]) << "message " << k;
    }
  }

 private:
  std::vector<std::vector<std::uint8_t>> out_, in_;
};

TEST_P(TransportSuite, in_place) {
  for (const std::size_t large : {5000, 60'000, 65'537, 300'000, 1'000'003})
    for (const bool early : {false, true}) {  // the receives are posted before the messages are withdrawn
      SCOPED_TRACE(std::to_string(large) + (early ? " early" : " late"));
      open(2);
      InPlace messages(large);
      if (early) messages.receive(at(1), 0);
      messages.send(at(0), 1);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(at(0).poll({}, 0ns) + at(1).poll({}, 0ns), 0U);
      // One of them is small, one is cancelled twice.
      for (const OpId k : {5U, 1U, 3U, 2U, 1U}) at(0).cancel(k);
      std::map<OpId, Completion> done;
      std::atomic<int> over = 0;
      run_ranks(2, [&](Rank me) {
        if (me == 1 && !early) messages.receive(at(1), 0);
        const auto mine = next_all(at(me), InPlace::kCount);
        EXPECT_EQ(mine.size(), InPlace::kCount);
        if (me == 1) done = mine;
        for (++over; over < 2;) EXPECT_EQ(at(me).poll({}, 1ms), 0U);
      });
      messages.check(done, Code::kCancelled);
      if (HasFatalFailure()) return;
      TearDown();
    }
}

// As above, but the sender closes normally, which cancels its pending sends.
TEST_P(TransportSuite, in_place_where_its_sender_leaves) {
  for (const std::size_t large : {5000, 60'000, 65'537, 300'000, 1'000'003}) {
    SCOPED_TRACE(large);
    open(2);
    InPlace messages(large);
    messages.send(at(0), 1);
    std::atomic<bool> left = false;
    run_ranks(2, [&](Rank me) {
      if (me == 0) {
        store_residual(0);
        left = true;
      } else {
        while (!left || at(1).peer_status(0).ok()) EXPECT_EQ(at(1).poll({}, 1ms), 0U);
      }
    });
    messages.receive(at(1), 0);
    messages.check(next_all(at(1), InPlace::kCount), Code::kPeerLost);
    if (HasFatalFailure()) return;
    TearDown();
  }
}

TEST_P(TransportSuite, names_peer_that_leaves_in_the_middle) {
  open(3);
  const auto out = content(64 << 20, 3);
  std::vector<std::uint8_t> in(out.size()), back(out.size());
  ASSERT_TRUE(at(1).recv(0, 2, in, 1).ok());
  ASSERT_TRUE(at(1).send(0, 2, out, 2).ok());
  ASSERT_TRUE(at(0).send(1, 2, out, 1).ok());
  ASSERT_TRUE(at(0).recv(1, 2, back, 2).ok());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(at(0).poll({}, 0ns), 0U);
    EXPECT_EQ(at(1).poll({}, 0ns), 0U);
  }
  run_ranks(2, [&](Rank me) {
    if (me == 0) return store_residual(0);
    for (const auto& [id, done] : next_all(at(1), 2)) {
      if (done.status.ok()) {  // it was delivered before the close
        EXPECT_TRUE(id == 2 || in == out);
        continue;
      }
      EXPECT_TRUE(done.status.code() == Code::kPeerLost || done.status.code() == Code::kCancelled) << id;
      EXPECT_EQ(done.status.peer(), 0);
    }
    Completion none;
    EXPECT_EQ(at(1).poll({&none, 1}, 50ms), 0U);
  });
}

// Without polling, a TCP connection was given up 28 s after its link was cut, whatever the session's timeout.
TEST(Ucx, a_quiet_connection_lasts_as_long_as_the_session_waits) {
  if (!find_transport("ucx")->usable().ok()) GTEST_SKIP() << "this build has no UCX";
  ThreadGather gather(2);
  std::vector<std::unique_ptr<Transport>> ranks(2);
  run_ranks(2, [&](Rank r) {
    auto t = open_transport("ucx:transports=tcp",
                            {.rank = r, .world = 2, .all_gather = gather.of(r), .silence = 200s});
    ASSERT_TRUE(t.ok()) << t.status().what();
    ranks[static_cast<std::size_t>(r)] = std::move(*t);
  });
  int connections = 0;
  for (int fd = 3; fd < 1000; ++fd) {
    int on = 0, idle = 0, interval = 0, count = 0;
    const auto option = [&](int level, int which, int& value) {
      socklen_t size = sizeof value;
      return getsockopt(fd, level, which, &value, &size) == 0;
    };
    if (!option(SOL_SOCKET, SO_KEEPALIVE, on) || on == 0 || !option(IPPROTO_TCP, TCP_KEEPIDLE, idle) ||
        !option(IPPROTO_TCP, TCP_KEEPINTVL, interval) || !option(IPPROTO_TCP, TCP_KEEPCNT, count))
      continue;
    ++connections;
    EXPECT_GE(idle + interval * count, 200);
    EXPECT_LE(idle + interval * count, 210);
  }
  EXPECT_GE(connections, 1);  // the connection of the connecting rank; the other rank only accepts
  run_ranks(2, [&](Rank r) { ranks[static_cast<std::size_t>(r)].reset(); });
}

}  // namespace
}  // namespace tithe::testing
