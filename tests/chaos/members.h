// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elastic jobs: processes that start together or join later; some of them are lost and return. Each does the work of a
// training loop with tithe.Membership: rounds, and after a failure, or if someone waits to join, a rejoin on a board
// and Session::reform. A seed draws all parameters; judge() checks the outcome:
//
//   one        two worlds never both continue from a step: a process that committed the step in an earlier epoch than
//              others has committed nothing since; and an epoch has one set of members
//   identity   the members of a round have the same result, and processes that stay to the end the same sums
//   kept       a process that continues has an unchanged residual between two rounds; a new one has none
//   ledger     gradients + residuals before == result + residuals after, over the members of the round
//   counted    the residual of a lost process is counted once, by all processes that continue
//   continues  if more than half of the processes meet no fault, these finish all steps
//   prompt     after simultaneous kills the next round is committed within a second
//   reports    a process that stops has a Status with the reason
//   returns    every world ends
#include "chaos/oracles.h"
#include "chaos/scenario.h"

namespace tithe::chaos {

// Points in a reform where a rank can be struck, numbered after the points of a round; Fault::round selects the
// reform.
enum ReformStep : int { kJoins = kSteps, kCancelled, kAgreed, kOpened, kReformed, kMemberSteps };

struct MemberSpec {
  std::string name;
  Nanoseconds joins_at{-1};  // time of joining as a new process; below 0: a member of the first epoch
  bool returns = false;      // if the others continue without it, it joins again as a new process
};

struct Job {
  Scenario scenario;  // the parameters of a round; its own fault is kNone
  std::vector<MemberSpec> processes;
  std::size_t begin = 0;  // the first members: this many, in order
  Network::Faults faults;
  int min_world = 1, max_world = 1 << 16;
  Nanoseconds between{0};   // two rounds
  Nanoseconds board_ms{5};  // time of one access to the board
  bool board_forks = true;  // each half has a copy of the board; else the half without process 0 has none
  std::vector<std::uint64_t> hosts;

  SessionOptions options(std::vector<std::string> members, std::uint64_t epoch) const;
  // A repeated step has other data, so that a late frame of an earlier epoch is not valid by chance.
  std::vector<float> gradient(std::size_t tensor, int process, std::uint64_t epoch, int step) const {
    return scenario.gradient(tensor, process, step + 1000 * static_cast<int>(epoch));
  }
};

Job draw_job(std::uint64_t seed);
std::string account(const Job& job);

// A round that a process committed.
struct CommittedRound {
  std::uint64_t epoch = 0;
  std::vector<int> members;  // processes, by rank
  int step = 0, life = 0;    // life: number of earlier joins of this process
  testing::Values before = {}, result = {}, after = {};
  bool dropped = false;
  std::uint64_t lost = 0;  // processes of its groups that were not in the next one
  std::uint64_t ranks_lost = 0;
  Time at = {};
};

struct MemberOutcome {
  std::vector<CommittedRound> committed_rounds;
  testing::Values sums;  // over all steps; represents the model parameters
  bool opened = false, finished = false, dead = false;
  int step = 0;
  Status status;  // the error of a process that stops
};

struct JobOutcome {
  std::vector<MemberOutcome> outcomes;  // by process
  std::vector<char> struck;
  std::vector<Time> struck_at;
  std::vector<Counts> counts;
  bool hung = false;
  std::string clash;
};

JobOutcome play(const Job& job);
std::string account(const JobOutcome& result);
std::vector<Violation> judge(const Job& job, const JobOutcome& result);

}  // namespace tithe::chaos
