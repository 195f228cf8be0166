// SPDX-License-Identifier: Apache-2.0
// Survivors' findings when a rank is killed, frozen or leaves in the middle of rounds, over every transport between
// processes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "multiproc/processes.h"
#include "support/transport_world.h"
#include "tithe/session.h"

namespace tithe::testing {
namespace {

using namespace std::chrono_literals;

constexpr Seconds kPatience{60.0};  // only a failing test waits this long
constexpr Seconds kPromised{10.0};  // a killed rank is named within this time
constexpr std::size_t kValues = 300'000;

struct Case {
  std::string transport;
  const char* strategy;
  const char* codec;
  int world;
  const char* hosts = "";  // the ranks of each host; empty: as the transport detects them
};

std::string title(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}_{}_{}", info.param.transport, info.param.strategy, info.param.codec,
                                 info.param.world);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

// Every transport between processes, in each of its examples; more strategies where nothing is set.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const TransportKind* kind : all_transports()) {
    if (kind->open == nullptr || !kind->usable().ok()) continue;
    for (const std::string_view example : kind->examples)
      all.push_back({std::string(example), "ring", "fp32", 4});
    all.push_back({std::string(kind->examples.back()), "ring", "fp32", 2});
    all.push_back({std::string(kind->examples.front()), "gather", "topk", 3});
    all.push_back({std::string(kind->examples.front()), "hosts", "onebit", 4, "2x2"});
  }
  all.push_back({"tcp:tls=KEYS", "ring", "fp32", 3});
  return all;
}

// System V shared memory segments that one of these processes made; they may outlive it.
std::size_t count_segments(const std::vector<pid_t>& makers) {
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::getline(table, line);  // the columns' names
  std::size_t n = 0;
  while (std::getline(table, line)) {
    std::istringstream columns(line);
    long key = 0, id = 0, size = 0, maker = 0;
    std::string permissions;
    columns >> key >> id >> permissions >> size >> maker;
    n += std::find(makers.begin(), makers.end(), maker) != makers.end();
  }
  return n;
}

// POSIX shared memory of UCX, whoever made it.
std::set<std::string> shared_files() {
  std::set<std::string> out;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
    if (const std::string path = file.path().string(); path.find("ucx_shm") != std::string::npos)
      out.insert(path);
  return out;
}

std::size_t count_files(const char* folder) {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(folder)) ++n;
  return n;
}

Result<std::unique_ptr<Session>> join(const Case& c, Rank rank, const std::string& file,
                                      SessionOptions options) {
  Launch launch;
  launch.rank = rank;
  launch.world = c.world;
  launch.file = file;
  Result<std::unique_ptr<Transport>> t = open_transport(with_keys(c.transport), connect_options(launch));
  if (!t.ok()) return t.status();
  options.codec = c.codec;
  options.strategy = c.strategy;
  options.hosts = c.hosts;
  return Session::open(std::move(*t), options);
}

class Fault : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    with_keys(GetParam().transport);
  }  // before ranks are forked: they share the certificates
  // Runs rounds until one fails; prints "round" for each, and then "code peer" and the text of the error.
  // `leaver` closes its session in good order after its third round.
  void run_rounds(Rank me, const Reporter& parent, const SessionOptions& options, Rank leaver = -1) {
    Result<std::unique_ptr<Session>> session = join(GetParam(), me, scratch_.path(), options);
    if (!session.ok()) return parent.say("not open: " + session.status().what());
    std::vector<float> a(kValues), b(1000);
    for (int round = 0;; ++round) {
      std::fill(a.begin(), a.end(), static_cast<float>(me));
      std::fill(b.begin(), b.end(), 1.0F);
      const Tensor tensors[] = {{.key = "a", .data = a.data(), .n = a.size()},
                                {.key = "b", .data = b.data(), .n = b.size()}};
      Result<Ticket> ticket = (*session)->sync(tensors);
      Status s = ticket.status();
      if (s.ok()) s = (*session)->wait(*ticket);
      if (s.ok()) s = (*session)->commit();
      if (!s.ok()) {
        parent.say(fmt::format("trouble {} {} {}", name(s.code()), s.peer(), s.what()));
        break;
      }
      parent.say(fmt::format("round {}", round));
      if (me == leaver && round == 2) break;
    }
    session->reset();
    parent.say("closed");
  }

  void expect_end(Processes& ranks, Rank r, Code code, Rank blamed, Seconds most) {
    const auto begin = Clock::now();
    const std::string line = ranks.line_with(r, "trouble", kPatience);
    const Seconds took = Clock::now() - begin;
    EXPECT_TRUE(line.starts_with(fmt::format("trouble {} {} ", name(code), blamed)))
        << "rank " << r << " said: " << line;
    EXPECT_NE(line.find(fmt::format("rank {}", blamed)), std::string::npos) << line;
    EXPECT_LT(took, most) << "rank " << r;
    EXPECT_EQ(ranks.line_with(r, "closed", kPatience), "closed");
    EXPECT_EQ(ranks.end(r, kPatience), 0) << "rank " << r;
    ::testing::Test::RecordProperty(fmt::format("seconds_rank_{}", r), fmt::format("{:.3f}", took.count()));
  }

  Scratch scratch_;
};

