// SPDX-License-Identifier: Apache-2.0
// Every contract at the top of tithe/seam/transport.h as a test of that name, over every transport of transports.def,
// in each of its examples.
#include <atomic>
#include <numeric>

#include "base/usable_cores.h"
#include "conformance/transport_fixture.h"

namespace tithe::testing {
namespace {

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

// A buffer that is too small gets an error, nothing is written past its end, and the next message is intact.
TEST_P(TransportSuite, whole_too_small) {
  open(2);
  for (const std::size_t bytes : {std::size_t{2}, std::size_t{24}, std::size_t{25}, std::size_t{5000},
                                  std::size_t{600'000}, std::size_t{4} << 20, std::size_t{32} << 20}) {
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

// Thousands of messages in both directions between all pairs: each operation completes once.
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
  at(0).cancel(99);  // an unknown id: no completion
  Completion c = next(at(0));
  EXPECT_EQ(c.op, 11U);
  EXPECT_EQ(c.status.code(), Code::kCancelled);
  // The second receive is still pending, and gets the first message.
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

// A send without a receiver, to an idle peer, completes after cancel, and its bytes are free then.
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

TEST_P(TransportSuite, names_peer) {
  open(3);
  std::vector<std::uint8_t> early(10), late(10), out(10);
  ASSERT_TRUE(at(0).recv(2, 4, early, 1).ok());
  EXPECT_TRUE(at(0).peer_status(2).ok());
  store_residual(2);
  Completion c = next(at(0));
  EXPECT_EQ(c.op, 1U);
  EXPECT_EQ(c.status.code(), Code::kPeerLost);
  EXPECT_EQ(c.status.peer(), 2);
  EXPECT_EQ(c.status.what(), "it closed in good order");  // the caller adds the name of the rank
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
  store_residual(2);
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

// A message that was sent before a farewell arrives, also when its receive is posted long after.
TEST_P(TransportSuite, farewell) {
  open(2);
  const auto first = content(3000, 1), second = content(17, 2);
  run_ranks(2, [&](Rank me) {
    if (me == 1) {
      ASSERT_TRUE(at(1).send(0, 4, first, 1).ok());
      ASSERT_TRUE(at(1).send(0, 4, second, 2).ok());
      for (const auto& [id, done] : next_all(at(1), 2)) EXPECT_TRUE(done.status.ok());
      store_residual(1);
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
  store_residual(2);
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

TEST_P(TransportSuite, refuses_invalid_peers) {
  open(2);
  std::vector<std::uint8_t> b(1);
  for (const Rank r : {-1, 0, 2}) {
    EXPECT_EQ(at(0).send(r, 1, b, 1).code(), Code::kInvalid);
    EXPECT_EQ(at(0).recv(r, 1, b, 2).code(), Code::kInvalid);
  }
  Completion none;
  EXPECT_EQ(at(0).poll({&none, 1}, 0ns), 0U);
}

TEST_P(TransportSuite, hosts) {
  constexpr int kWorld = 3;
  open(kWorld);
  for (Rank r = 1; r < kWorld; ++r) EXPECT_EQ(at(r).hosts(), at(0).hosts());
  const bool threads = at(0).kind() == "loop";  // between processes all are on this machine
  EXPECT_EQ(at(0).hosts().count(kWorld), threads ? kWorld : 1);
}

// All ranks of this suite run on the same cores.
TEST_P(TransportSuite, cores) {
  constexpr int kWorld = 3;
  open(kWorld);
  for (Rank r = 0; r < kWorld; ++r) {
    EXPECT_EQ(at(r).cores().cores, usable_cores());
    EXPECT_EQ(at(r).cores().ranks, kWorld);
  }
}

TEST_P(TransportSuite, world_of_one) {
  open(1);
  EXPECT_EQ(at(0).world(), 1);
  EXPECT_EQ(at(0).rank(), 0);
  EXPECT_EQ(GetParam().substr(0, at(0).kind().size()), at(0).kind());
  Completion none;
  EXPECT_EQ(at(0).poll({&none, 1}, 1ms), 0U);
}

INSTANTIATE_TEST_SUITE_P(transports, TransportSuite, ::testing::ValuesIn(transport_examples()),
                         [](const auto& example) { return in_a_name(example.param); });

}  // namespace
}  // namespace tithe::testing
