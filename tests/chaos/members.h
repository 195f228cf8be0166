// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs that go on: people who begin together or come later, some of whom are lost and come back. Each does what a
// training loop with tithe.Membership does: rounds, and after a failure, or where somebody waits, a rejoin on a board
// and Session::reform. A seed draws all of it; judge() says what must be true of the outcome.
//
//   one        of a step two worlds never both go on: who has committed it in an earlier epoch than others did has
//              committed nothing since; and of an epoch there is one set of members
//   identity   members of a round have the same result, and those who are there to the end the same sums
//   kept       who goes on has between two rounds what it had left unsent; who is new has nothing
//   ledger     gradients + residuals before == result + residuals after, over the members of the round
//   booked     who was lost with what it had left unsent is counted by all that went on without it, and once
//   goes_on    where more than half have met with no fault, they do all steps
//   soon       after kills at one moment the next round is committed within a second
//   says_why   who does not go on says why
//   returns    every world ends
#include "chaos/oracles.h"
#include "chaos/plot.h"

namespace tithe::chaos {

// Where in the course of a reform a rank may be struck, behind the places of a round; Fault::round is which reform.
enum ReformStep : int { kComes = kSteps, kCancelled, kMet, kOpened, kReformed, kMemberSteps };

struct Someone {
  std::string name;
  Nanoseconds comes_at{-1};  // later, as one who is new; below 0: a member of the first epoch
  bool returns = false;      // should the others go on without it, it comes as one who is new
};

struct Job {
  Plot plot;  // what a round is; its fault is none
  std::vector<Someone> people;
  std::size_t begin = 0;  // so many of them are the first members, in their order
  Network::Faults faults;
  int min_world = 1, max_world = 1 << 16;
  Nanoseconds between{0};   // two rounds
  Nanoseconds board_ms{5};  // how long a look at the board may take
  bool board_forks = true;  // halves have boards of their own; else those that do not hear person 0 have none
  std::vector<std::uint64_t> hosts;

  SessionOptions options(std::vector<std::string> members, std::uint64_t epoch) const;
  // A step that is done anew has other data: what comes late of an earlier epoch is not what is due.
  std::vector<float> gradient(std::size_t tensor, int person, std::uint64_t epoch, int step) const {
    return plot.gradient(tensor, person, step + 1000 * static_cast<int>(epoch));
  }
};

Job draw_job(std::uint64_t seed);
std::string account(const Job& job);

// A round that somebody has committed.
struct Deed {
  std::uint64_t epoch = 0;
  std::vector<int> members;  // people, by rank
  int step = 0, life = 0;    // life: how often this person had come before
  testing::Values before = {}, result = {}, after = {};
  bool dropped = false;
  std::uint64_t lost = 0;  // people of its circles that were not in the next one
  std::uint64_t ranks_lost = 0;
  Time at = {};
};

struct Fate {
  std::vector<Deed> deeds;
  testing::Values sums;  // of all steps, what parameters would be
  bool opened = false, finished = false, dead = false;
  int step = 0;
  Status status;  // of who does not go on
};

struct Story {
  std::vector<Fate> fates;  // by person
  std::vector<char> struck;
  std::vector<Time> struck_at;
  std::vector<Counts> counts;
  bool hung = false;
  std::string clash;
};

Story play(const Job& job);
std::string account(const Story& story);
std::vector<Breach> judge(const Job& job, const Story& story);

}  // namespace tithe::chaos
