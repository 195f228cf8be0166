// SPDX-License-Identifier: Apache-2.0
// A ring of the last kRounds times per bucket. Invariant: ready_ has one ring per bucket of before_, and its first
// min(rounds_, kRounds) entries are valid.
#include "advisor/auto/step_measurements.h"

#include <algorithm>

#include "base/quantile.h"

namespace tithe::automatic {
namespace {

constexpr std::size_t kMaxLayouts = 64;  // if there are more, old layouts are dropped

}  // namespace

void StepMeasurements::bucket_submitted(std::uint64_t layout, std::span<const Tensor> bucket,
                                        std::int64_t at_ns) {
  if (const auto [at, is_new] = layouts_.try_emplace(layout); is_new)
    for (const Tensor& t : bucket)
      at->second.push_back({std::string(t.key), t.n, t.row != 0 ? t.row : t.n, 0});
  now_.push_back({layout, at_ns});
}

StepMeasurements::Step StepMeasurements::step_over(std::int64_t at_ns) {
  Step out{.seconds = 1e-9 * static_cast<double>(at_ns - began_ns_),
           .same = std::equal(now_.begin(), now_.end(), before_.begin(), before_.end(),
                              [](const BucketArrival& a, std::uint64_t b) { return a.layout == b; }),
           .whole = began_ns_ >= 0};
  if (!out.same) {
    rounds_ = 0;
    before_.clear();
    for (const BucketArrival& h : now_) before_.push_back(h.layout);
    if (layouts_.size() > kMaxLayouts)
      std::erase_if(layouts_, [&](const auto& known) {
        return std::find(before_.begin(), before_.end(), known.first) == before_.end();
      });
    ready_.assign(now_.size(), std::vector<Seconds>(kRounds));
  }
  if (out.whole) {
    for (std::size_t b = 0; b < now_.size(); ++b)
      ready_[b][rounds_ % kRounds] = 1e-9 * static_cast<double>(now_[b].at_ns - began_ns_);
    ++rounds_;
  }
  began_ns_ = at_ns;
  now_.clear();
  return out;
}

planner::Job StepMeasurements::job(int lanes) const {
  planner::Job job;
  job.lanes = std::max(1, lanes);
  const std::size_t known = std::min(rounds_, kRounds);
  if (known == 0) return job;
  for (std::size_t b = 0; b < before_.size(); ++b) {
    const auto end = ready_[b].begin() + static_cast<std::ptrdiff_t>(known);
    // A bucket is not ready before the bucket submitted before it.
    job.compute = std::max(job.compute, median({ready_[b].begin(), end}));
    for (planner::JobTensor t : layouts_.at(before_[b])) {
      t.ready = job.compute;
      job.tensors.push_back(std::move(t));
    }
    job.bucket_ends.push_back(job.tensors.size());
  }
  return job;
}

}  // namespace tithe::automatic
