// SPDX-License-Identifier: Apache-2.0
#pragma once
// The promises that a course must keep, each by name. A failure says which one broke.
//
//   returns    every call ends: in the bound that the timeout gives, and nothing hangs
//   sound      without a fault that ends a job, nobody fails
//   named      a survivor names the rank that is at fault, and with the code that fits
//   agreed     survivors that hear each other say the same
//   link       the same of all ranks, where what one rank sends to one other is lost, or what two send to each other
//   committed  no rank commits a round that another one, which it hears, reports as failed
//   identity   all ranks have the same result
//   ledger     gradients + residuals before == result + residuals after, over all ranks
//   repeat     delays, turns, lanes and restarts change no bit
//   honest     what is not finite on one rank is NaN on all, and nothing is kept of that round
//   finite     a round of finite values leaves finite results and residuals, or is dropped
//   saved      a state can be saved after whatever happened, and holds the last commit
//   goes_on    a job restored from such states goes on
//   together   all ranks take other choices before the same round, or none does
//   lent       no memory is handed over for a frame while an operation under way has it
//   driver     a GPU's driver is told nothing wrong, and gets back all that it gave. A call that it refuses changes no
//              bit, or ends the session: then the others name the rank, and its state is there or says why not
#include <functional>
#include <string>
#include <vector>

#include "chaos/world.h"

namespace tithe::chaos {

struct Breach {
  std::string oracle, text;
};

class Oracles {
 public:
  // calm: the same plot without delays, lanes and faults.
  Oracles(const Plot& plot, const Course& calm) : plot_(plot), calm_(calm) {}

  // The rounds [from, to) of a course with this fault.
  void judge(const Course& course, const Fault& fault, int from, int to);
  // A course that began from states of `before`.
  void judge_restored(const Course& course, const Course& before, int from, int to);
  void judge_calm();

  const std::vector<Breach>& breaches() const { return breaches_; }

 private:
  void fails(std::string oracle, std::string text) {
    breaches_.push_back({std::move(oracle), std::move(text)});
  }
  void judge_ends(const Course& course, const Fault& fault, int to);
  void judge_blame(const Course& course, const Fault& fault, Rank r);
  void judge_values(const Course& course, int from, int to);
  void judge_round(const Course& course, int round);
  void judge_states(const Course& course, const Fault& fault);
  // True if this rank has had the same choices in all rounds up to this one as in the calm run: then its bits are
  // those.
  bool as_calm(const Course& course, Rank r, int round) const;
  const RankRound& record(const Course& c, Rank r, int round) const {
    return c.rounds[static_cast<std::size_t>(r)][static_cast<std::size_t>(round)];
  }

  const Plot& plot_;
  const Course& calm_;
  const Course* before_ = nullptr;  // whose states a restored course began from ...
  int began_ = 0;                   // ... in this round
  std::vector<Breach> breaches_;
};

// True if rank r takes part in what survivors agree on.
bool survives(const Course& course, const Fault& fault, Rank r);

}  // namespace tithe::chaos
