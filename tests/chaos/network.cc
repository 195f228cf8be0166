// SPDX-License-Identifier: Apache-2.0
#include "chaos/network.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "chaos/threads.h"

namespace tithe::chaos {
namespace {

constexpr Nanoseconds kLongest = std::chrono::hours(1);
constexpr std::uint64_t kMostPolls = 2'000'000;  // a rank that spins would stop the clock

Status gone(Rank peer) { return {Code::kPeerLost, "chaos: rank " + std::to_string(peer) + " went", peer}; }
Status cut_off() { return {Code::kIo, "chaos: this rank is cut off"}; }

}  // namespace

// One rank's end.
class Line final : public Transport {
 public:
  Line(Network& net, Rank me) : net_(net), me_(me) {}
  ~Line() override { net_.close(me_); }
  std::string_view kind() const override { return "chaos"; }
  Rank rank() const override { return me_; }
  int world() const override { return static_cast<int>(net_.places_.size()); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    return net_.send(me_, peer, channel, bytes, op);
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    return net_.recv(me_, peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, Nanoseconds wait) override { return net_.poll(me_, out, wait); }
  void wake() override { net_.wake(me_); }
  Time now() const override { return net_.now(); }
  void cancel(OpId op) override { net_.cancel(me_, op); }
  Status peer_status(Rank peer) const override {
    const Network::Lock lock(net_.mutex_);
    return net_.at(me_).gone[static_cast<std::size_t>(peer)] ? gone(peer) : Status{};
  }
  std::uint64_t bytes_sent() const override {
    const Network::Lock lock(net_.mutex_);
    return net_.at(me_).sent;
  }
  std::uint64_t bytes_received(Rank peer) const override { return net_.bytes_received(me_, peer); }

 private:
  Network& net_;
  const Rank me_;
};

Network::Network(int world, const Weather& weather, const Fault& fault, bool stepped, Nanoseconds most_time)
    : weather_(weather),
      fault_(fault),
      stepped_(stepped),
      most_time_(most_time),
      rng_(weather.seed),
      places_(static_cast<std::size_t>(world)),
      start_(std::chrono::hours(1)),
      now_(start_) {
  for (Place& p : places_) {
    p.gone.resize(places_.size());
    p.received.resize(places_.size());
    p.link_free.resize(places_.size(), start_);
    p.frozen_until = start_;
  }
}

Network::~Network() = default;

std::unique_ptr<Transport> Network::open(Rank rank) {
  const Lock lock(mutex_);
  at(rank).opened = true;
  return std::make_unique<Line>(*this, rank);
}

Time Network::now() const {
  const Lock lock(mutex_);
  return now_;
}

// ---- What a rank does

void Network::done(Rank r, std::uint64_t o, OpId op, std::size_t bytes, Status status) {
  at(r).done.push_back({o, {op, bytes, std::move(status)}});
}

bool Network::lost(Rank from, Rank to) const {
  if (!struck_) return false;
  if (fault_.kind == FaultKind::kLose) return from == fault_.who && to == fault_.other;
  if (fault_.kind == FaultKind::kApart) return from == fault_.who || to == fault_.who;
  return false;
}

Status Network::send(Rank me, Rank peer, Channel channel, ByteView bytes, OpId op) {
  const Lock lock(mutex_);
  Place& mine = at(me);
  ++activity_;
  if (mine.dead) return cut_off();
  mine.sent += bytes.size();
  const std::uint64_t o = order(peer, channel, true);
  if (mine.gone[static_cast<std::size_t>(peer)]) {
    done(me, o, op, 0, gone(peer));
    return {};
  }
  Message m{.bytes = bytes, .copy = {}, .op = op, .eager = false, .from = now_, .until = now_};
  const bool control = channel == 0;
  if (control) mine.last_control.assign(bytes.begin(), bytes.end());
  m.eager = control || bytes.size() <= weather_.eager_bytes;
  const bool changed = damage(m, me, peer, control);
  if (m.eager && !changed) m.copy.assign(bytes.begin(), bytes.end());
  if (m.eager || changed) m.bytes = m.copy;
  if (m.eager) done(me, o, op, 0);
  const bool slow = fault_.kind == FaultKind::kSlow && (fault_.who == me || fault_.who == peer);
  Time& free = mine.link_free[static_cast<std::size_t>(peer)];
  m.from = slow ? std::max(now_, free) : now_;
  m.until = m.from;
  if (weather_.most_latency.count() > 0)
    m.until += Nanoseconds(draw(static_cast<std::uint64_t>(weather_.most_latency.count())));
  if (slow)
    m.until +=
        Nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(m.bytes.size()) / fault_.rate));
  if (slow) free = m.until;
  Lane& lane = at(peer).in[{me, channel}];
  if (!m.eager || !(at(peer).dead || lost(me, peer))) lane.flying.push_back(std::move(m));
  count(me, Point::kSend);
  if (control) count(me, Point::kControlSend);
  keeper_.notify_one();
  return {};
}

