// SPDX-License-Identifier: Apache-2.0
#include "tithe/rejoin.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "support/ranks.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using testing::text;
using Names = std::vector<std::string>;

// A board in shared memory.
struct Shared {
  std::mutex mutex;
  std::map<std::string, Board::Text> texts;
  Board board() {
    return {.put_first = [this](const std::string& key, ByteView value) -> Result<Board::Text> {
              const std::lock_guard lock(mutex);
              return texts.try_emplace(key, value.begin(), value.end()).first->second;
            },
            .get = [this](const std::string& key) -> Result<std::optional<Board::Text>> {
              const std::lock_guard lock(mutex);
              const auto at = texts.find(key);
              return at == texts.end() ? std::optional<Board::Text>() : at->second;
            }};
  }
};

std::vector<Result<RejoinResult>> rejoin_all(const std::vector<RejoinOptions>& all) {
  std::vector<Result<RejoinResult>> out(all.size(), Status(Code::kIo, "not run"));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) threads.emplace_back([&, i] { out[i] = rejoin(all[i]); });
  for (std::thread& t : threads) t.join();
  return out;
}

// Every rank reports all others as missed, so no rank is waited for longer than the window.
RejoinOptions of(const Board& board, std::string me, const Names& before, std::uint64_t epoch = 1) {
  return {.board = board,
          .me = std::move(me),
          .epoch = epoch,
          .before = before,
          .missed = before,
          .timeout = 60s};
}

TEST(Rejoin, AllRanksOfTheFirstEpochJoin) {
  Shared s;
  const Names all = {"a", "b", "c"};
  const auto met =
      rejoin_all({of(s.board(), "c", all, 0), of(s.board(), "a", all, 0), of(s.board(), "b", all, 0)});
  for (const auto& m : met) {
    ASSERT_TRUE(m.ok()) << text(m.status());
    EXPECT_EQ(m->members, all);
    EXPECT_FALSE(m->joined);
  }
  EXPECT_EQ(met[0]->rank, 2);
}

// Also if the first member is lost, and ranks do not know which members are lost.
TEST(Rejoin, SurvivorsKeepTheirOrder) {
  Shared s;
  const Names before = {"a", "b", "c", "d", "e"};
  const auto met =
      rejoin_all({of(s.board(), "e", before), of(s.board(), "b", before), of(s.board(), "c", before)});
  for (const auto& m : met) {
    ASSERT_TRUE(m.ok()) << text(m.status());
    EXPECT_EQ(m->members, (Names{"b", "c", "e"}));
    EXPECT_EQ(m->epoch, 1U);
  }
  std::vector<std::vector<std::vector<std::uint8_t>>> got(3);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      const auto mine = static_cast<std::uint8_t>(met[i]->rank);
      got[i] = *met[i]->all_gather({&mine, 1});
    });
  for (std::thread& t : threads) t.join();
  for (const auto& g : got) EXPECT_EQ(g, (std::vector<std::vector<std::uint8_t>>{{0}, {1}, {2}}));
}

TEST(Rejoin, NewMembersFollowSurvivors) {
  Shared s;
  const Names before = {"a", "b", "c"};
  (void)s.board().put_first("0.members", {});  // epoch 0 is decided
  std::vector<Result<RejoinResult>> met;
  std::thread client([&] { met.push_back(rejoin(of(s.board(), "new", {}, 0))); });
  while (!*new_ranks_waiting(s.board(), 1, before)) std::this_thread::sleep_for(1ms);
  const auto old = rejoin_all({of(s.board(), "a", before), of(s.board(), "c", before)});
  client.join();
  for (const auto& m : {old[0], old[1], met[0]}) {
    ASSERT_TRUE(m.ok()) << text(m.status());
    EXPECT_EQ(m->members, (Names{"a", "c", "new"}));
  }
  EXPECT_TRUE(old[0]->joined);
  EXPECT_FALSE(*new_ranks_waiting(s.board(), 2, old[0]->members));
}

// Two halves without a connection: at most one of them continues.
TEST(Rejoin, OneOfTwoHalvesContinues) {
  for (const std::size_t ranks : {2U, 3U, 4U, 5U})
    for (unsigned halves = 0; halves < 1U << ranks; ++halves) {
      Names before;
      for (std::size_t r = 0; r < ranks; ++r) before.push_back("rank " + std::to_string(r));
      Shared left, right;
      std::vector<RejoinOptions> all;
      for (std::size_t r = 0; r < ranks; ++r) {
        const bool here = (halves >> r & 1U) != 0;
        all.push_back(of((here ? left : right).board(), before[r], before));
        all.back().window = 10ms;
        all.back().timeout = 150ms;  // for ranks that may not continue; the others get their result earlier
      }
      const auto met = rejoin_all(all);
      std::set<Names> went;
      for (const auto& m : met) {
        if (m.ok()) went.insert(m->members);
        if (!m.ok()) {
          EXPECT_TRUE(m.status().code() == Code::kTimeout || m.status().code() == Code::kPeerLost)
              << text(m.status());
        }
      }
      std::size_t sides = 0;
      for (std::size_t side = 0; side < 2; ++side) {
        bool any = false;
        for (std::size_t r = 0; r < ranks; ++r) any = any || ((halves >> r & 1U) == side && met[r].ok());
        sides += any ? 1 : 0;
      }
      EXPECT_LE(sides, 1U) << ranks << " ranks, " << halves;
      EXPECT_LE(went.size(), 1U);
    }
}

