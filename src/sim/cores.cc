// SPDX-License-Identifier: Apache-2.0
#include "sim/cores.h"

#include <algorithm>
#include <cmath>

#include "tithe/status.h"

namespace tithe::sim {
namespace {

constexpr Seconds kNothing = 1e-12;  // what rounding leaves of work that has ended

}  // namespace

double Cores::rate() const {
  if (slice_ > 0) return 1;
  return work_.empty()
             ? 0
             : std::min(1.0, static_cast<double>(cores_) / (alike_ * static_cast<double>(work_.size())));
}

void Cores::start(Seconds work, std::uint64_t tag, Seconds now) {
  TITHE_ASSERT(work >= 0);
  move(now);
  looked_ = false;
  if (slice_ <= 0) {
    work_.push_back({tag, work});
    return;
  }
  const auto same = std::find_if(over_.begin(), over_.end(), [&](const Work& w) { return w.tag == tag; });
  if (same == over_.end()) {
    fresh_.push_back({tag, work});
    return;
  }
  work_.push_back({tag, work, same->slice_end});
  over_.erase(same);
}

Seconds Cores::next_end() {
  if (!looked_) {
    dispatch();
    look_ahead();
  }
  return end_;
}

std::span<const std::uint64_t> Cores::advance(Seconds now) {
  const bool at_end = now >= next_end();
  TITHE_ASSERT(now <= end_);
  Seconds least = kNever;
  for (const Work& w : work_) least = std::min(least, w.left);
  // Whoever was next ends at its end, whatever rounding says.
  const bool work_ends = at_end && now_ + least / rate() <= end_;
  move(now);
  ended_.clear();
  const Seconds over = work_ends ? std::max(kNothing, least * 1e-12) : kNothing;
  std::erase_if(work_, [&](const Work& w) {
    if (w.left > over) return false;
    ended_.push_back(w.tag);
    over_.push_back(w);
    return true;
  });
  looked_ = false;
  return ended_;
}

// Who waits takes the cores that are free; who has had its slice gives way, if somebody still waits.
void Cores::dispatch() {
  over_.clear();
  if (slice_ <= 0) return;
  const auto fill = [&] {
    while (work_.size() < static_cast<std::size_t>(cores_) && waits()) {
      std::deque<Work>& from = fresh_.empty() ? later_ : fresh_;
      work_.push_back(from.front());
      work_.back().slice_end = now_ + slice_;
      from.pop_front();
    }
  };
  fill();
  const bool others = waits();
  std::erase_if(work_, [&](Work& w) {
    if (w.slice_end > now_ + kNothing) return false;
    if (others)
      later_.push_back(w);
    else  // it goes on, slice after slice
      w.slice_end += slice_ * (1 + std::floor((now_ + kNothing - w.slice_end) / slice_));
    return others;
  });
  fill();
}

void Cores::move(Seconds now) {
  TITHE_ASSERT(now >= now_);
  if (now <= now_) return;
  if (!looked_) dispatch();
  const Seconds done = (now - now_) * rate();
  now_ = now;
  for (Work& w : work_) {
    used_ += std::min(w.left, done);
    w.left = std::max(0.0, w.left - done);
  }
}

void Cores::look_ahead() {
  looked_ = true;
  end_ = kNever;
  for (const Work& w : work_) end_ = std::min(end_, now_ + w.left / rate());
  if (waits())
    for (const Work& w : work_) end_ = std::min(end_, w.slice_end);
}

}  // namespace tithe::sim
