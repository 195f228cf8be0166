// SPDX-License-Identifier: Apache-2.0
// The scheduler: selects the next rank to run and the next message to arrive, and advances time.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "chaos/network.h"
#include "chaos/threads.h"

namespace tithe::chaos {

bool Network::runnable(const Process& p) const {
  if (p.granted || p.away) return false;
  if (p.entering) return true;
  if (!p.polling || p.frozen_until > now_) return false;
  if (p.polls == nullptr) return p.deadline <= now_;
  return p.polls->woken || !p.polls->done.empty() || p.deadline <= now_;
}

std::vector<int> Network::runnable_processes() {
  std::vector<int> all;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const auto r = static_cast<int>((i + static_cast<std::size_t>(next_)) % processes_.size());
    if (runnable(at(r))) all.push_back(r);
  }
  return all;
}

bool Network::one_event() {
  std::vector<std::pair<Event, Channel>> events;
  for (auto& [number, group] : groups_)
    for (End& to : group.ends)
      if (!group.over)
        for (auto& [key, lane] : to.in)
          if (End& from = group.at(key.first); can_arrive(lane, from, to))
            events.push_back({{&lane, &from, &to, 0}, key.second});
  for (std::size_t i = 0; i < departures_.size(); ++i) {
    const Departure& d = departures_[i];
    if (d.at > now_ || cut(*d.who, *d.to)) continue;
    bool last = true;  // after its earlier messages
    for (auto& [key, lane] : d.to->in) last = last && (key.first != d.who->rank || lane.flying.empty());
    if (last) events.push_back({{nullptr, nullptr, nullptr, i}, 0});
  }
  if (events.empty()) return false;
  const auto& [event, channel] = events[conditions_.turns ? draw(events.size()) : 0];
  if (event.lane != nullptr) {
    arrive(*event.lane, *event.from, *event.to, channel);
  } else {
    const Departure d = departures_[event.departure];
    departures_.erase(departures_.begin() + static_cast<std::ptrdiff_t>(event.departure));
    notify(d);
  }
  return true;
}

bool Network::advance() {
  Time next = Time::max();
  const auto consider = [&](Time t) {
    if (t > now_) next = std::min(next, t);
  };
  for (const Process& p : processes_) {
    if (p.polling && p.frozen_until <= now_) consider(p.deadline);
    consider(p.frozen_until);
  }
  for (std::size_t k = 0; k < faults_.size(); ++k)
    if (faults_[k].heals && strikes_[k].struck) consider(strikes_[k].at + faults_[k].lasts);
  for (auto& [number, group] : groups_)
    for (End& to : group.ends)
      if (!group.over)
        for (auto& [key, lane] : to.in)
          if (!lane.flying.empty()) consider(lane.flying.front().until);
  for (const Departure& d : departures_) consider(d.at);
  if (next == Time::max()) return false;
  now_ = next;
  return true;
}

bool Network::all_away() const { return std::ranges::all_of(processes_, &Process::away); }

void Network::pass_time() {
  const bool moved = advance();
  if (hung_ && !moved) std::abort();  // not even errors end this
  if (!moved || (!hung_ && now_ - start_ > max_time_)) end_all();
}

void Network::grant(int process) {
  at(process).granted = true;
  at(process).entering = false;
  at(process).turn.notify_all();
}

// Called by the rank that stops running: selects an event or a rank, or advances time if there is neither.
void Network::schedule() {
  while (true) {
    if (std::ranges::any_of(processes_, &Process::granted)) return;
    const std::vector<int> ready = runnable_processes();
    if (!ready.empty() && (!conditions_.turns || draw(3) == 0 || !one_event())) {
      const int r = ready[conditions_.turns ? draw(ready.size()) : 0];
      next_ = (r + 1) % static_cast<int>(processes_.size());
      return grant(r);
    }
    if (!ready.empty() || one_event()) continue;
    if (all_away()) return;
    pass_time();
  }
}

// Likewise for ranks that run concurrently. Time advances when all of them sleep.
void Network::run_clock() {
  Lock lock(mutex_);
  while (!stop_) {
    bool moved = false;
    while (draw(4) != 0 && one_event()) moved = true;
    for (const int r : runnable_processes())
      if (!conditions_.turns || draw(3) != 0) {
        grant(r);
        moved = true;
      }
    if (moved || !runnable_processes().empty() || one_event()) {
      lock.unlock();  // let them run
      lock.lock();
      continue;
    }
    const std::uint64_t seen = activity_;
    lock.unlock();
    const bool asleep = Threads::asleep();
    lock.lock();
    if (seen != activity_ || stop_ || !runnable_processes().empty() || begun_ < processes_.size() ||
        all_away()) {
      keeper_.wait_for(lock, std::chrono::microseconds(20));
      continue;
    }
    if (asleep) {
      pass_time();
    } else {
      keeper_.wait_for(lock, std::chrono::microseconds(100));
    }
  }
}

// No further event is possible: ends all processes with an error.
void Network::end_all() {
  for (std::size_t r = 0; r < processes_.size(); ++r)
    std::fprintf(stderr, "chaos: hung: process %zu: polling %d, sleeps %d, away %d, dead %d\n", r,
                 processes_[r].polling, processes_[r].polls == nullptr, processes_[r].away,
                 processes_[r].dead);
  hung_ = true;
  for (int r = 0; r < static_cast<int>(processes_.size()); ++r) {
    at(r).frozen_until = start_;
    if (!at(r).dead) end(r, true, false);
  }
}

void Network::run(const std::function<void(int)>& body) {
  {
    const Lock lock(mutex_);
    for (Process& p : processes_) {
      p.away = false;
      p.entering = stepped_;
      p.granted = false;
    }
    stop_ = false;
  }
  std::thread keeper;
  if (!stepped_) keeper = std::thread([&] { run_clock(); });
  std::vector<std::thread> threads;
  for (int r = 0; r < static_cast<int>(processes_.size()); ++r)
    threads.emplace_back([&, r] {
      {
        Lock lock(mutex_);
        ++begun_;
        if (stepped_) {
          if (r == 0) schedule();
          at(r).turn.wait(lock, [&] { return at(r).granted; });
          at(r).granted = false;
        }
      }
      body(r);
      const Lock lock(mutex_);
      at(r).away = true;
      ++activity_;
      if (stepped_) schedule();
    });
  for (std::thread& t : threads) t.join();
  {
    const Lock lock(mutex_);
    stop_ = true;
    keeper_.notify_all();
  }
  if (keeper.joinable()) keeper.join();
}

}  // namespace tithe::chaos