// A rank that is computing has not registered yet and is waited for; a rank that was reported lost is not.
TEST(Rejoin, MembersNotReportedLostAreAwaited) {
  Shared s;
  const Names before = {"a", "b", "c", "d"};
  std::vector<RejoinOptions> all = {of(s.board(), "a", before), of(s.board(), "b", before),
                                    of(s.board(), "c", before)};
  for (RejoinOptions& r : all) r.missed = {};
  all[1].missed = {"d"};
  std::vector<Result<RejoinResult>> late;
  std::thread computes([&] {
    std::this_thread::sleep_for(1s);  // longer than the window
    late.push_back(rejoin(all[2]));
  });
  const auto met = rejoin_all({all[0], all[1]});
  computes.join();
  for (const auto& m : {met[0], met[1], late[0]}) {
    ASSERT_TRUE(m.ok()) << text(m.status());
    EXPECT_EQ(m->members, (Names{"a", "b", "c"}));
  }
}

// No rank was reported lost at registration; the loss is reported later.
TEST(Rejoin, MembersLostDuringRejoinAreNotAwaited) {
  Shared s;
  const Names before = {"a", "b", "c", "d", "e"};
  std::vector<RejoinOptions> all = {of(s.board(), "a", before), of(s.board(), "b", before),
                                    of(s.board(), "c", before)};
  std::atomic<int> looks = 0;
  for (RejoinOptions& r : all) {
    r.missed = {"d"};
    r.lost = [&looks] { return ++looks > 20 ? Names{"e", "old"} : Names{}; };
  }
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& m : rejoin_all(all)) {
    ASSERT_TRUE(m.ok()) << text(m.status());
    EXPECT_EQ(m->members, (Names{"a", "b", "c"}));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s) << "without the report the wait would be 30 s";
  // Now c registers and is lost before it writes its address. A new rank may reuse the name of a rank lost long ago.
  RejoinOptions again = of(s.board(), "a", {"a", "b", "c"}, 2);
  again.missed = {};
  again.lost = [] { return Names{"c", "old"}; };
  (void)s.board().put_first("2.come.b", {});
  (void)s.board().put_first("2.come.c", {});
  const std::uint8_t old[] = {'o', 'l', 'd'};
  (void)s.board().put_first("2.new.0", old);
  const auto met = rejoin(again);
  ASSERT_TRUE(met.ok()) << text(met.status());
  EXPECT_EQ(met->members, (Names{"a", "b", "c", "old"}));
  (void)s.board().put_first("2.address.1", {});
  const auto addresses = met->all_gather({});
  EXPECT_EQ(addresses.status().code(), Code::kPeerLost);
  EXPECT_EQ(addresses.status().peer(), 2);
}

// One member has been missing for long when another one is reported lost. That one only failed to connect, and
// registers a moment later.
TEST(Rejoin, TheLastLossRestartsTheWindow) {
  Shared s;
  const Board board = s.board();
  const Names before = {"a", "b", "c", "d"};
  const auto begin = std::chrono::steady_clock::time_point{};
  auto now = begin;
  ASSERT_TRUE(board.put_first("1.come.b", {}).ok());
  RejoinOptions mine = of(board, "a", before);
  mine.missed = {"d"};
  mine.lost = [&] { return now >= begin + 250ms ? Names{"c"} : Names{}; };
  mine.now = [&] { return now; };
  mine.sleep = [&](std::chrono::milliseconds pause) {
    now += pause;
    if (now >= begin + 450ms) {
      ASSERT_TRUE(board.put_first("1.come.c", {}).ok());
    }
  };
  const Result<RejoinResult> met = rejoin(mine);
  ASSERT_TRUE(met.ok()) << text(met.status());
  EXPECT_EQ(met->members, (Names{"a", "b", "c"}));
}

