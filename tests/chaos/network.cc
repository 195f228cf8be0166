// SPDX-License-Identifier: Apache-2.0
#include "chaos/network.h"

#include <algorithm>
#include <cstring>

namespace tithe::chaos {
namespace {

constexpr Nanoseconds kLongest = std::chrono::hours(1);
constexpr std::size_t kMostEager = 4096;         // with windows, as tithe/seam/transport.h promises
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
  void window(std::size_t bytes) override { net_.window(me_, bytes); }
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
  if (fault_.kind == FaultKind::kCut)
    return (from == fault_.who && to == fault_.other) || (from == fault_.other && to == fault_.who);
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
  Message m{
      .bytes = bytes, .copy = {}, .op = op, .eager = false, .withdrawn = false, .from = now_, .until = now_};
  const bool control = channel == 0;
  if (control) mine.last_control.assign(bytes.begin(), bytes.end());
  m.eager = control || bytes.size() <= (mine.windowed ? std::min(weather_.eager_bytes, kMostEager)
                                                      : weather_.eager_bytes);
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

void Network::window(Rank me, std::size_t bytes) {
  const Lock lock(mutex_);
  at(me).windowed = bytes > 0;
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
  const auto answer = [&](std::uint64_t o) {
    done(me, o, op, 0, Status(Code::kCancelled, "chaos: cancelled"));
  };
  for (auto& [key, lane] : at(me).in)
    for (auto it = lane.receives.begin(); it != lane.receives.end(); ++it)
      if (it->op == op) {
        lane.receives.erase(it);
        return answer(order(key.first, key.second, false));
      }
  for (Rank r = 0; r < static_cast<Rank>(places_.size()); ++r)
    for (auto& [key, lane] : at(r).in)
      for (std::deque<Message>* messages : {&lane.flying, &lane.arrived})
        for (Message& m : *messages)
          if (key.first == me && m.op == op && !m.eager) {
            m.withdraw();
            return answer(order(r, key.second, true));
          }
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
    if (m.withdrawn)
      status = at(to).gone[static_cast<std::size_t>(from)]
                   ? gone(from)
                   : Status(Code::kCancelled, "chaos: it withdrew its message", from);
    else if (m.bytes.size() > r.into.size())
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
        if (!it->eager) {
          done(who, order(r, key.second, true), it->op, 0, cut_off());
          it->withdraw();
        }
        it = orderly ? it + 1 : lane.flying.erase(it);
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

}  // namespace tithe::chaos
