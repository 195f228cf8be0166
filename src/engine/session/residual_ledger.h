// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ResidualLedger owns the state of every tensor and the sums of all residual values that were not sent: dropped
// because they were too large, removed by decay, or lost with a rank.
//
//   dropped   a residual that no later round could send is dropped as a whole, counted and logged
//   alone     a decision to drop depends on this rank's residuals, the round number and its result, so a job that
//             resumes from a state decides the same, and results of other ranks do not depend on it
//   undone    undo() reverses the sums of the last committed round
//
// Threads  none: under the session's mutex.
#include <string>
#include <vector>

#include "feedback/lost_rank_residuals.h"
#include "feedback/residual_store.h"
#include "tithe/choices.h"
#include "tithe/session.h"

namespace tithe::engine {

// The keys of tensors, with their numbers of values.
using TensorSizes = std::vector<std::pair<std::string, std::size_t>>;
TensorSizes sizes_of(const feedback::ResidualStore::Map& states);

class ResidualLedger {
 public:
  explicit ResidualLedger(Rank me) : me_(me) {}
  feedback::ResidualStore& store() { return store_; }
  const feedback::ResidualStore& store() const { return store_; }
  // Not ok: a residual of this rank cannot be sent.
  const Status& broken() const { return broken_; }
  const feedback::LostResiduals& lost() const { return lost_; }

  // Copies the residual of a tensor. kInvalid: the key is unknown, or has another number of values.
  Status read(std::string_view key, std::span<float> out) const;
  // Replaces all states. kInvalid if a tensor has another number of values; nothing changes then.
  Status restore(feedback::ResidualStore::Map&& saved);
  // Adds the gradient of a round that ran without it to the residual. If the sum is not finite, drops the gradient and
  // returns a message.
  std::string add_unsent(std::string_view key, std::span<const float> gradient, std::uint64_t round);
  // A round is committed; decay removed `decayed`.
  void commit(double decayed);
  // Call it after commit(). round: rounds committed since the job began. excessive: the result of the last round had
  // a value beyond kMaxResidual. Returns a message for each dropped residual.
  std::vector<std::string> drop_excessive(std::uint64_t round, bool finite, bool excessive);
  // Looks for residuals that are not finite. From then on broken() is not ok.
  Status check_finite(const Choices& choices);
  void undo();

  // Residuals of lost ranks, discarded by this rank; then ranks whose residuals are unknown.
  void discard_lost(const feedback::LostResiduals& residuals);
  void lose_unknown(std::size_t ranks) { ranks_lost_ += ranks; }

  void report(SessionStats& stats) const;

 private:
  struct Sums {
    std::uint64_t dropped = 0;  // values
    double sum_dropped = 0;
    double sum_decayed = 0;
    void drop(std::uint64_t values, double sum) {
      dropped += values;
      sum_dropped += sum;
    }
  };

  const Rank me_;
  feedback::ResidualStore store_;
  Status broken_;
  Sums sums_, last_;  // of all rounds; of the last committed round
  std::uint64_t ranks_lost_ = 0;
  feedback::LostResiduals lost_;
};

}  // namespace tithe::engine
