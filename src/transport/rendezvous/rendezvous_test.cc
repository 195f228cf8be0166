// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "support/relay.h"
#include "support/reserved_port.h"
#include "tithe/connect.h"
#include "transport/rendezvous/socket.h"

namespace tithe {
namespace {

using namespace std::chrono_literals;
using Gathered = Result<std::vector<std::vector<std::uint8_t>>>;

// The parameter is true for files.
class Rendezvous : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "tithe-meet-XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Launch launch(Rank rank, int world, std::chrono::milliseconds timeout = 30s) const {
    Launch l;
    l.rank = rank;
    l.world = world;
    l.timeout = timeout;
    if (GetParam())
      l.file = (folder_ / "meeting").string();
    else
      l.host = "127.0.0.1";
    l.port = GetParam() ? 0 : port_;
    return l;
  }

  static std::vector<std::uint8_t> blob_of(Rank r) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(r) * 1000, static_cast<std::uint8_t>(r));
  }

  // Runs all ranks in threads, except those in `absent`.
  std::vector<std::optional<Gathered>> gather(int world, const std::vector<Rank>& absent = {},
                                              std::chrono::milliseconds timeout = 30s) const {
    std::vector<std::optional<Gathered>> out(static_cast<std::size_t>(world));
    std::vector<std::thread> threads;
    for (Rank r = world - 1; r >= 0; --r) {
      if (std::find(absent.begin(), absent.end(), r) != absent.end()) continue;
      threads.emplace_back([&, r] {
        out[static_cast<std::size_t>(r)] = open_rendezvous(launch(r, world, timeout))(blob_of(r));
      });
      if (r == world - 1) std::this_thread::sleep_for(30ms);  // so that rank 0 is not always the first
    }
    for (std::thread& t : threads) t.join();
    return out;
  }

  void expect_all(const std::vector<std::optional<Gathered>>& got) const {
    for (const auto& g : got) {
      ASSERT_TRUE(g && g->ok()) << (g ? g->status().what() : "");
      ASSERT_EQ((**g).size(), got.size());
      for (std::size_t r = 0; r < got.size(); ++r) EXPECT_EQ((**g)[r], blob_of(static_cast<Rank>(r)));
    }
  }

  std::filesystem::path folder_;
  const testing::ReservedPort port_;
};

