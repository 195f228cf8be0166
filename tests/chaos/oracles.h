// SPDX-License-Identifier: Apache-2.0
#pragma once
// The properties of a run, each with a name. A failure names the violated one.
//
//   returns    every call ends within the bound that follows from the timeout
//   sound      without a fault that ends a job, no rank fails
//   named      a survivor names the faulty rank, with the matching code
//   agreed     survivors that can communicate report the same
//   link       likewise for all ranks, if messages from one rank to another, or between two ranks, are lost
//   committed  no rank commits a round that a reachable rank reports as failed
//   identity   all ranks have the same result
//   ledger     gradients + residuals before == result + residuals after, over all ranks
//   repeat     delays, scheduling, lanes and restarts change no bit
//   honest     a non-finite value on one rank gives NaN on all, and the round leaves no residual
//   finite     a round of finite values has finite results and residuals, or is dropped
//   saved      a state can be saved after any event, and contains the last commit
//   continues  a job restored from such states continues
//   together   all ranks switch to new choices before the same round, or none does
//   lent       no memory is passed for a frame while a pending operation uses it
//   driver     a GPU's driver gets only valid calls, and all its objects are released. A failing driver call changes no
//              bit, or ends the session: then the others name the rank, and its state is saved or has an error
#include <functional>
#include <string>
#include <vector>

#include "chaos/world.h"

namespace tithe::chaos {

struct Violation {
  std::string oracle, text;
};

class Oracles {
 public:
  // baseline: the same scenario without delays, lanes and faults.
  Oracles(const Scenario& scenario, const RunRecord& baseline) : scenario_(scenario), baseline_(baseline) {}

  // Judges the rounds [from, to) of a run with this fault.
  void judge(const RunRecord& run_record, const Fault& fault, int from, int to);
  // Judges a run that started from states of `before`.
  void judge_restored(const RunRecord& run_record, const RunRecord& before, int from, int to);
  void judge_baseline();

  const std::vector<Violation>& violations() const { return violations_; }

 private:
  void fails(std::string oracle, std::string text) {
    violations_.push_back({std::move(oracle), std::move(text)});
  }
  void judge_ends(const RunRecord& run_record, const Fault& fault, int to);
  void judge_blame(const RunRecord& run_record, const Fault& fault, Rank r);
  void judge_values(const RunRecord& run_record, int from, int to);
  void judge_round(const RunRecord& run_record, int round);
  void judge_states(const RunRecord& run_record, const Fault& fault);
  // True if this rank has had the same choices in all rounds up to this one as in the baseline run: then its bits are
  // those.
  bool matches_baseline(const RunRecord& run_record, Rank r, int round) const;
  const RankRound& record(const RunRecord& c, Rank r, int round) const {
    return c.rounds[static_cast<std::size_t>(r)][static_cast<std::size_t>(round)];
  }

  const Scenario& scenario_;
  const RunRecord& baseline_;
  const RunRecord* before_ = nullptr;  // the run whose states a restored run started from ...
  int began_ = 0;                      // ... in this round
  std::vector<Violation> violations_;
};

// True if rank r is among the survivors that must agree.
bool survives(const RunRecord& run_record, const Fault& fault, Rank r);

}  // namespace tithe::chaos
