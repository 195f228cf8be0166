// SPDX-License-Identifier: Apache-2.0
#include "sim/cores.h"

#include <algorithm>

#include "tithe/status.h"

namespace tithe::sim {
namespace {

constexpr Seconds kNothing = 1e-12;  // what rounding leaves of work that has ended

}  // namespace

double Cores::rate() const {
  return work_.empty()
             ? 0
             : std::min(1.0, static_cast<double>(cores_) / (alike_ * static_cast<double>(work_.size())));
}

void Cores::start(Seconds work, std::uint64_t tag, Seconds now) {
  TITHE_ASSERT(work >= 0);
  move(now);
  work_.push_back({tag, work});
  look_ahead();
}

std::span<const std::uint64_t> Cores::advance(Seconds now) {
  const bool at_end = now >= end_;
  TITHE_ASSERT(now <= end_);
  Seconds least = kNever;
  for (const Work& w : work_) least = std::min(least, w.left);
  move(now);
  ended_.clear();
  // Whoever was next ends at its end, whatever rounding says.
  const Seconds over = at_end ? std::max(kNothing, least * 1e-12) : kNothing;
  std::erase_if(work_, [&](const Work& w) {
    if (w.left > over) return false;
    ended_.push_back(w.tag);
    return true;
  });
  look_ahead();
  return ended_;
}

void Cores::move(Seconds now) {
  TITHE_ASSERT(now >= now_);
  const Seconds done = (now - now_) * rate();
  now_ = now;
  for (Work& w : work_) {
    used_ += std::min(w.left, done);
    w.left = std::max(0.0, w.left - done);
  }
}

void Cores::look_ahead() {
  end_ = kNever;
  for (const Work& w : work_) end_ = std::min(end_, now_ + w.left / rate());
}

}  // namespace tithe::sim
