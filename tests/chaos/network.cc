// SPDX-License-Identifier: Apache-2.0
#include "chaos/network.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tithe::chaos {
namespace {

constexpr Nanoseconds kLongest = std::chrono::hours(1);
constexpr std::size_t kMaxEager = 4096;         // with send windows, as tithe/seam/transport.h specifies
constexpr std::uint64_t kMaxPolls = 2'000'000;  // a rank that polls without end would stop the clock

Status gone(Rank peer) { return {Code::kPeerLost, "chaos: rank " + std::to_string(peer) + " went", peer}; }
Status cut_off() { return {Code::kIo, "chaos: this rank is cut off"}; }

}  // namespace

// One rank's transport.
class Line final : public Transport {
 public:
  Line(Network& net, Network::End& end) : net_(net), end_(end) {}
  ~Line() override { net_.close(end_); }
  std::string_view kind() const override { return "chaos"; }
  Rank rank() const override { return end_.rank; }
  int world() const override { return static_cast<int>(end_.group->ends.size()); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    return net_.send(end_, peer, channel, bytes, op);
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    return net_.recv(end_, peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, Nanoseconds wait) override {
    return net_.poll(end_, out, wait);
  }
  void wake() override { net_.wake(end_); }
  Time now() const override { return net_.now(); }
  void window(std::size_t bytes) override { net_.window(end_, bytes); }
  void cancel(OpId op) override { net_.cancel(end_, op); }
  Status peer_status(Rank peer) const override {
    const Network::Lock lock(net_.mutex_);
    return end_.gone[static_cast<std::size_t>(peer)] ? gone(peer) : Status{};
  }
  std::uint64_t bytes_sent() const override {
    const Network::Lock lock(net_.mutex_);
    return end_.sent;
  }
  std::uint64_t bytes_received(Rank peer) const override { return net_.bytes_received(end_, peer); }
  Hosts hosts() const override {
    std::vector<std::uint64_t> all;
    for (const Network::End& e : end_.group->ends)
      if (!net_.host_of_.empty()) all.push_back(net_.host_of_[static_cast<std::size_t>(e.process)]);
    return all.empty() ? Hosts() : Hosts::of(all);
  }

 private:
  Network& net_;
  Network::End& end_;
};

Network::Network(int processes, const NetworkConditions& conditions, Faults faults, bool stepped,
                 Nanoseconds max_time)
    : conditions_(conditions),
      faults_(std::move(faults)),
      strikes_(faults_.size()),
      stepped_(stepped),
      max_time_(max_time),
      rng_(conditions.seed),
      processes_(static_cast<std::size_t>(processes)),
      start_(std::chrono::hours(1)),
      now_(start_) {
  for (Process& p : processes_) p.frozen_until = start_;
}

Network::~Network() = default;

std::unique_ptr<Transport> Network::open(Rank rank) {
  std::vector<int> all(processes_.size());
  std::iota(all.begin(), all.end(), 0);
  return open(0, all, rank);
}

std::unique_ptr<Transport> Network::open(std::uint64_t number, const std::vector<int>& processes, Rank rank) {
  const Lock lock(mutex_);
  Group& group = groups_[{number, processes}];
  if (group.ends.empty()) {
    for (std::size_t r = 0; r < processes.size(); ++r) {
      End& e = group.ends.emplace_back();
      e.group = &group;
      e.rank = static_cast<Rank>(r);
      e.process = processes[r];
      e.gone.resize(processes.size());
      e.received.resize(processes.size());
      e.link_free.resize(processes.size(), start_);
    }
    for (End& e : group.ends)
      if (const Process& p = at(e.process); p.dead) depart(e, p.silent, p.orderly);
  }
  return std::make_unique<Line>(*this, group.at(rank));
}

Time Network::now() const {
  const Lock lock(mutex_);
  return now_;
}

bool Network::dead(int process) const {
  const Lock lock(mutex_);
  return at(process).dead;
}

bool Network::can_reach(int a, int b) const {
  const Lock lock(mutex_);
  return !cut(a, b, false) && !cut(b, a, false);
}

// ---- Operations of a rank

void Network::done(End& end, std::uint64_t o, OpId op, std::size_t bytes, Status status) {
  end.done.push_back({o, {op, bytes, std::move(status)}});
}

bool Network::cut(int from, int to, bool for_ever) const {
  const auto by = [&](const Fault& f) {
    switch (f.kind) {
      case FaultKind::kLose:
        return from == f.who && to == f.other;
      case FaultKind::kCut:
        return (from == f.who && to == f.other) || (from == f.other && to == f.who);
      case FaultKind::kApart:
        return from == f.who || to == f.who;
      case FaultKind::kHalves:
        return ((f.draw >> from ^ f.draw >> to) & 1) != 0;
      default:
        return false;
    }
  };
  for (std::size_t k = 0; k < faults_.size(); ++k) {
    const Fault& f = faults_[k];
    if (strikes_[k].struck && by(f) && (f.heals ? !for_ever && now_ < strikes_[k].at + f.lasts : true))
      return true;
  }
  return false;
}

void Network::track_memory(End& mine, Channel channel, OpId op, const MemoryUse& loan) {
  if (channel == 0) return;  // its operations share numbers
  for (const auto& [other, has] : mine.memory_uses)
    if ((loan.written || has.written) && loan.bytes.data() < has.bytes.data() + has.bytes.size() &&
        has.bytes.data() < loan.bytes.data() + loan.bytes.size() && clash_.empty())
      clash_ = "rank " + std::to_string(mine.rank) + " lends operation " + std::to_string(op) +
               " memory of operation " + std::to_string(other);
  mine.memory_uses[op] = loan;
}

Status Network::send(End& mine, Rank peer, Channel channel, ByteView bytes, OpId op) {
  const Lock lock(mutex_);
  ++activity_;
  if (mine.over) return cut_off();
  track_memory(mine, channel, op, {bytes});
  End& other = Network::peer(mine, peer);
  mine.sent += bytes.size();
  const std::uint64_t o = order(peer, channel, true);
  if (mine.gone[static_cast<std::size_t>(peer)]) {
    done(mine, o, op, 0, gone(peer));
    return {};
  }
  Message m{
      .bytes = bytes, .copy = {}, .op = op, .eager = false, .withdrawn = false, .from = now_, .until = now_};
  const bool control = channel == 0;
  if (control) mine.last_control.assign(bytes.begin(), bytes.end());
  m.eager = control || bytes.size() <= (mine.windowed ? std::min(conditions_.eager_bytes, kMaxEager)
                                                      : conditions_.eager_bytes);
  const bool changed = (!control && late(m, mine, other, channel)) || damage(m, mine, other, control);
  if (m.eager && !changed) m.copy.assign(bytes.begin(), bytes.end());
  if (m.eager || changed) m.bytes = m.copy;
  if (m.eager) done(mine, o, op, 0);
  const auto slow = std::ranges::find_if(faults_, [&](const Fault& f) {
    return f.kind == FaultKind::kSlow && (f.who == mine.process || f.who == other.process);
  });
  Time& free = mine.link_free[static_cast<std::size_t>(peer)];
  m.from = slow != faults_.end() ? std::max(now_, free) : now_;
  m.until = m.from;
  if (conditions_.max_latency.count() > 0)
    m.until += Nanoseconds(draw(static_cast<std::uint64_t>(conditions_.max_latency.count())));
  if (slow != faults_.end()) {
    m.until += Nanoseconds(static_cast<std::int64_t>(1e9 * static_cast<double>(m.bytes.size()) / slow->rate));
    free = m.until;
  }
  Lane& lane = other.in[{mine.rank, channel}];
  if (!m.eager || !(other.over || cut(mine.process, other.process, true)))
    lane.flying.push_back(std::move(m));
  count_locked(mine.process, Point::kSend);
  if (control) count_locked(mine.process, Point::kControlSend);
  keeper_.notify_one();
  return {};
}

Status Network::recv(End& mine, Rank peer, Channel channel, Bytes into, OpId op) {
  const Lock lock(mutex_);
  ++activity_;
  if (mine.over) return cut_off();
  track_memory(mine, channel, op, {into, true});
  Lane& lane = mine.in[{peer, channel}];
  if (mine.gone[static_cast<std::size_t>(peer)] && lane.arrived.empty()) {
    done(mine, order(peer, channel, false), op, 0, gone(peer));
    return {};
  }
  lane.receives.push_back({into, op});
  match(lane, Network::peer(mine, peer), mine, channel);
  count_locked(mine.process, Point::kRecv);
  keeper_.notify_one();
  return {};
}

// Yields the calling thread's turn until it is scheduled again.
void Network::suspend(Lock& lock, Process& p, End* polls, Nanoseconds wait) {
  if (++polls_ == kMaxPolls) end_all();
  p.deadline = now_ + std::min(wait, kLongest);
  p.polls = polls;
  p.polling = true;
  if (stepped_)
    schedule();
  else
    keeper_.notify_one();
  p.turn.wait(lock, [&] { return p.granted; });
  p.granted = p.polling = false;
  ++activity_;
}

void Network::sleep(int process, Nanoseconds time) {
  Lock lock(mutex_);
  ++activity_;
  suspend(lock, at(process), nullptr, time);
}

std::size_t Network::poll(End& mine, std::span<Completion> out, Nanoseconds wait) {
  Lock lock(mutex_);
  ++activity_;
  count_locked(mine.process, Point::kPoll);
  suspend(lock, at(mine.process), &mine, wait);
  mine.woken = false;
  std::size_t k = 0;
  while (k < out.size() && !mine.done.empty()) {
    auto next = mine.done.begin();
    if (conditions_.turns) {
      if (k > 0 && draw(4) == 0) break;
      const std::uint64_t o = mine.done[draw(mine.done.size())].order;
      next = std::find_if(mine.done.begin(), mine.done.end(), [&](const Done& d) { return d.order == o; });
    }
    out[k++] = std::move(next->completion);
    mine.done.erase(next);
    mine.memory_uses.erase(out[k - 1].op);
  }
  for (std::size_t i = 0; i < k; ++i) count_locked(mine.process, Point::kArrival);
  return k;
}

void Network::window(End& mine, std::size_t bytes) {
  const Lock lock(mutex_);
  mine.windowed = bytes > 0;
}

void Network::wake(End& mine) {
  const Lock lock(mutex_);
  ++activity_;
  mine.woken = true;
  keeper_.notify_one();
}

void Network::cancel(End& mine, OpId op) {
  const Lock lock(mutex_);
  ++activity_;
  const auto answer = [&](std::uint64_t o) {
    done(mine, o, op, 0, Status(Code::kCancelled, "chaos: cancelled"));
  };
  for (auto& [key, lane] : mine.in)
    for (auto it = lane.receives.begin(); it != lane.receives.end(); ++it)
      if (it->op == op) {
        lane.receives.erase(it);
        return answer(order(key.first, key.second, false));
      }
  for (End& to : mine.group->ends)
    for (auto& [key, lane] : to.in)
      for (std::deque<Message>* messages : {&lane.flying, &lane.arrived})
        for (Message& m : *messages)
          if (key.first == mine.rank && m.op == op && !m.eager) {
            m.withdraw();
            return answer(order(to.rank, key.second, true));
          }
}

std::uint64_t Network::bytes_received(End& mine, Rank peer) {
  const Lock lock(mutex_);
  std::uint64_t all = mine.received[static_cast<std::size_t>(peer)];
  for (const auto& [key, lane] : mine.in) {
    if (key.first != peer || cut(Network::peer(mine, peer), mine)) continue;
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

void Network::close(End& mine) {
  const Lock lock(mutex_);
  ++activity_;
  if (!mine.over) depart(mine, false, true);
  keeper_.notify_one();
}

// ---- Messages in transit

// In order within a lane. A large message needs both sides, and a frozen side makes no progress.
bool Network::can_arrive(Lane& lane, const End& from, const End& to) {
  if (lane.flying.empty() || to.over) return false;
  const Message& m = lane.flying.front();
  if (m.until > now_ || cut(from, to)) return false;
  if (m.eager) return true;
  return !frozen(from.process) && !frozen(to.process) && !from.over && !cut(to, from) &&
         lane.arrived.empty() && !lane.receives.empty();
}

void Network::arrive(Lane& lane, End& from, End& to, Channel channel) {
  lane.arrived.push_back(std::move(lane.flying.front()));
  lane.flying.pop_front();
  match(lane, from, to, channel);
}

void Network::match(Lane& lane, End& from, End& to, Channel channel) {
  while (!lane.arrived.empty() && !lane.receives.empty()) {
    const Message m = std::move(lane.arrived.front());
    lane.arrived.pop_front();
    const Receive r = lane.receives.front();
    lane.receives.pop_front();
    to.received[static_cast<std::size_t>(from.rank)] += m.bytes.size();
    Status status;
    if (m.withdrawn)
      status = to.gone[static_cast<std::size_t>(from.rank)]
                   ? gone(from.rank)
                   : Status(Code::kCancelled, "chaos: it withdrew its message", from.rank);
    else if (m.bytes.size() > r.into.size())
      status = {Code::kTooSmall,
                "chaos: a message of " + std::to_string(m.bytes.size()) + " bytes, room for " +
                    std::to_string(r.into.size()),
                from.rank};
    else if (!m.bytes.empty())
      std::memcpy(r.into.data(), m.bytes.data(), m.bytes.size());
    done(to, order(from.rank, channel, false), r.op, m.bytes.size(), std::move(status));
    if (!m.eager) done(from, order(to.rank, channel, true), m.op, 0);
  }
}

// Ends a process.
void Network::end(int process, bool silent, bool orderly) {
  Process& p = at(process);
  p.dead = true;
  p.silent = silent;
  p.orderly = orderly;
  p.deadline = now_;  // wakes it if it sleeps: its thread has to end
  for (auto& [key, group] : groups_)
    for (End& e : group.ends)
      if (e.process == process && !e.over) depart(e, silent, orderly);
}

// A rank leaves. If it closes in good order, all its sent messages arrive; else only some of them may.
void Network::depart(End& mine, bool silent, bool orderly) {
  mine.over = true;
  for (End& e : mine.group->ends) {
    if (&e == &mine) continue;
    for (auto& [key, lane] : e.in) {
      if (key.first != mine.rank) continue;
      for (auto it = lane.flying.begin(); it != lane.flying.end();) {
        if (!it->eager) {
          done(mine, order(e.rank, key.second, true), it->op, 0, cut_off());
          it->withdraw();
        }
        it = orderly ? it + 1 : lane.flying.erase(it);
      }
    }
    for (auto& [key, lane] : mine.in) {
      if (key.first != e.rank) continue;
      for (const Receive& rcv : lane.receives)
        done(mine, order(e.rank, key.second, false), rcv.op, 0, cut_off());
      lane.receives.clear();
      std::erase_if(lane.flying, [](const Message& m) { return m.eager; });
    }
    if (!silent) {
      const auto late = static_cast<std::uint64_t>(conditions_.max_latency.count());
      departures_.push_back({&mine, &e, now_ + Nanoseconds(draw(late))});
    }
  }
  mine.woken = true;
  mine.group->over = std::ranges::all_of(mine.group->ends, &End::over);
  if (mine.group->over)
    std::erase_if(departures_, [&](const Departure& d) { return d.who->group == mine.group; });
}

void Network::notify(const Departure& d) {
  End& p = *d.to;
  const Rank who = d.who->rank;
  p.gone[static_cast<std::size_t>(who)] = true;
  for (auto& [key, lane] : p.in) {
    if (key.first != who || !lane.arrived.empty()) continue;
    while (!lane.receives.empty()) {
      done(p, order(who, key.second, false), lane.receives.front().op, 0, gone(who));
      lane.receives.pop_front();
    }
  }
  for (auto& [key, lane] : d.who->in) {
    if (key.first != p.rank) continue;
    while (!lane.flying.empty()) {
      if (!lane.flying.front().eager)
        done(p, order(who, key.second, true), lane.flying.front().op, 0, gone(who));
      lane.flying.pop_front();
    }
  }
}

}  // namespace tithe::chaos
