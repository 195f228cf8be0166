// SPDX-License-Identifier: Apache-2.0
#pragma once
// The facts that a session's rounds tell of a training step: which tensors are handed over together and when, and what
// a step takes. A step begins where the one before was committed, so computing is what lies between that and the last
// bucket.
//
//   recent    medians over the last kRounds alike
//   alike     rounds that hand over the same buckets in the same order; where they do not, they are counted anew
//   steady    once a layout is known, a round allocates nothing
#include <cstdint>
#include <map>
#include <span>

#include "advice/auto/watch.h"
#include "advice/planner/plan_query.h"
#include "tithe/session.h"

namespace tithe::automatic {

class Facts {
 public:
  static constexpr std::size_t kRounds = 15;
  struct Step {
    Seconds seconds = 0;
    bool same = false;   // buckets as in the round before
    bool whole = false;  // its beginning is known
  };
  // `layout`: of keys, sizes and types, in order.
  void handed(std::uint64_t layout, std::span<const Tensor> bucket, std::int64_t at_ns);
  Step over(std::int64_t at_ns);
  // No median reaches back over this: other rules are in force.
  void forget() { rounds_ = 0; }

  // The job of the rounds that were alike; no tensors where there was none.
  planner::Job job(int lanes) const;

 private:
  struct BucketArrival {
    std::uint64_t layout = 0;
    std::int64_t at_ns = 0;
  };
  std::map<std::uint64_t, std::vector<planner::JobTensor>> layouts_;
  std::vector<BucketArrival> now_;           // this round's buckets, in order
  std::vector<std::uint64_t> before_;        // of the last one
  std::vector<std::vector<Seconds>> ready_;  // by bucket: of the last rounds, a ring
  std::size_t rounds_ = 0;                   // alike, so far
  std::int64_t began_ns_ = -1;
};

}  // namespace tithe::automatic
