// SPDX-License-Identifier: Apache-2.0
// 64 ranks on one machine, over every transport between processes: they meet and open within 20 s, keep the laws of
// ledger and identity, and learn who is gone, also those who never had a message of it. `make test-full` runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "base/rng.h"
#include "multiproc/processes.h"
#include "support/reserved_port.h"
#include "tithe/session.h"

namespace tithe::testing {
namespace {

using namespace std::chrono_literals;

constexpr int kWorld = 64;
constexpr std::size_t kValues = 5000;
constexpr int kRounds = 2;
constexpr Seconds kPatience{120.0};

bool full() {
  const char* set = std::getenv("TITHE_TEST_FULL");
  return set != nullptr && std::string_view(set) == "1";
}

std::vector<std::string> transports() {
  std::vector<std::string> names;
  for (const TransportKind* kind : all_transports())
    if (kind->open != nullptr && kind->usable().ok()) names.emplace_back(kind->examples.front());
  return names;
}

// The results that ranks leave for the parent, in memory that all of them share.
struct Board {
  float result[kWorld][kValues];
  float residual[kWorld][kValues];
};

class Shared {
 public:
  Shared()
      : board_(static_cast<Board*>(
            mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Shared() { munmap(board_, sizeof(Board)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Board* operator->() const { return board_; }

 private:
  Board* board_;
};

// Small whole numbers: every sum of them is exact.
float value(Rank rank, int round, std::size_t i) {
  const std::uint64_t draw =
      mix64(static_cast<std::uint64_t>(rank) * 1'000'003 + i * 17 + static_cast<std::uint64_t>(round) * 7919);
  return static_cast<float>(static_cast<int>(draw % 17) - 8);
}

class LargeWorld : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!full()) GTEST_SKIP() << "64 processes: TITHE_TEST_FULL=1 runs them";
  }

  Result<std::unique_ptr<Session>> join(Rank me, std::string_view codec, std::string_view strategy) const {
    Launch launch;
    launch.rank = me;
    launch.world = kWorld;
    launch.host = "127.0.0.1";
    launch.port = port_;
    launch.timeout = 20s;  // the documented limit
    Result<std::unique_ptr<Transport>> t = open_transport(GetParam(), connect_options(launch));
    if (!t.ok()) return t.status();
    SessionOptions options;
    options.codec = codec;
    options.strategy = strategy;
    options.average = false;
    return Session::open(std::move(*t), options);
  }

  static Status round(Session& session, Rank me, int number, std::vector<float>& values) {
    for (std::size_t i = 0; i < kValues; ++i) values[i] = value(me, number, i);
    const Tensor tensors[] = {{.key = "a", .data = values.data(), .n = kValues}};
    const Result<Ticket> ticket = session.sync(tensors);
    if (!ticket.ok()) return ticket.status();
    const Status s = session.wait(*ticket);
    return s.ok() ? session.commit() : s;
  }

  void laws_hold(std::string_view codec, std::string_view strategy) {
    const Shared board;
    Processes ranks(kWorld, [&](Rank me, const Reporter& parent) {
      Result<std::unique_ptr<Session>> session = join(me, codec, strategy);
      if (!session.ok()) return parent.say("not open: " + session.status().what());
      std::vector<float> values(kValues), sum(kValues);
      for (int r = 0; r < kRounds; ++r) {
        if (const Status s = round(**session, me, r, values); !s.ok())
          return parent.say("round: " + s.what());
        for (std::size_t i = 0; i < kValues; ++i) sum[i] += values[i];
      }
      std::copy(sum.begin(), sum.end(), board->result[me]);
      if (const Status s = (*session)->residual("a", board->residual[me]); !s.ok())
        return parent.say("residual: " + s.what());
      parent.say("done");
    });
    for (Rank r = 0; r < kWorld; ++r) ASSERT_EQ(ranks.line(r, kPatience), "done") << "rank " << r;
    for (std::size_t i = 0; i < kValues; ++i) {
      float given = 0, unsent = 0;
      for (Rank r = 0; r < kWorld; ++r) {
        ASSERT_EQ(board->result[r][i], board->result[0][i]) << "rank " << r << ", value " << i;
        unsent += board->residual[r][i];
        for (int n = 0; n < kRounds; ++n) given += value(r, n, i);
      }
      ASSERT_EQ(board->result[0][i] + unsent, given) << "value " << i;
    }
  }

  const testing::ReservedPort port_;
};

TEST_P(LargeWorld, OpensAndKeepsTheLawsOnARing) { laws_hold("fp32", "ring"); }

TEST_P(LargeWorld, OpensAndKeepsTheLawsUnderAllToAll) { laws_hold("topk:ratio=0.05", "server"); }

// On a ring a rank has messages of one neighbour alone.
TEST_P(LargeWorld, AllRanksNameTheKilledRank) {
  constexpr Rank kVictim = 17;
  Processes ranks(kWorld, [&](Rank me, const Reporter& parent) {
    Result<std::unique_ptr<Session>> session = join(me, "fp32", "ring");
    if (!session.ok()) return parent.say("not open: " + session.status().what());
    std::vector<float> values(kValues);
    for (int r = 0;; ++r) {
      const Status s = round(**session, me, r, values);
      if (!s.ok()) return parent.say(fmt::format("trouble {} {}", name(s.code()), s.peer()));
      if (r == 1) parent.say("two rounds");
    }
  });
  for (Rank r = 0; r < kWorld; ++r) ASSERT_EQ(ranks.line(r, kPatience), "two rounds") << "rank " << r;
  ranks.signal(kVictim, SIGKILL);
  for (Rank r = 0; r < kWorld; ++r) {
    if (r == kVictim) continue;
    EXPECT_EQ(ranks.line(r, kPatience), fmt::format("trouble peer_lost {}", kVictim)) << "rank " << r;
  }
}

std::string title(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

INSTANTIATE_TEST_SUITE_P(All, LargeWorld, ::testing::ValuesIn(transports()), title);

}  // namespace
}  // namespace tithe::testing