TEST_P(Rendezvous, everyone_gets_all_blobs) {
  for (const int world : {1, 2, 3, 8}) expect_all(gather(world));
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_P(Rendezvous, names_absent_ranks) {
  const auto got = gather(4, {1, 3}, 500ms);
  for (const Rank r : {0, 2}) {
    const Status s = got[static_cast<std::size_t>(r)]->status();
    EXPECT_EQ(s.code(), Code::kTimeout) << s.what();
    EXPECT_EQ(s.peer(), 1);
    EXPECT_NE(s.what().find("ranks 1 and 3"), std::string::npos) << s.what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_P(Rendezvous, names_ranks_with_another_world) {
  Gathered odd = Status(Code::kInvalid, "not run");
  std::thread other([&] { odd = open_rendezvous(launch(1, 3, 1s))({}); });
  const Gathered got = open_rendezvous(launch(0, 2, 1s))({});
  other.join();
  EXPECT_EQ(got.status().code(), Code::kMismatch) << got.status().what();
  EXPECT_EQ(got.status().peer(), 1);
  EXPECT_NE(got.status().what().find("world size 3"), std::string::npos) << got.status().what();
  EXPECT_FALSE(odd.ok());
}

TEST_P(Rendezvous, refuses_an_oversized_blob) {
  const std::vector<std::uint8_t> huge(2U << 20);
  EXPECT_EQ(open_rendezvous(launch(0, 2))(huge).status().code(), Code::kInvalid);
}

// Ctrl-C while peers are missing must end the wait before the timeout, and not the process.
TEST_P(Rendezvous, can_be_cancelled) {
  for (const Rank me : {0, 1}) {
    std::atomic<bool> withdrawn = false;
    std::thread later([&] {
      std::this_thread::sleep_for(200ms);
      withdrawn = true;
    });
    Launch l = launch(me, 2, 10min);
    l.interrupted = [&] { return withdrawn.load(); };
    const Gathered got = open_rendezvous(l)(blob_of(me));
    later.join();
    EXPECT_EQ(got.status().code(), Code::kCancelled) << got.status().what();
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// If rank 0 withdraws, the others must get its name before their own timeout.
TEST_P(Rendezvous, a_cancelled_rank_0_is_named) {
  if (GetParam()) GTEST_SKIP() << "over files a withdrawn rank is not reported";
  std::atomic<bool> came = false;
  Gathered seen = Status(Code::kInvalid, "");
  Launch mine = launch(0, 3, 10min);
  mine.interrupted = [&] { return came.load(); };
  std::thread client([&] { seen = open_rendezvous(launch(1, 3, 10min))(blob_of(1)); });
  std::thread later([&] {
    std::this_thread::sleep_for(1s);
    came = true;
  });
  EXPECT_EQ(open_rendezvous(mine)(blob_of(0)).status().code(), Code::kCancelled);
  client.join();
  later.join();
  EXPECT_EQ(seen.status().code(), Code::kPeerLost) << seen.status().what();
  EXPECT_EQ(seen.status().peer(), 0);
}

INSTANTIATE_TEST_SUITE_P(ways, Rendezvous, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "files" : "tcp"; });

using RendezvousTcp = Rendezvous;
INSTANTIATE_TEST_SUITE_P(tcp, RendezvousTcp, ::testing::Values(false));

// Clients whose own timeout ends first must not be reported as missing.
TEST_P(RendezvousTcp, late_rank_0_and_its_clients_name_the_same_ranks) {
  std::vector<Gathered> got(4, Status(Code::kInvalid, "not run"));
  std::vector<std::thread> ranks;
  for (const Rank r : {1, 3, 0}) {
    if (r == 0) std::this_thread::sleep_for(1500ms);
    ranks.emplace_back(
        [&, r] { got[static_cast<std::size_t>(r)] = open_rendezvous(launch(r, 4, 2s))(blob_of(r)); });
  }
  for (std::thread& t : ranks) t.join();
  for (const Rank r : {0, 1, 3}) {
    const Status s = got[static_cast<std::size_t>(r)].status();
    EXPECT_EQ(s.code(), Code::kTimeout) << r << ": " << s.what();
    EXPECT_EQ(s.peer(), 2) << r << ": " << s.what();
    EXPECT_NE(s.what().find("rank 2 did not reach"), std::string::npos) << r << ": " << s.what();
  }
}

TEST_P(RendezvousTcp, a_client_that_disconnected_counts_as_present) {
  std::atomic<bool> leaves = false;
  Launch passing = launch(1, 3, 30s);
  passing.interrupted = [&] { return leaves.load(); };
  Gathered seen = Status(Code::kInvalid, "not run");
  std::thread client([&] { seen = open_rendezvous(passing)(blob_of(1)); });
  std::thread later([&] {
    std::this_thread::sleep_for(800ms);
    leaves = true;
  });
  std::thread stays([&] {
    std::this_thread::sleep_for(1200ms);
    (void)open_rendezvous(launch(2, 3, 30s))(blob_of(2));
  });
  const Status s = open_rendezvous(launch(0, 3, 2s))(blob_of(0)).status();
  for (std::thread* t : {&client, &later, &stays}) t->join();
  EXPECT_EQ(seen.status().code(), Code::kCancelled) << seen.status().what();
  EXPECT_EQ(s.code(), Code::kPeerLost) << s.what();
  EXPECT_EQ(s.peer(), 1);
  EXPECT_NE(s.what().find("rank 1 connected and left again"), std::string::npos) << s.what();
}

// A flipped bit, anywhere in the messages, causes another conversation. Without checks, some bits would make one side
// wait for bytes that never come, until its timeout.
TEST_P(RendezvousTcp, a_flipped_bit_costs_a_retry) {
  std::map<testing::Relay::Place, std::uint64_t> passed{{{0, 0, false}, 1}};
  int struck = 0;
  for (std::uint64_t byte = 0; byte < std::max(passed.begin()->second, passed.rbegin()->second); byte += 13)
    for (const bool back : {false, true}) {
      testing::Relay relay;
      Launch client = launch(1, 2);
      client.port = relay.link(0, port_);
      relay.flip({0, 0, back}, byte, static_cast<int>(byte / 13 % 8));
      Gathered zero = Status(Code::kInvalid, "not run");
      std::thread host([&] { zero = open_rendezvous(launch(0, 2))(blob_of(0)); });
      std::this_thread::sleep_for(2ms);
      const Gathered one = open_rendezvous(client)(blob_of(1));
      host.join();
      passed = relay.passed();
      struck += relay.flipped();
      ASSERT_TRUE(one.ok()) << byte << (back ? " back: " : " there: ") << one.status().what();
      ASSERT_TRUE(zero.ok()) << byte << (back ? " back: " : " there: ") << zero.status().what();
      EXPECT_EQ(*one, *zero);
    }
  EXPECT_GT(struck, 100);
}

// Port scanners and lost clients: garbage, a huge length, silence, a closed connection.
TEST_P(RendezvousTcp, foreign_connections_do_not_break_it) {
  std::vector<std::optional<Gathered>> got(3);
  std::vector<std::thread> ranks;
  ranks.emplace_back([&] { got[0] = open_rendezvous(launch(0, 3))(blob_of(0)); });
  std::vector<rendezvous::Socket> strangers;
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  const std::string texts[] = {"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n", "", "x",
                               std::string("TTMT\1\0\0\0\3\0\0\0\1\0\0\0\xff\xff\xff\xff", 20)};
  for (const std::string& text : texts) {
    Result<rendezvous::Socket> s = Status(Code::kIo, "not yet");
    while (!s.ok() && std::chrono::steady_clock::now() < deadline)
      s = rendezvous::connect_to("127.0.0.1", port_, deadline);
    ASSERT_TRUE(s.ok());
    EXPECT_TRUE(
        rendezvous::send_all(*s, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}, deadline)
            .ok());
    if (text != "x") strangers.push_back(std::move(*s));  // "x" closes its connection
  }
  for (const Rank r : {1, 2})
    ranks.emplace_back(
        [&, r] { got[static_cast<std::size_t>(r)] = open_rendezvous(launch(r, 3))(blob_of(r)); });
  for (std::thread& t : ranks) t.join();
  expect_all(got);
}

// As before a port: without brackets, an IPv6 address and a port are ambiguous.
TEST_P(RendezvousTcp, an_address_can_be_in_brackets) {
  std::vector<std::optional<Gathered>> out(2);
  const auto at = [&](const std::string& host) {
    std::vector<std::thread> ranks;
    for (Rank r = 0; r < 2; ++r)
      ranks.emplace_back([&, r] {
        Launch l = launch(r, 2, 5s);
        l.host = host;
        out[static_cast<std::size_t>(r)].emplace(open_rendezvous(l)(blob_of(r)));
      });
    for (std::thread& t : ranks) t.join();
  };
  at("[::1]");
  for (const auto& all : out) EXPECT_TRUE((*all).ok()) << (*all).status().what();
  at("[127.0.0.1]");
  for (const auto& all : out) EXPECT_FALSE((*all).ok());
}

TEST_P(RendezvousTcp, reports_a_port_in_use) {
  int why = 0;
  const auto holder = rendezvous::listen_on(port_, &why);
  ASSERT_TRUE(holder.ok());
  const Status s = open_rendezvous(launch(0, 2, 1s))({}).status();
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_NE(s.what().find("torchrun"), std::string::npos) << s.what();
}

TEST_P(RendezvousTcp, reports_a_foreign_server) {
  int why = 0;
  const auto holder = rendezvous::listen_on(port_, &why);
  ASSERT_TRUE(holder.ok());
  std::thread someone([&] {
    while (true) {
      const rendezvous::Socket s = rendezvous::accept_from(*holder);
      if (!s.is_open()) {
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const std::vector<std::uint8_t> text(64, 'z');
      EXPECT_TRUE(rendezvous::send_all(s, text, std::chrono::steady_clock::now() + 5s).ok());
      std::uint8_t in[64];
      // Until the other side closes.
      while (rendezvous::recv_some(s, in) >= 0) std::this_thread::sleep_for(1ms);
      return;
    }
  });
  const Status s = open_rendezvous(launch(1, 2, 5s))({}).status();
  someone.join();
  EXPECT_EQ(s.code(), Code::kMismatch) << s.what();
}

using RendezvousFiles = Rendezvous;
INSTANTIATE_TEST_SUITE_P(files, RendezvousFiles, ::testing::Values(true));

// Files left by a killed job: the same ranks, other addresses.
TEST_P(RendezvousFiles, stale_files_are_ignored) {
  std::set<Rank> kept;
  {
    // Copies of the files of a first rendezvous simulate those of a killed job. The copies are taken in the
    // `interrupted` callbacks: each rank calls it before it agrees, and neither rank removes its file before the other
    // has agreed.
    std::mutex mutex;
    const auto copy = [&] {
      const std::lock_guard lock(mutex);
      for (const Rank r : {0, 1}) {
        std::error_code none;
        if (!kept.contains(r) && std::filesystem::copy_file(folder_ / ("meeting." + std::to_string(r)),
                                                            folder_ / ("kept." + std::to_string(r)), none))
          kept.insert(r);
      }
      return false;
    };
    std::vector<std::thread> killed;
    for (const Rank r : {0, 1})
      killed.emplace_back([&, r] {
        const std::vector<std::uint8_t> stale(50, 0xEE);
        Launch l = launch(r, 2);
        l.interrupted = copy;
        EXPECT_TRUE(open_rendezvous(l)(stale).ok());
      });
    for (std::thread& t : killed) t.join();
  }
  ASSERT_EQ(kept.size(), 2U);
  for (const Rank r : {0, 1})
    std::filesystem::rename(folder_ / ("kept." + std::to_string(r)),
                            folder_ / ("meeting." + std::to_string(r)));
  expect_all(gather(2));
}

TEST_P(RendezvousFiles, a_folder_is_accepted) {
  std::vector<std::optional<Gathered>> got(2);
  std::vector<std::thread> ranks;
  for (const Rank r : {0, 1})
    ranks.emplace_back([&, r] {
      Launch l = launch(r, 2);
      l.file = folder_.string();
      got[static_cast<std::size_t>(r)] = open_rendezvous(l)(blob_of(r));
    });
  for (std::thread& t : ranks) t.join();
  expect_all(got);
}

TEST_P(RendezvousFiles, reports_an_unwritable_path) {
  Launch l = launch(0, 2);
  l.file = (folder_ / "no" / "such" / "place").string();
  const Status s = open_rendezvous(l)({}).status();
  EXPECT_EQ(s.code(), Code::kIo);
  EXPECT_NE(s.what().find("no/such/place"), std::string::npos) << s.what();
}

}  // namespace
}  // namespace tithe
