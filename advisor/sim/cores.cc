// SPDX-License-Identifier: Apache-2.0
// Two models. With a slice, each core runs one thread at a time and threads queue per core. Without one, processor
// sharing: had_ is the time that each running thread has received, so a thread ends when had_ reaches its `until`, and
// a heap by `until` gives the next end.
#include "advisor/sim/cores.h"

#include <algorithm>
#include <cmath>

#include "tithe/status.h"

namespace tithe::sim {
namespace {

constexpr Seconds kNothing = 1e-12;  // rounding error of finished work
constexpr double kRounding = 1e-14;  // relative, of had_

}  // namespace

Cores::Cores(int cores, int represented, Seconds slice, Seconds move)
    : cores_(cores),
      represented_(represented),
      slice_(represented == 1 ? slice : 0),
      move_(move),
      core_(slice_ > 0 ? static_cast<std::size_t>(cores) : 0) {}

double Cores::rate() const {
  if (slice_ > 0) return 1;
  return sharing_.empty() ? 0
                          : std::min(1.0, static_cast<double>(cores_) /
                                              (represented_ * static_cast<double>(sharing_.size())));
}

void Cores::start(Seconds work, std::uint64_t tag, Seconds now) {
  TITHE_ASSERT(work >= 0);
  pass(now);
  dispatched_ = false;
  if (slice_ <= 0) {
    if (sharing_.empty()) had_ = 0;  // keeps sums small and exact
    sharing_.push({had_ + work, order_++, tag});
    return;
  }
  const auto same = std::find_if(over_.begin(), over_.end(), [&](const Work& w) { return w.tag == tag; });
  if (same == over_.end()) {
    arrived_.push_back({tag, work});
    return;
  }
  core_[same->core].busy = true;
  work_.push_back({tag, work, same->slice_end, now, same->core});
  over_.erase(same);
}

Seconds Cores::next_end() {
  if (!dispatched_) {
    dispatch();
    plan_dispatch();
  }
  return end_;
}

std::span<const std::uint64_t> Cores::advance(Seconds now) {
  const bool at_end = now >= next_end();
  TITHE_ASSERT(now <= end_);
  ended_.clear();
  if (slice_ <= 0) {
    pass(now);
    // If the clock has reached the computed end, the next work ends in spite of rounding.
    if (at_end && !sharing_.empty()) had_ = std::max(had_, sharing_.top().until);
    while (!sharing_.empty() && sharing_.top().until - had_ <= kNothing + had_ * kRounding) {
      ended_.push_back(sharing_.top().tag);
      sharing_.pop();
    }
    dispatched_ = false;
    return ended_;
  }
  Seconds least = kNever;
  for (const Work& w : work_) least = std::min(least, w.left);
  // As above.
  const bool work_ends = at_end && !work_.empty() && now_ + least / rate() <= end_;
  pass(now);
  const Seconds over = work_ends ? std::max(kNothing, least * 1e-12) : kNothing;
  std::erase_if(work_, [&](const Work& w) {
    if (w.left > over) return false;
    ended_.push_back(w.tag);
    over_.push_back(w);
    core_[w.core].busy = false;
    return true;
  });
  dispatched_ = false;
  return ended_;
}

void Cores::run(Work work, std::size_t core) {
  work.core = core;
  work.slice_end = now_ + slice_;
  core_[core].busy = true;
  work_.push_back(work);
}

void Cores::next_of(std::size_t core) {
  Core& c = core_[core];
  if (c.busy || c.waiting() == 0) return;
  std::deque<Work>& from = c.fresh.empty() ? c.later : c.fresh;
  run(from.front(), core);
  from.pop_front();
}

void Cores::place(const Work& work) {
  std::size_t best = 0;
  const auto load = [&](std::size_t k) { return core_[k].waiting() + (core_[k].busy ? 1 : 0); };
  for (std::size_t k = 1; k < core_.size(); ++k)
    if (load(k) < load(best)) best = k;
  if (load(best) == 0) return run(work, best);
  core_[best].fresh.push_back(work);
  core_[best].fresh.back().since = now_;
}

// First, waiting work takes its core if the core is free. Then work whose slice is over yields if other work waits for
// its core. Last, free cores take over work that has waited longer than move_.
void Cores::dispatch() {
  over_.clear();
  if (slice_ <= 0) return;
  for (std::size_t k = 0; k < core_.size(); ++k) next_of(k);
  for (const Work& w : arrived_) place(w);
  arrived_.clear();
  std::erase_if(work_, [&](Work& w) {
    if (w.slice_end > now_ + kNothing) return false;
    Core& c = core_[w.core];
    if (c.waiting() == 0) {  // it continues, slice after slice
      w.slice_end += slice_ * (1 + std::floor((now_ + kNothing - w.slice_end) / slice_));
      return false;
    }
    c.later.push_back(w);
    c.later.back().since = now_;
    c.busy = false;
    return true;
  });
  for (std::size_t k = 0; k < core_.size(); ++k) next_of(k);
  take_over();
}

void Cores::take_over() {
  for (std::size_t k = 0; k < core_.size(); ++k) {
    if (core_[k].busy) continue;
    std::deque<Work>* from = nullptr;
    for (Core& c : core_)
      for (std::deque<Work>* waiting : {&c.fresh, &c.later})
        if (!waiting->empty() && waiting->front().since + move_ <= now_ + kNothing &&
            (from == nullptr || waiting->front().since < from->front().since))
          from = waiting;
    if (from == nullptr) return;
    run(from->front(), k);
    from->pop_front();
  }
}

void Cores::pass(Seconds now) {
  TITHE_ASSERT(now >= now_);
  if (now <= now_) return;
  if (slice_ <= 0) {
    const Seconds each = (now - now_) * rate();
    now_ = now;
    had_ += each;
    used_ += each * static_cast<double>(sharing_.size());
    return;
  }
  if (!dispatched_) dispatch();
  const Seconds done = (now - now_) * rate();
  now_ = now;
  for (Work& w : work_) {
    used_ += std::min(w.left, done);
    w.left = std::max(0.0, w.left - done);
  }
}

void Cores::plan_dispatch() {
  dispatched_ = true;
  end_ = kNever;
  if (slice_ <= 0) {
    if (!sharing_.empty()) end_ = now_ + std::max(0.0, sharing_.top().until - had_) / rate();
    return;
  }
  for (const Work& w : work_) {
    end_ = std::min(end_, now_ + w.left / rate());
    if (core_[w.core].waiting() > 0) end_ = std::min(end_, w.slice_end);
  }
  if (std::all_of(core_.begin(), core_.end(), [](const Core& c) { return c.busy; })) return;
  for (const Core& c : core_)
    for (const std::deque<Work>* waiting : {&c.fresh, &c.later})
      if (!waiting->empty()) end_ = std::min(end_, std::max(now_, waiting->front().since + move_));
}

}  // namespace tithe::sim
