// SPDX-License-Identifier: Apache-2.0
#include "sim/cores.h"

#include <algorithm>

#include "tithe/status.h"

namespace tithe::sim {
namespace {

constexpr Seconds kNothing = 1e-12;  // what rounding leaves of work that has ended
constexpr double kRounding = 1e-14;  // of what all work has had

}  // namespace

double Cores::rate() const {
  return work_.empty()
             ? 0
             : std::min(1.0, static_cast<double>(cores_) / (alike_ * static_cast<double>(work_.size())));
}

void Cores::start(Seconds work, std::uint64_t tag, Seconds now) {
  TITHE_ASSERT(work >= 0);
  move(now);
  if (work_.empty()) had_ = 0;  // so that sums stay small, and exact
  work_.push({had_ + work, order_++, tag});
  look_ahead();
}

std::span<const std::uint64_t> Cores::advance(Seconds now) {
  const bool at_end = now >= end_;
  TITHE_ASSERT(now <= end_);
  move(now);
  ended_.clear();
  // Whoever was next ends at its end, whatever rounding says.
  if (at_end && !work_.empty()) had_ = std::max(had_, work_.top().until);
  while (!work_.empty() && work_.top().until - had_ <= kNothing + had_ * kRounding) {
    ended_.push_back(work_.top().tag);
    work_.pop();
  }
  look_ahead();
  return ended_;
}

void Cores::move(Seconds now) {
  TITHE_ASSERT(now >= now_);
  const Seconds each = (now - now_) * rate();
  now_ = now;
  had_ += each;
  used_ += each * static_cast<double>(work_.size());
}

void Cores::look_ahead() {
  end_ = work_.empty() ? kNever : now_ + std::max(0.0, work_.top().until - had_) / rate();
}

}  // namespace tithe::sim