TEST_P(Fault, killed_rank_is_named) {
  const int world = GetParam().world;
  const std::set<std::string> before = shared_files();
  std::vector<pid_t> processes;
  for (const Rank victim : {world - 1, 0}) {
    Processes ranks(world,
                    [&](Rank me, const Reporter& parent) { run_rounds(me, parent, {.timeout = 60s}); });
    for (Rank r = 0; r < world; ++r) ASSERT_EQ(ranks.line_with(r, "round 3", kPatience), "round 3") << r;
    ranks.signal(victim, SIGKILL);
    for (Rank r = 0; r < world; ++r) processes.push_back(ranks.process(r));
    for (Rank r = 0; r < world; ++r)
      if (r != victim) expect_end(ranks, r, Code::kPeerLost, victim, kPromised);
  }
  EXPECT_EQ(count_segments(processes), 0U);
  std::set<std::string> after = shared_files();
  for (const auto end = Clock::now() + 10s; after != before && Clock::now() < end; after = shared_files()) {
    std::erase_if(after, [&](const std::string& f) { return before.contains(f); });
    if (after.empty()) break;
    usleep(50'000);  // other programs of this machine may share memory through UCX just now
  }
  for (const std::string& f : after) EXPECT_TRUE(before.contains(f)) << f;
  EXPECT_TRUE(scratch_.empty()) << "a meeting left files behind";
}

TEST_P(Fault, frozen_rank_is_named) {
  const int world = GetParam().world;
  const Rank victim = world - 1;
  Processes ranks(world,
                  [&](Rank me, const Reporter& parent) { run_rounds(me, parent, {.timeout = 1500ms}); });
  for (Rank r = 0; r < world; ++r) ASSERT_EQ(ranks.line_with(r, "round 3", kPatience), "round 3") << r;
  ranks.signal(victim, SIGSTOP);
  for (Rank r = 0; r < world; ++r)
    if (r != victim) expect_end(ranks, r, Code::kTimeout, victim, kPromised);
  ranks.signal(victim, SIGCONT);  // it continues in an empty world, and ends with an error too
  EXPECT_TRUE(ranks.line_with(victim, "trouble", kPatience).starts_with("trouble "));
  EXPECT_EQ(ranks.end(victim, kPatience), 0);
}

TEST_P(Fault, leaving_rank_is_named) {
  const int world = GetParam().world;
  const Rank leaver = world - 1;
  Processes ranks(world,
                  [&](Rank me, const Reporter& parent) { run_rounds(me, parent, {.timeout = 60s}, leaver); });
  for (Rank r = 0; r < world; ++r)
    if (r != leaver) expect_end(ranks, r, Code::kPeerLost, leaver, kPromised);
  EXPECT_EQ(ranks.line_with(leaver, "closed", kPatience), "closed");
  EXPECT_EQ(ranks.end(leaver, kPatience), 0);
}

// Within one machine, UCX's own choice is shared memory (where a process may read another one's memory, as the
// kernel's answer to a read of our own shows); "tcp" is TCP and nothing else.
TEST_P(Fault, requested_transports_are_used) {
  if (!GetParam().transport.starts_with("ucx")) GTEST_SKIP() << "of UCX alone";
  char from = 'x', to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1}, remote{.iov_base = &from, .iov_len = 1};
  const bool can_share = process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
  Processes ranks(GetParam().world, [&](Rank me, const Reporter& parent) {
    const Result<std::unique_ptr<Session>> session = join(GetParam(), me, scratch_.path(), {});
    std::ifstream maps("/proc/self/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    const bool shares = text.find("/SYSV") != std::string::npos || text.find("ucx_shm") != std::string::npos;
    parent.say(session.ok() ? (shares ? "shared" : "apart") : session.status().what());
  });
  for (Rank r = 0; r < GetParam().world; ++r)
    EXPECT_EQ(ranks.line(r, kPatience), can_share && GetParam().transport == "ucx" ? "shared" : "apart");
}

// UCX ended a healthy rank's process by an assertion where it might not open another file. Low limits and just too low
// ones: no process dies, and every rank's error names the rank, the missing descriptors and the cure.
TEST_P(Fault, too_few_descriptors_are_named) {
  if (!GetParam().transport.starts_with("ucx")) GTEST_SKIP() << "of UCX alone";
  const int world = GetParam().world;
  for (const int free : {3, 7, 13, 15, 16, 17, 18, 19}) {
    const Scratch meeting;
    Processes ranks(world, [&](Rank me, const Reporter& parent) {
      rlim_t limit = 0;
      for (int left = free; left > 0; ++limit) left -= fcntl(static_cast<int>(limit), F_GETFD) < 0;
      const rlimit low{.rlim_cur = limit, .rlim_max = limit};
      if (me == 1 && setrlimit(RLIMIT_NOFILE, &low) != 0) return parent.say("no limit");
      const Result<std::unique_ptr<Session>> session = join(GetParam(), me, meeting.path(), {});
      parent.say(fmt::format("{} {}", name(session.status().code()), session.status().what()));
    });
    for (Rank r = 0; r < world; ++r) {
      const std::string line = ranks.line(r, kPatience);
      EXPECT_TRUE(
          line.starts_with(r == 1 ? "io too few file descriptors" : "io rank 1: too few file descriptors"))
          << "rank " << r << ", " << free << " free: " << line;
      EXPECT_NE(line.find(" allowed; run `ulimit -n "), std::string::npos) << line;
      EXPECT_EQ(ranks.end(r, kPatience), 0) << "rank " << r << ", " << free << " free";
    }
  }
}

// Sessions one after the other in one process leave no thread and no descriptor behind.
TEST_P(Fault, nothing_leaks) {
  const int world = GetParam().world;
  Processes ranks(world, [&](Rank me, const Reporter& parent) {
    const auto once = [&] {
      Result<std::unique_ptr<Session>> session = join(GetParam(), me, scratch_.path(), {});
      std::vector<float> a(kValues, 1.0F);
      const Tensor tensors[] = {{.key = "a", .data = a.data(), .n = a.size()}};
      if (!session.ok()) return parent.say("not open: " + session.status().what());
      Result<Ticket> ticket = (*session)->sync(tensors);
      if (!ticket.ok() || !(*session)->wait(*ticket).ok()) parent.say("trouble");
    };
    // The kernel lists a thread for a moment after it was joined, so only threads that stay count.
    const auto lasting = [](const char* folder) {
      std::size_t least = count_files(folder);
      for (int look = 0; look < 20; ++look) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        least = std::min(least, count_files(folder));
      }
      return least;
    };
    once();  // UCX keeps a service thread and its descriptors from its first use on
    const std::size_t files = lasting("/proc/self/fd"), threads = lasting("/proc/self/task");
    for (int i = 0; i < 3; ++i) once();
    parent.say(fmt::format("{} {}", lasting("/proc/self/fd") - files, lasting("/proc/self/task") - threads));
  });
  for (Rank r = 0; r < world; ++r) {
    EXPECT_EQ(ranks.line(r, kPatience), "0 0") << "rank " << r;
    EXPECT_EQ(ranks.end(r, kPatience), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(transports, Fault, ::testing::ValuesIn(cases()), title);

}  // namespace
}  // namespace tithe::testing
