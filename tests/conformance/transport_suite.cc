// SPDX-License-Identifier: Apache-2.0
// Every promise at the top of tithe/transport.h, as a test of that name, over every transport of
// transports.def; ucx twice: with what UCX chooses (shared memory here) and over TCP alone.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <numeric>

#include "base/rng.h"
#include "conformance/transport_world.h"

namespace tithe::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = std::chrono::seconds(30);  // only a failing test waits this long

std::vector<std::string> all_ways() {
  std::vector<std::string> out;
#define TITHE_TRANSPORT(name) out.push_back(#name);
#include "tithe/transports.def"
#undef TITHE_TRANSPORT
  out.push_back("ucx_tcp");
  return out;
}

class TransportSuite : public ::testing::TestWithParam<std::string> {
 protected:
  void open(int world) {
    ranks_ = open_world(GetParam(), world);
    for (const auto& t : ranks_) ASSERT_NE(t, nullptr) << GetParam() << " did not open";
  }
  Transport& at(Rank r) { return *ranks_[static_cast<std::size_t>(r)]; }
  // Closes each rank in a thread of its own, as processes do: a farewell wants an answer.
  void TearDown() override {
    run_ranks(static_cast<int>(ranks_.size()), [&](Rank r) { ranks_[static_cast<std::size_t>(r)].reset(); });
  }
  void leave(Rank r) { ranks_[static_cast<std::size_t>(r)].reset(); }

  std::vector<std::unique_ptr<Transport>> ranks_;
};

// The next completion, or one with kTimeout.
Completion next(Transport& t) {
  Completion one{.op = 0, .bytes = 0, .status = {Code::kTimeout, "nothing completed"}};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (t.poll({&one, 1}, 1s) == 0)
    if (std::chrono::steady_clock::now() > deadline) break;
  return one;
}

std::map<OpId, Completion> next_all(Transport& t, std::size_t n) {
  std::map<OpId, Completion> out;
  for (std::size_t i = 0; i < n; ++i) {
    Completion c = next(t);
    if (c.status.code() == Code::kTimeout) break;
    EXPECT_TRUE(out.emplace(c.op, c).second) << "operation " << c.op << " completed twice";
  }
  return out;
}

std::vector<std::uint8_t> content(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    out[i] = static_cast<std::uint8_t>(draw32(seed, static_cast<std::uint32_t>(i)));
  return out;
}

