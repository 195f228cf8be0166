// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measurements of the training step, from a session's rounds: which tensors are submitted together, when, and how
// long a step takes. A step begins when the previous one is committed, so the compute time is the time from then to the
// last bucket.
//
//   - recent: values are medians over the last kRounds equal rounds.
//   - alike: rounds are equal if they submit the same buckets in the same order; the count restarts otherwise.
//   - steady: once a layout is known, a round allocates no memory.
#include <cstdint>
#include <map>
#include <span>

#include "advisor/auto/plan_controller.h"
#include "advisor/planner/plan_query.h"
#include "tithe/session.h"

namespace tithe::automatic {

class StepMeasurements {
 public:
  static constexpr std::size_t kRounds = 15;
  struct Step {
    Seconds seconds = 0;
    bool same = false;   // the same buckets as in the previous round
    bool whole = false;  // its start is known
  };
  // `layout`: a hash of keys, sizes and types, in order.
  void bucket_submitted(std::uint64_t layout, std::span<const Tensor> bucket, std::int64_t at_ns);
  Step step_over(std::int64_t at_ns);
  // Drops all medians, because the rules have changed.
  void reset() { rounds_ = 0; }

  // The job of the equal rounds; without tensors if there were none.
  planner::Job job(int lanes) const;

 private:
  struct BucketArrival {
    std::uint64_t layout = 0;
    std::int64_t at_ns = 0;
  };
  std::map<std::uint64_t, std::vector<planner::JobTensor>> layouts_;
  std::vector<BucketArrival> now_;           // this round's buckets, in order
  std::vector<std::uint64_t> before_;        // of the previous round
  std::vector<std::vector<Seconds>> ready_;  // by bucket: a ring of the last rounds
  std::size_t rounds_ = 0;                   // number of equal rounds so far
  std::int64_t began_ns_ = -1;
};

}  // namespace tithe::automatic