Status Network::recv(Rank me, Rank peer, Channel channel, Bytes into, OpId op) {
  const Lock lock(mutex_);
  Place& mine = at(me);
  ++activity_;
  if (mine.dead) return cut_off();
  Lane& lane = mine.in[{peer, channel}];
  if (mine.gone[static_cast<std::size_t>(peer)] && lane.arrived.empty()) {
    done(me, order(peer, channel, false), op, 0, gone(peer));
    return {};
  }
  lane.receives.push_back({into, op});
  match(lane, peer, me, channel);
  count(me, Point::kRecv);
  keeper_.notify_one();
  return {};
}

std::size_t Network::poll(Rank me, std::span<Completion> out, Nanoseconds wait) {
  Lock lock(mutex_);
  Place& p = at(me);
  ++activity_;
  count(me, Point::kPoll);
  if (++polls_ == kMostPolls) end_all();
  p.deadline = now_ + std::min(wait, kLongest);
  p.polling = true;
  if (stepped_)
    schedule();
  else
    keeper_.notify_one();
  p.turn.wait(lock, [&] { return p.granted; });
  p.granted = p.polling = false;
  ++activity_;
  p.woken = false;
  std::size_t k = 0;
  while (k < out.size() && !p.done.empty()) {
    auto next = p.done.begin();
    if (weather_.turns) {
      if (k > 0 && draw(4) == 0) break;
      const std::uint64_t o = p.done[draw(p.done.size())].order;
      next = std::find_if(p.done.begin(), p.done.end(), [&](const Done& d) { return d.order == o; });
    }
    out[k++] = std::move(next->completion);
    p.done.erase(next);
  }
  for (std::size_t i = 0; i < k; ++i) count(me, Point::kArrival);
  return k;
}

void Network::wake(Rank me) {
  const Lock lock(mutex_);
  ++activity_;
  at(me).woken = true;
  keeper_.notify_one();
}

void Network::cancel(Rank me, OpId op) {
  const Lock lock(mutex_);
  ++activity_;
  const auto withdraw = [&](auto& queue, std::uint64_t o) {
    for (auto it = queue.begin(); it != queue.end(); ++it) {
      if (it->op != op) continue;
      if constexpr (requires { it->eager; })
        if (it->eager) continue;
      queue.erase(it);
      done(me, o, op, 0, Status(Code::kCancelled, "chaos: cancelled"));
      return true;
    }
    return false;
  };
  for (auto& [key, lane] : at(me).in)
    if (withdraw(lane.receives, order(key.first, key.second, false))) return;
  for (Rank r = 0; r < static_cast<Rank>(places_.size()); ++r)
    for (auto& [key, lane] : at(r).in)
      if (key.first == me && (withdraw(lane.flying, order(r, key.second, true)) ||
                              withdraw(lane.arrived, order(r, key.second, true))))
        return;
}

std::uint64_t Network::bytes_received(Rank me, Rank peer) {
  const Lock lock(mutex_);
  std::uint64_t all = at(me).received[static_cast<std::size_t>(peer)];
  for (const auto& [key, lane] : at(me).in) {
    if (key.first != peer || lost(peer, me)) continue;
    for (const Message& m : lane.arrived) all += m.bytes.size();
    for (const Message& m : lane.flying)
      if (m.until > m.from && now_ > m.from) {
        const double part =
            static_cast<double>((now_ - m.from).count()) / static_cast<double>((m.until - m.from).count());
        all += static_cast<std::uint64_t>(std::min(1.0, part) * static_cast<double>(m.bytes.size()));
      }
  }
  return all;
}

void Network::close(Rank me) {
  const Lock lock(mutex_);
  ++activity_;
  at(me).opened = false;
  if (!at(me).dead) leave(me, false, true);
  keeper_.notify_one();
}