// ucx cuts messages of more than 256 KiB, and announces them by one of 24 bytes.
constexpr std::size_t kSizes[] = {0,    1,    8,      23,      24,      25,        63,     1000,
                                  4096, 8192, 65'537, 262'144, 262'145, 1'000'003, 8 << 20};

// Messages of all sizes on three channels, receives posted before, between and after the sends arrive.
TEST_P(TransportSuite, in_order) {
  constexpr int kWorld = 3;
  constexpr std::size_t kMessages = 60;
  constexpr Channel kChannels = 3;
  open(kWorld);
  const auto size_of = [](std::size_t k) { return kSizes[k % (std::size(kSizes) - 1)]; };
  run_ranks(kWorld, [&](Rank me) {
    Transport& t = at(me);
    const Rank to = (me + 1) % kWorld, from = (me + kWorld - 1) % kWorld;
    std::vector<std::vector<std::uint8_t>> sent, got;
    OpId op = 0;
    const auto post_receives = [&](Channel c) {
      for (std::size_t k = 0; k < kMessages; ++k) {
        got.push_back(std::vector<std::uint8_t>(size_of(k)));
        EXPECT_TRUE(t.recv(from, c, got.back(), ++op).ok());
      }
    };
    post_receives(0);
    for (std::size_t k = 0; k < kMessages; ++k)
      for (Channel c = 0; c < kChannels; ++c) {
        sent.push_back(content(size_of(k), 1000 * c + k));
        EXPECT_TRUE(t.send(to, c, sent.back(), ++op).ok());
      }
    EXPECT_EQ(t.poll({}, 0ns), 0U);
    post_receives(1);
    post_receives(2);
    for (const auto& [id, c] : next_all(t, op)) EXPECT_TRUE(c.status.ok()) << c.status.what();
    for (Channel c = 0; c < kChannels; ++c)
      for (std::size_t k = 0; k < kMessages; ++k)
        EXPECT_EQ(got[c * kMessages + k], content(size_of(k), 1000 * c + k))
            << "channel " << c << " message " << k;
  });
}

TEST_P(TransportSuite, whole) {
  open(2);
  run_ranks(2, [&](Rank me) {
    for (const std::size_t bytes : kSizes) {
      if (me == 0) {
        const auto out = content(bytes, bytes);
        ASSERT_TRUE(at(0).send(1, 7, out, bytes).ok());
        ASSERT_TRUE(next(at(0)).status.ok());
      } else {
        std::vector<std::uint8_t> in(bytes + 5, 0xAA);  // room to spare: the length is the message's
        ASSERT_TRUE(at(1).recv(0, 7, in, bytes).ok());
        const Completion c = next(at(1));
        ASSERT_TRUE(c.status.ok()) << c.status.what();
        EXPECT_EQ(c.op, bytes);
        EXPECT_EQ(c.bytes, bytes);
        EXPECT_EQ(std::vector<std::uint8_t>(5, 0xAA), std::vector<std::uint8_t>(in.end() - 5, in.end()));
        in.resize(bytes);
        EXPECT_EQ(in, content(bytes, bytes));
      }
    }
  });
  EXPECT_EQ(at(0).bytes_sent(), std::accumulate(std::begin(kSizes), std::end(kSizes), std::size_t{0}));
  EXPECT_EQ(at(1).bytes_sent(), 0U);
}

// A large buffer that is too small for messages that came long before it, and one for a small message in between.
TEST_P(TransportSuite, whole_too_small_for_what_waits) {
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

// What has arrived is counted, per peer; in ucx also while a long message is on its way.
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
  if (GetParam() != "loop") {
    EXPECT_GE(seen.size(), 2U) << "nothing was counted before the message was whole";
  }
}

// A buffer that is too small says so, nothing is written past it, and the next message is not harmed.
TEST_P(TransportSuite, whole_too_small) {
  open(2);
  for (const std::size_t bytes : {std::size_t{2}, std::size_t{24}, std::size_t{25}, std::size_t{5000},
                                  std::size_t{300'000}, std::size_t{4} << 20, std::size_t{32} << 20}) {
    run_ranks(2, [&](Rank me) {
      const auto large = content(bytes, 1), small = content(8, 2);
      if (me == 0) {
        ASSERT_TRUE(at(0).send(1, 1, large, 1).ok());
        ASSERT_TRUE(at(0).send(1, 1, small, 2).ok());
        const auto done = next_all(at(0), 2);
        ASSERT_EQ(done.size(), 2U);
        EXPECT_TRUE(done.at(2).status.ok());
      } else {
        std::vector<std::uint8_t> in(bytes, 0xAA), after(8);
        ASSERT_TRUE(at(1).recv(0, 1, std::span(in).first(bytes - 1), 1).ok());
        ASSERT_TRUE(at(1).recv(0, 1, after, 2).ok());
        const auto done = next_all(at(1), 2);
        ASSERT_EQ(done.size(), 2U);
        EXPECT_EQ(done.at(1).status.code(), Code::kTooSmall);
        EXPECT_EQ(done.at(1).status.peer(), 0);
        EXPECT_EQ(in.back(), 0xAA);
        EXPECT_TRUE(done.at(2).status.ok());
        EXPECT_EQ(after, small);
      }
    });
  }
}

// Thousands of messages in both directions between all pairs: each operation answers once.
TEST_P(TransportSuite, one_answer) {
  constexpr int kWorld = 4;
  constexpr OpId kMessages = 2000;  // per ordered pair
  open(kWorld);
  run_ranks(kWorld, [&](Rank me) {
    Transport& t = at(me);
    std::vector<std::uint64_t> out(kMessages), in(kMessages * kWorld);
    for (OpId k = 0; k < kMessages; ++k) {
      out[k] = static_cast<std::uint64_t>(me) << 32 | k;
      for (Rank r = 0; r < kWorld; ++r) {
        if (r == me) continue;
        const OpId id = k * kWorld + static_cast<OpId>(r);
        ASSERT_TRUE(t.send(r, 9, {reinterpret_cast<std::uint8_t*>(&out[k]), 8}, 2 * id).ok());
        ASSERT_TRUE(t.recv(r, 9, {reinterpret_cast<std::uint8_t*>(&in[id]), 8}, 2 * id + 1).ok());
      }
    }
    const auto done = next_all(t, 2 * (kWorld - 1) * kMessages);
    EXPECT_EQ(done.size(), 2 * (kWorld - 1) * kMessages);
    for (OpId k = 0; k < kMessages; ++k)
      for (Rank r = 0; r < kWorld; ++r) {
        if (r == me) continue;
        ASSERT_EQ(in[k * kWorld + static_cast<OpId>(r)], static_cast<std::uint64_t>(r) << 32 | k);
      }
    Completion none;
    EXPECT_EQ(t.poll({&none, 1}, 0ns), 0U);
  });
}

TEST_P(TransportSuite, one_answer_when_cancelled) {
  open(2);
  std::vector<std::uint8_t> a(100), b(100);
  ASSERT_TRUE(at(0).recv(1, 2, a, 11).ok());
  ASSERT_TRUE(at(0).recv(1, 2, b, 12).ok());
  at(0).cancel(11);
  at(0).cancel(11);
  at(0).cancel(99);  // nobody's: no answer
  Completion c = next(at(0));
  EXPECT_EQ(c.op, 11U);
  EXPECT_EQ(c.status.code(), Code::kCancelled);
  // The second receive still stands, and takes the first message.
  run_ranks(2, [&](Rank me) {
    const auto out = content(100, 5);
    if (me == 1) {
      ASSERT_TRUE(at(1).send(0, 2, out, 1).ok());
      EXPECT_TRUE(next(at(1)).status.ok());
    } else {
      c = next(at(0));
      EXPECT_EQ(c.op, 12U);
      EXPECT_TRUE(c.status.ok());
      EXPECT_EQ(b, out);
    }
  });
}

// A send that nobody receives, to a peer that does nothing, ends all the same, and its bytes are free then.
TEST_P(TransportSuite, one_answer_when_a_send_is_cancelled) {
  open(2);
  auto out = std::make_unique<std::vector<std::uint8_t>>(content(32 << 20, 3));
  ASSERT_TRUE(at(0).send(1, 2, *out, 5).ok());
  Completion c;
  if (at(0).poll({&c, 1}, 50ms) == 0) {
    at(0).cancel(5);
    c = next(at(0));
    EXPECT_EQ(c.status.code(), Code::kCancelled) << c.status.what();
  }
  EXPECT_EQ(c.op, 5U);
  out.reset();
  Completion none;
  EXPECT_EQ(at(0).poll({&none, 1}, 10ms), 0U);
}

// A receive that is withdrawn while its message arrives: its buffer is free then, and the channel goes on.
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
  std::atomic<bool> over = false;
  run_ranks(2, [&](Rank me) {
    if (me == 0) {
      EXPECT_EQ(next_all(at(0), 2).size(), 2U);
      while (!over) EXPECT_EQ(at(0).poll({}, 1ms), 0U);
      return;
    }
    for (const auto& [id, one] : next_all(at(1), 2 - done.size())) done[id] = one;
    over = true;
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

// A send that is withdrawn while its message travels: the receiver gets an answer too, and the channel goes on.
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
  });
  EXPECT_EQ(after, small);
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
    if (me == 0) return leave(0);
    for (const auto& [id, done] : next_all(at(1), 2)) {
      if (done.status.ok()) {  // it came through before
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

TEST_P(TransportSuite, names_peer) {
  open(3);
  std::vector<std::uint8_t> early(10), late(10), out(10);
  ASSERT_TRUE(at(0).recv(2, 4, early, 1).ok());
  EXPECT_TRUE(at(0).peer_status(2).ok());
  leave(2);
  Completion c = next(at(0));
  EXPECT_EQ(c.op, 1U);
  EXPECT_EQ(c.status.code(), Code::kPeerLost);
  EXPECT_EQ(c.status.peer(), 2);
  EXPECT_EQ(c.status.what(), "it closed in good order");  // who reports it says of whom
  EXPECT_EQ(at(0).peer_status(2).code(), Code::kPeerLost);
  ASSERT_TRUE(at(0).recv(2, 4, late, 2).ok());
  ASSERT_TRUE(at(0).send(2, 4, out, 3).ok());
  for (const auto& [id, done] : next_all(at(0), 2)) {
    EXPECT_EQ(done.status.code(), Code::kPeerLost) << id;
    EXPECT_EQ(done.status.peer(), 2);
  }
}

TEST_P(TransportSuite, apart) {
  open(3);
  std::vector<std::uint8_t> lost(10);
  ASSERT_TRUE(at(0).recv(2, 4, lost, 1).ok());
  leave(2);
  EXPECT_EQ(next(at(0)).status.code(), Code::kPeerLost);
  run_ranks(2, [&](Rank me) {
    for (const std::size_t bytes : kSizes) {
      const auto out = content(bytes, 1);
      std::vector<std::uint8_t> in(bytes);
      ASSERT_TRUE(at(me).recv(1 - me, 4, in, 1).ok());
      ASSERT_TRUE(at(me).send(1 - me, 4, out, 2).ok());
      for (const auto& [id, done] : next_all(at(me), 2)) EXPECT_TRUE(done.status.ok()) << done.status.what();
      EXPECT_EQ(in, out);
    }
  });
  EXPECT_TRUE(at(0).peer_status(1).ok());
}

// What was sent before a farewell arrives, also when its receive is posted long after.
TEST_P(TransportSuite, farewell) {
  open(2);
  const auto first = content(3000, 1), second = content(17, 2);
  run_ranks(2, [&](Rank me) {
    if (me == 1) {
      ASSERT_TRUE(at(1).send(0, 4, first, 1).ok());
      ASSERT_TRUE(at(1).send(0, 4, second, 2).ok());
      for (const auto& [id, done] : next_all(at(1), 2)) EXPECT_TRUE(done.status.ok());
      leave(1);
    } else {
      Completion none;
      const auto deadline = std::chrono::steady_clock::now() + kPatience;
      while (at(0).peer_status(1).ok() && std::chrono::steady_clock::now() < deadline)
        EXPECT_EQ(at(0).poll({&none, 1}, 10ms), 0U);
    }
  });
  std::vector<std::uint8_t> a(3000), b(100), never(100);
  ASSERT_TRUE(at(0).recv(1, 4, a, 1).ok());
  ASSERT_TRUE(at(0).recv(1, 4, b, 2).ok());
  ASSERT_TRUE(at(0).recv(1, 4, never, 3).ok());
  const auto done = next_all(at(0), 3);
  ASSERT_EQ(done.size(), 3U);
  EXPECT_TRUE(done.at(1).status.ok()) << done.at(1).status.what();
  EXPECT_EQ(a, first);
  EXPECT_TRUE(done.at(2).status.ok()) << done.at(2).status.what();
  EXPECT_EQ(done.at(2).bytes, second.size());
  EXPECT_EQ(done.at(3).status.code(), Code::kPeerLost);
}

TEST_P(TransportSuite, quiet) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  open(3);
  std::vector<std::uint8_t> in(10);
  EXPECT_TRUE(at(0).recv(2, 1, in, 1).ok());
  leave(2);
  const Completion c = next(at(0));
  at(1).cancel(3);
  TearDown();
  ranks_.clear();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(c.status.code(), Code::kPeerLost);
}

TEST_P(TransportSuite, wake_ends_a_poll) {
  open(2);
  Completion none;
  at(0).wake();  // before the poll: not lost
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(at(0).poll({&none, 1}, kPatience), 0U);
  std::atomic<bool> polling = false;
  std::thread waker([&] {
    while (!polling) std::this_thread::yield();
    std::this_thread::sleep_for(20ms);
    at(0).wake();
  });
  polling = true;
  EXPECT_EQ(at(0).poll({&none, 1}, kPatience), 0U);
  waker.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);  // else a wait ran out
  EXPECT_EQ(at(0).poll({&none, 1}, 0ns), 0U);
}

TEST_P(TransportSuite, refuses_who_is_no_peer) {
  open(2);
  std::vector<std::uint8_t> b(1);
  for (const Rank r : {-1, 0, 2}) {
    EXPECT_EQ(at(0).send(r, 1, b, 1).code(), Code::kInvalid);
    EXPECT_EQ(at(0).recv(r, 1, b, 2).code(), Code::kInvalid);
  }
  Completion none;
  EXPECT_EQ(at(0).poll({&none, 1}, 0ns), 0U);
}

TEST_P(TransportSuite, world_of_one) {
  open(1);
  EXPECT_EQ(at(0).world(), 1);
  EXPECT_EQ(at(0).rank(), 0);
  EXPECT_EQ(GetParam().substr(0, at(0).kind().size()), at(0).kind());
  Completion none;
  EXPECT_EQ(at(0).poll({&none, 1}, 1ms), 0U);
}

INSTANTIATE_TEST_SUITE_P(transports, TransportSuite, ::testing::ValuesIn(all_ways()),
                         [](const auto& way) { return way.param; });

}  // namespace
}  // namespace tithe::testing