TEST(Rejoin, WaitsForMinWorldAndExcludesBeyondMaxWorld) {
  Shared s;
  const Names before = {"a", "b", "c"};
  std::vector<RejoinOptions> two = {of(s.board(), "a", before), of(s.board(), "b", before)};
  for (RejoinOptions& r : two) {
    r.min_world = 3;
    r.timeout = 300ms;
  }
  for (const auto& m : rejoin_all(two)) {
    EXPECT_EQ(m.status().code(), Code::kTimeout);
    EXPECT_NE(m.status().what().find("2 of the 3 previous members joined"), std::string::npos)
        << text(m.status());
    EXPECT_NE(m.status().what().find("min_world is 3; missing: 'c'"), std::string::npos) << text(m.status());
  }
  Shared full;
  const std::uint8_t x[] = {'x'}, y[] = {'y'};
  (void)full.board().put_first("1.new.0", x);
  (void)full.board().put_first("1.new.1", y);
  std::vector<RejoinOptions> all = {of(full.board(), "a", before), of(full.board(), "b", before),
                                    of(full.board(), "c", before)};
  for (RejoinOptions& r : all) r.max_world = 4;
  for (const auto& m : rejoin_all(all)) EXPECT_EQ(m->members, (Names{"a", "b", "c", "x"}));
}

// A restarted process whose old instance has not been reported lost: it joins one epoch later.
TEST(Rejoin, ReusedNameWaitsUntilItsMemberIsRemoved) {
  Shared s;
  const Names before = {"a", "b", "c"};
  const std::uint8_t b[] = {'b'}, x[] = {'x'};
  (void)s.board().put_first("1.new.0", b);
  EXPECT_FALSE(*new_ranks_waiting(s.board(), 1, before));
  EXPECT_TRUE(*new_ranks_waiting(s.board(), 1, {"a", "c"}));
  (void)s.board().put_first("1.new.1", x);
  EXPECT_TRUE(*new_ranks_waiting(s.board(), 1, before));
  EXPECT_FALSE(*new_ranks_waiting(s.board(), 1, before, 3)) << "the world is full";
  for (const auto& m : rejoin_all({of(s.board(), "a", before), of(s.board(), "c", before)}))
    EXPECT_EQ(m->members, (Names{"a", "c", "x"}));
  (void)s.board().put_first("2.new.0", b);
  for (const auto& m : rejoin_all({of(s.board(), "a", {"a", "c"}, 2), of(s.board(), "c", {"a", "c"}, 2)}))
    EXPECT_EQ(m->members, (Names{"a", "c", "b"}));
}

TEST(Rejoin, LateMembersGetAnError) {
  Shared s;
  const Names before = {"a", "b", "c"};
  (void)rejoin_all({of(s.board(), "a", before), of(s.board(), "b", before)});
  const auto late = rejoin(of(s.board(), "c", before));
  EXPECT_EQ(late.status().code(), Code::kPeerLost);
  EXPECT_NE(late.status().what().find("continued without this rank as epoch 1: 'a', 'b'"), std::string::npos);
}

TEST(Rejoin, BoardWithInvalidMembersIsReported) {
  for (const std::string wrong : {"", "a", "1x\na", "-1\na", "3\na\nb", "2\na\na"}) {
    Shared s;
    s.texts["1.members"] = {wrong.begin(), wrong.end()};
    const Result<RejoinResult> met = rejoin(of(s.board(), "a", {"a", "b"}));
    ASSERT_FALSE(met.ok()) << wrong;
    EXPECT_EQ(met.status().code(), Code::kCorrupt) << text(met.status());
  }
}

TEST(Rejoin, RefusesWrongNames) {
  Shared s;
  EXPECT_EQ(rejoin(of(s.board(), "d", {"a", "b"})).status().code(), Code::kInvalid);
  EXPECT_EQ(rejoin(of(s.board(), "a", {"a", "a"})).status().code(), Code::kInvalid);
  EXPECT_EQ(rejoin(of(s.board(), "a\nb", {})).status().code(), Code::kInvalid);
  EXPECT_EQ(rejoin(of({}, "a", {"a"})).status().code(), Code::kInvalid);
}

TEST(Rejoin, FolderServesAsBoard) {
  std::string folder = ::testing::TempDir() + "tithe_board_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const Board board = board_in(folder);
  const std::uint8_t one[] = {1, 2}, two[] = {3};
  EXPECT_FALSE(board.get("1.come.a/b ä")->has_value());
  EXPECT_EQ(*board.put_first("1.come.a/b ä", one), (Board::Text{1, 2}));
  EXPECT_EQ(*board.put_first("1.come.a/b ä", two), (Board::Text{1, 2}));
  EXPECT_EQ(**board.get("1.come.a/b ä"), (Board::Text{1, 2}));
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(file.status().permissions() & std::filesystem::perms::others_all, std::filesystem::perms::none);
    ++files;
  }
  EXPECT_EQ(files, 1U);
  std::filesystem::permissions(std::filesystem::directory_iterator(folder)->path(),
                               std::filesystem::perms::others_read, std::filesystem::perm_options::add);
  EXPECT_EQ(board.get("1.come.a/b ä").status().code(), Code::kIo) << "another user may have written it";
  std::filesystem::remove_all(folder);
  EXPECT_EQ(board_in("/nowhere/at/all").put_first("k", one).status().code(), Code::kIo);
}

}  // namespace
}  // namespace tithe