// ---- What happens on the way

// In order within a lane; a large message needs both sides, and one that is frozen does nothing.
bool Network::can_arrive(Lane& lane, Rank from, Rank to) {
  if (lane.flying.empty() || at(to).dead) return false;
  const Message& m = lane.flying.front();
  if (m.until > now_ || lost(from, to)) return false;
  if (m.eager) return true;
  return !frozen(from) && !frozen(to) && !at(from).dead && !lost(to, from) && lane.arrived.empty() &&
         !lane.receives.empty();
}

void Network::arrive(Lane& lane, Rank from, Rank to, Channel channel) {
  lane.arrived.push_back(std::move(lane.flying.front()));
  lane.flying.pop_front();
  match(lane, from, to, channel);
}

void Network::match(Lane& lane, Rank from, Rank to, Channel channel) {
  while (!lane.arrived.empty() && !lane.receives.empty()) {
    const Message m = std::move(lane.arrived.front());
    lane.arrived.pop_front();
    const Receive r = lane.receives.front();
    lane.receives.pop_front();
    at(to).received[static_cast<std::size_t>(from)] += m.bytes.size();
    Status status;
    if (m.bytes.size() > r.into.size())
      status = {Code::kTooSmall,
                "chaos: a message of " + std::to_string(m.bytes.size()) + " bytes, room for " +
                    std::to_string(r.into.size()),
                from};
    else if (!m.bytes.empty())
      std::memcpy(r.into.data(), m.bytes.data(), m.bytes.size());
    done(to, order(from, channel, false), r.op, m.bytes.size(), std::move(status));
    if (!m.eager) done(from, order(to, channel, true), m.op, 0);
  }
}

// A rank goes. In good order what it sent still arrives; else some of it may.
void Network::leave(Rank who, bool silent, bool orderly) {
  Place& mine = at(who);
  mine.dead = true;
  mine.silent = silent;
  for (Rank r = 0; r < static_cast<Rank>(places_.size()); ++r) {
    if (r == who) continue;
    for (auto& [key, lane] : at(r).in) {
      if (key.first != who) continue;
      for (auto it = lane.flying.begin(); it != lane.flying.end();) {
        if (!it->eager) done(who, order(r, key.second, true), it->op, 0, cut_off());
        it = it->eager && orderly ? it + 1 : lane.flying.erase(it);
      }
    }
    for (auto& [key, lane] : mine.in) {
      if (key.first != r) continue;
      for (const Receive& rcv : lane.receives) done(who, order(r, key.second, false), rcv.op, 0, cut_off());
      lane.receives.clear();
      std::erase_if(lane.flying, [](const Message& m) { return m.eager; });
    }
    if (!silent) {
      const auto late = static_cast<std::uint64_t>(weather_.most_latency.count());
      departures_.push_back({who, r, now_ + Nanoseconds(draw(late))});
    }
  }
  mine.woken = true;
}

void Network::notice(const Departure& d) {
  Place& p = at(d.to);
  p.gone[static_cast<std::size_t>(d.who)] = true;
  for (auto& [key, lane] : p.in) {
    if (key.first != d.who || !lane.arrived.empty()) continue;
    while (!lane.receives.empty()) {
      done(d.to, order(d.who, key.second, false), lane.receives.front().op, 0, gone(d.who));
      lane.receives.pop_front();
    }
  }
  for (auto& [key, lane] : at(d.who).in) {
    if (key.first != d.to) continue;
    while (!lane.flying.empty()) {
      if (!lane.flying.front().eager)
        done(d.to, order(d.who, key.second, true), lane.flying.front().op, 0, gone(d.who));
      lane.flying.pop_front();
    }
  }
}

// ---- Whose turn it is

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
  if (hung_ && !moved) {  // not even errors end this
    for (std::size_t r = 0; r < places_.size(); ++r)
      std::fprintf(stderr, "chaos: rank %zu is stuck: polling %d, away %d, dead %d, %zu completions\n", r,
                   places_[r].polling, places_[r].away, places_[r].dead, places_[r].done.size());
    std::abort();
  }
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
void Network::keep_time(Threads& threads) {
  threads.leave_out_this();
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
    const bool asleep = threads.asleep();
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
  Threads before;
  std::thread keeper;
  if (!stepped_) keeper = std::thread([&] { keep_time(before); });
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
