// SPDX-License-Identifier: Apache-2.0
// The network decides whose turn it is, what arrives next, and when time passes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "chaos/network.h"
#include "chaos/threads.h"

namespace tithe::chaos {

bool Network::runnable(Place& p, Rank r) {
  if (p.granted || p.away) return false;
  if (p.entering) return true;
  if (!p.polling || frozen(r)) return false;
  return p.woken || !p.done.empty() || p.deadline <= now_;
}

std::vector<Rank> Network::runnable_ranks() {
  std::vector<Rank> all;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const auto r = static_cast<Rank>((i + static_cast<std::size_t>(next_)) % places_.size());
    if (runnable(at(r), r)) all.push_back(r);
  }
  return all;
}

bool Network::one_event() {
  std::vector<std::pair<Event, Channel>> events;
  for (Rank to = 0; to < static_cast<Rank>(places_.size()); ++to)
    for (auto& [key, lane] : at(to).in)
      if (can_arrive(lane, key.first, to)) events.push_back({{&lane, key.first, to, 0}, key.second});
  for (std::size_t i = 0; i < departures_.size(); ++i) {
    const Departure& d = departures_[i];
    if (d.at > now_ || lost(d.who, d.to)) continue;
    bool last = true;  // what it sent before comes first
    for (auto& [key, lane] : at(d.to).in) last = last && (key.first != d.who || lane.flying.empty());
    if (last) events.push_back({{nullptr, 0, 0, i}, 0});
  }
  if (events.empty()) return false;
  const auto& [event, channel] = events[weather_.turns ? draw(events.size()) : 0];
  if (event.lane != nullptr) {
    arrive(*event.lane, event.from, event.to, channel);
  } else {
    const Departure d = departures_[event.departure];
    departures_.erase(departures_.begin() + static_cast<std::ptrdiff_t>(event.departure));
    notice(d);
  }
  return true;
}

bool Network::advance() {
  Time next = Time::max();
  const auto consider = [&](Time t) {
    if (t > now_) next = std::min(next, t);
  };
  for (Rank to = 0; to < static_cast<Rank>(places_.size()); ++to) {
    Place& p = at(to);
    if (p.polling && !frozen(to)) consider(p.deadline);
    consider(p.frozen_until);
    for (auto& [key, lane] : p.in)
      if (!lane.flying.empty()) consider(lane.flying.front().until);
  }
  for (const Departure& d : departures_) consider(d.at);
  if (next == Time::max()) return false;
  now_ = next;
  return true;
}

bool Network::all_away() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& p) { return p.away; });
}

void Network::pass_time() {
  const bool moved = advance();
  if (hung_ && !moved) std::abort();  // not even errors end this
  if (!moved || (!hung_ && now_ - start_ > most_time_)) end_all();
}

void Network::grant(Rank r) {
  at(r).granted = true;
  at(r).entering = false;
  at(r).turn.notify_all();
}

// Called by the rank that stops running: events, turns, and time where there are none.
void Network::schedule() {
  while (true) {
    for (const Place& p : places_)
      if (p.granted) return;
    const std::vector<Rank> ready = runnable_ranks();
    if (!ready.empty() && (!weather_.turns || draw(3) == 0 || !one_event())) {
      const Rank r = ready[weather_.turns ? draw(ready.size()) : 0];
      next_ = (r + 1) % static_cast<Rank>(places_.size());
      return grant(r);
    }
    if (!ready.empty() || one_event()) continue;
    if (all_away()) return;
    pass_time();
  }
}

// The same for ranks that run by themselves. Time passes when nobody does anything any more.
void Network::keep_time() {
  Lock lock(mutex_);
  while (!stop_) {
    bool moved = false;
    while (draw(4) != 0 && one_event()) moved = true;
    for (const Rank r : runnable_ranks())
      if (!weather_.turns || draw(3) != 0) {
        grant(r);
        moved = true;
      }
    if (moved || !runnable_ranks().empty() || one_event()) {
      lock.unlock();  // let them run
      lock.lock();
      continue;
    }
    const std::uint64_t seen = activity_;
    lock.unlock();
    const bool asleep = Threads::asleep();
    lock.lock();
    if (seen != activity_ || stop_ || !runnable_ranks().empty() || begun_ < places_.size() || all_away()) {
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

// Nothing will end by itself any more: everybody is told that all is lost.
void Network::end_all() {
  for (std::size_t r = 0; r < places_.size(); ++r)
    std::fprintf(stderr, "chaos: hung: rank %zu: polling %d, woken %d, away %d, dead %d, %zu completions\n",
                 r, places_[r].polling, places_[r].woken, places_[r].away, places_[r].dead,
                 places_[r].done.size());
  hung_ = true;
  for (Rank r = 0; r < static_cast<Rank>(places_.size()); ++r) {
    at(r).frozen_until = start_;
    if (!at(r).dead) leave(r, true, false);
  }
}

void Network::run(const std::function<void(Rank)>& body) {
  {
    const Lock lock(mutex_);
    for (Place& p : places_) {
      p.away = false;
      p.entering = stepped_;
      p.granted = false;
    }
    stop_ = false;
  }
  std::thread keeper;
  if (!stepped_) keeper = std::thread([&] { keep_time(); });
  std::vector<std::thread> threads;
  for (Rank r = 0; r < static_cast<Rank>(places_.size()); ++r)
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
