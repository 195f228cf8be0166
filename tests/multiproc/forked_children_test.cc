// SPDX-License-Identifier: Apache-2.0
// Ranks that have forked children, as data loaders start them: a child has a copy of every descriptor of its rank, and
// lives on when that one ends. Each transport between processes must notice an end all the same, by the kernel's word
// and not by a timeout, and end itself.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <vector>

#include "multiproc/processes.h"
#include "support/transport_world.h"
#include "tithe/session.h"

namespace tithe::testing {
namespace {

using namespace std::chrono_literals;

constexpr Seconds kPatience{40.0};  // only a failing test waits this long
constexpr unsigned kChildLives = 120;

struct Case {
  std::string transport;
  // Rank 1 is in a pid namespace of its own, as ranks on other hosts are, so no other rank can see its process.
  bool apart = false;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& how : transport_examples())
    if (how != "loop") all.push_back({how});
  all.push_back({"tcp", true});
  if (find_transport("ucx")->usable().ok()) all.push_back({"ucx:transports=tcp", true});
  return all;
}

pid_t sleeping_child(bool by_libc) {
  const pid_t child = by_libc ? fork() : static_cast<pid_t>(syscall(SYS_fork));
  if (child == 0) {
    alarm(kChildLives);
    for (;;) pause();
  }
  return child;
}

// Runs body in a new pid namespace; false where this user may not make one.
bool apart(const std::function<void()>& body) {
  if (unshare(CLONE_NEWPID) != 0) return false;
  const pid_t first = fork();
  if (first != 0) {
    waitpid(first, nullptr, 0);
    return true;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (const pid_t rank = fork(); rank != 0) {  // the namespace lives as long as its first process
    waitpid(rank, nullptr, 0);
    for (;;) pause();
  }
  body();
  _exit(0);
}

class ForkedChildren : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { with_keys(GetParam().transport); }

  // Rounds until one fails. Rank 1 ends after its third: killed, or closed in good order.
  void rank(Rank me, const Reporter& parent, bool killed, const std::vector<bool>& children) {
    Launch launch;
    launch.rank = me;
    launch.world = 2;
    launch.file = scratch_.path();
    Result<std::unique_ptr<Transport>> t =
        open_transport(with_keys(GetParam().transport), connect_options(launch));
    if (!t.ok()) return parent.say("not open: " + t.status().what());
    Result<std::unique_ptr<Session>> session =
        Session::open(std::move(*t), {.codec = "fp32", .timeout = 120s, .patience = 120s});
    if (!session.ok()) return parent.say("not open: " + session.status().what());
    std::vector<float> values(100'000, 1.0F);
    const Tensor tensors[] = {{.key = "a", .data = values.data(), .n = values.size()}};
    for (int round = 0;; ++round) {
      if (round == 1)  // by now data connections stand
        for (const bool by_libc : children) parent.say(fmt::format("child {}", sleeping_child(by_libc)));
      if (round == 3 && me == 1) {
        if (killed) raise(SIGKILL);
        break;
      }
      const Result<Ticket> ticket = (*session)->sync(tensors);
      Status s = ticket.status();
      if (s.ok()) s = (*session)->wait(*ticket);
      if (s.ok()) s = (*session)->commit();
      if (s.ok()) continue;
      parent.say(fmt::format("trouble {} {} {}", name(s.code()), s.peer(), s.what()));
      break;
    }
    session->reset();
    parent.say("closed");
  }

  void ends_well(bool killed, const std::vector<bool>& of_survivor, const std::vector<bool>& of_other) {
    if (GetParam().apart && geteuid() != 0) GTEST_SKIP() << "only root makes a pid namespace";
    Processes ranks(2, [&](Rank me, const Reporter& parent) {
      const auto body = [&] { rank(me, parent, killed, me == 0 ? of_survivor : of_other); };
      if (me == 0 || !GetParam().apart)
        body();
      else if (!apart(body))
        parent.say("no namespace");
    });
    std::vector<pid_t> children;
    std::string line = ranks.line(0, kPatience);
    for (; line.starts_with("child "); line = ranks.line(0, kPatience))
      children.push_back(std::stoi(line.substr(6)));
    EXPECT_TRUE(line.starts_with("trouble peer_lost 1 ")) << line;
    EXPECT_EQ(ranks.line(0, kPatience), "closed");
    if (!GetParam().apart)  // their numbers are those of this namespace
      for (line = ranks.line(1, 1s); line.starts_with("child "); line = ranks.line(1, 1s))
        children.push_back(std::stoi(line.substr(6)));
    for (const pid_t child : children) kill(child, SIGKILL);
  }

  const Scratch scratch_;
};

TEST_P(ForkedChildren, DoNotHideAKilledRank) { ends_well(true, {}, {true}); }
TEST_P(ForkedChildren, DoNotDisturbASurvivor) { ends_well(true, {true, true, false}, {}); }
TEST_P(ForkedChildren, DoNotHideAClosedRank) { ends_well(false, {}, {true, true}); }
TEST_P(ForkedChildren, OfTheRankThatStays) { ends_well(false, {true, false}, {true}); }

std::string title(const ::testing::TestParamInfo<Case>& one) {
  return in_a_name(one.param.transport) + (one.param.apart ? "_apart" : "");
}

INSTANTIATE_TEST_SUITE_P(All, ForkedChildren, ::testing::ValuesIn(cases()), title);

}  // namespace
}  // namespace tithe::testing
