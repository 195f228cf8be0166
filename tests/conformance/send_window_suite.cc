// SPDX-License-Identifier: Apache-2.0
// Send windows change no result: the same bits as without, for any order of waits, and the same rank named after a
// failure. The window's own contract is tested in src/engine/run/send_window_test.cc; tests/chaos draws windows too.
#include <gtest/gtest.h>

#include <array>

#include "support/delayed_transport.h"
#include "support/law_cases.h"

namespace tithe {
namespace {

using testing::at;
using testing::Combination;
using testing::DelayedTransport;
using testing::gradients;
using testing::key_of;
using testing::Ranks;
using testing::same_bits;
using testing::text;
using testing::Values;

constexpr std::size_t kTensors[] = {5, 257, 1001, 1365, 3001};
// One frame at a time in total; one at a time per peer; several small ones.
constexpr const char* kWindows[] = {"window=1,rotation=on", "window=1", "window=7000,rotation=2"};

// Every rank's results in three rounds with one bucket per tensor, and its residuals. By rank and round, a rank waits
// for a bucket before it passes the next one, or for all together, or for the last one first.
std::vector<Values> run(const Combination& c, const char* pacer, int lanes) {
  Ranks ranks(testing::open_world(c.transport, c.world), {.strategy = std::string(c.strategy->name),
                                                          .lanes = lanes,
                                                          .min_values = 100,
                                                          .part_values = 1000,
                                                          .pacer = pacer,
                                                          .spec = c.law.spec,
                                                          .rules = c.law.rules});
  std::vector<Values> all(at(c.world));
  ranks.each([&](Rank r) {
    for (int round = 0; round < 3; ++round) {
      Values grad = gradients(kTensors, testing::Data::kGaussian, r, round);
      const int manner = (r + round) % 3;
      std::vector<Ticket> tickets;
      for (std::size_t k = 0; k < grad.size(); ++k) {
        const std::string key = key_of(kTensors[k]);
        const Tensor tensor{.key = key, .data = grad[k].data(), .n = grad[k].size()};
        const Result<Ticket> ticket = ranks[r].sync({&tensor, 1});
        ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        tickets.push_back(*ticket);
        if (manner > 0) continue;
        ASSERT_TRUE(ranks[r].wait(tickets.back()).ok());
        tickets.clear();
      }
      if (manner == 1) std::reverse(tickets.begin(), tickets.end());
      for (const Ticket t : tickets) ASSERT_TRUE(ranks[r].wait(t).ok());
      const Status committed = ranks[r].commit();
      ASSERT_TRUE(committed.ok()) << text(committed);
      for (std::vector<float>& v : grad) all[at(r)].push_back(std::move(v));
    }
    for (std::vector<float>& v : testing::residuals(ranks[r], kTensors)) all[at(r)].push_back(std::move(v));
  });
  return all;
}

class SendWindowSuite : public ::testing::TestWithParam<Combination> {};

TEST_P(SendWindowSuite, WindowsChangeNoBit) {
  const std::vector<Values> free = run(GetParam(), "off", 1);
  std::size_t turn = GetParam().law.label.size() + GetParam().strategy->name.size();
  for (const char* pacer : kWindows) {
    // Alternates between no lanes and one lane; both with TITHE_TEST_FULL=1.
    const int skipped = static_cast<int>(turn++ % 2);
    for (const int lanes : {0, 1}) {
      if (lanes == skipped && !harness::full_products()) continue;
      const std::vector<Values> paced = run(GetParam(), pacer, lanes);
      for (std::size_t r = 0; r < free.size(); ++r)
        ASSERT_TRUE(same_bits(free[r], paced[r])) << pacer << ", " << lanes << " lanes, rank " << r;
    }
  }
}

// Sixteen ranks, the longest of all, only where TITHE_TEST_FULL=1.
std::vector<Combination> cases() {
  std::vector<Combination> all = testing::combinations();
  if (!harness::full_products()) std::erase_if(all, [](const Combination& c) { return c.world > 8; });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Laws, SendWindowSuite, ::testing::ValuesIn(cases()), testing::label);

// Send windows are full between the fault and the failure report: the dead rank is named, and no rank waits for ever.
TEST(SendWindow, FullSendWindowNamesTheDepartedPeer) {
  constexpr int kWorld = 4;
  constexpr Rank kVictim = 2;
  constexpr std::size_t kSizes[] = {9, 20'000, 30'000};
  for (const Strategy* strategy : all_strategies())
    for (const char* pacer : kWindows)
      for (const int frames : {0, 1, 2, 3, 5, 8}) {
        auto transports = open_loop(kWorld);
        transports[at(kVictim)] = std::make_unique<DelayedTransport>(std::move(transports[at(kVictim)]), 1U,
                                                                     false, nullptr, frames);
        Ranks ranks(std::move(transports), {.codec = "fp32",
                                            .strategy = std::string(strategy->name),
                                            .min_values = 16,
                                            .timeout = std::chrono::milliseconds(5000),
                                            .pacer = pacer});
        std::array<Status, kWorld> status;
        ranks.each([&](Rank r) {
          Values v = gradients(kSizes, testing::Data::kGaussian, r, 0);
          status[at(r)] = testing::synchronise(ranks[r], kSizes, v);
        });
        if (status[at(kVictim)].ok()) continue;  // it had sent everything before the kill
        for (Rank r = 0; r < kWorld; ++r) {
          if (r == kVictim || status[at(r)].ok()) continue;  // ok: it no longer depended on the victim
          EXPECT_EQ(status[at(r)].code(), Code::kPeerLost) << strategy->name << " " << pacer << " " << frames;
          EXPECT_EQ(status[at(r)].peer(), kVictim)
              << strategy->name << " " << pacer << " " << frames << ": " << text(status[at(r)]);
        }
      }
}

// cancel() ends a wait whose frames are blocked by a window, and releases the tensors of all operations.
TEST(SendWindow, CancelCompletesAllOperations) {
  for (const char* pacer : kWindows) {
    Ranks ranks(open_loop(3), {.codec = "fp32", .strategy = "gather", .pacer = pacer});
    std::vector<float> v(50'000, 1.0F);
    const Tensor tensor{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = ranks[0].sync({&tensor, 1});  // no other rank calls sync
    ASSERT_TRUE(ticket.ok());
    ranks[0].cancel();
    EXPECT_EQ(ranks[0].wait(*ticket).code(), Code::kCancelled);
  }
}

TEST(SendWindow, InvalidWindowIsRefused) {
  auto transports = open_loop(1);
  const auto opened = Session::open(std::move(transports[0]), {.pacer = "window=64k"});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kInvalid);
  EXPECT_NE(opened.status().what().find("pacer=window=64k"), std::string::npos) << opened.status().what();
}

}  // namespace
}  // namespace tithe
