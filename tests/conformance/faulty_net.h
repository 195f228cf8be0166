// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks over loop with fault injection: links that fail and recover (data sent meanwhile arrives later, as over TCP),
// links with limited bandwidth, ranks that freeze.
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "support/forwarding_transport.h"
#include "tithe/connect.h"

namespace tithe::testing {

class FaultyNet {
 public:
  using Clock = std::chrono::steady_clock;
  explicit FaultyNet(int world)
      : cut_(static_cast<std::size_t>(world)), frozen_(static_cast<std::size_t>(world)) {}
  void kill(Rank r) { killed_ = r; }
  void corrupt(Rank r) { corrupts_ = r; }  // every frame that it sends from now on
  bool killed(Rank r) const { return killed_ == r; }
  bool corrupts(Rank r) const { return corrupts_ == r; }

  // All links of a rank: down, or up again.
  void cut(Rank r, bool down) { cut_[static_cast<std::size_t>(r)] = down; }
  void freeze(Rank r, bool on) { frozen_[static_cast<std::size_t>(r)] = on; }
  // The rate at which messages arrive from `r`, in bytes per second; 0: at once.
  void slow(Rank r, double bytes_per_second) {
    slow_rank_ = r;
    rate_ = bytes_per_second;
  }
  // Messages of `r` that are longer than `bytes` stall after that many bytes.
  void stick(Rank r, std::uint64_t bytes) {
    slow_rank_ = r;
    sticks_at_ = bytes;
  }
  std::uint64_t sticks_at(Rank from) const {
    return from == slow_rank_ ? sticks_at_.load() : ~std::uint64_t{0};
  }
  void thaw_all() {
    sticks_at_ = ~std::uint64_t{0};
    for (auto& c : cut_) c = false;
    for (auto& f : frozen_) f = false;
    rate_ = 0;
  }

  bool up(Rank a, Rank b) const {
    return !cut_[static_cast<std::size_t>(a)] && !cut_[static_cast<std::size_t>(b)];
  }
  bool frozen(Rank r) const { return frozen_[static_cast<std::size_t>(r)]; }
  double rate(Rank from) const { return from == slow_rank_ ? rate_.load() : 0; }

 private:
  std::vector<std::atomic<bool>> cut_, frozen_;
  std::atomic<Rank> slow_rank_{-1}, killed_{-1}, corrupts_{-1};
  std::atomic<double> rate_{0};
  std::atomic<std::uint64_t> sticks_at_{~std::uint64_t{0}};
};

class Faulty final : public ForwardingTransport {
 public:
  enum class When { kBefore, kAfter };
  // Runs on the communication lane before and after each send; may inject faults.
  using Hook = std::function<void(When, Channel, ByteView)>;
  Faulty(std::unique_ptr<Transport> inner, std::shared_ptr<FaultyNet> net, Hook hook = {})
      : ForwardingTransport(std::move(inner)),
        net_(std::move(net)),
        hook_(std::move(hook)),
        arriving_(static_cast<std::size_t>(world())) {}
  ~Faulty() override { inner_.reset(); }  // before the copies that it reads

  std::string_view kind() const override { return "faulty"; }
  ByteView key() const override { return inner_ ? inner_->key() : ByteView(); }
  std::chrono::steady_clock::time_point now() const override { return FaultyNet::Clock::now(); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (hook_) hook_(When::kBefore, channel, bytes);
    stop_where_frozen();
    if (died()) return {Code::kIo, "killed"};
    if (net_->corrupts(rank())) {
      copies_.emplace_back(bytes.begin(), bytes.end());
      copies_.back().back() ^= 0x10;
      bytes = copies_.back();
    }
    Status s = inner_->send(peer, channel, bytes, op);
    if (hook_) hook_(When::kAfter, channel, bytes);
    died();
    return s;
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    stop_where_frozen();
    if (died()) return {Code::kIo, "killed"};
    from_[op] = peer;
    return inner_->recv(peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    const auto until =
        FaultyNet::Clock::now() + std::min<std::chrono::nanoseconds>(wait, std::chrono::hours(1));
    std::size_t count = 0;
    std::vector<Completion> fresh(out.size());
    while (true) {
      stop_where_frozen();
      if (died()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
      }
      bool held = false;
      for (const Link& l : arriving_) held = held || !l.messages.empty();
      const auto left =
          std::max<std::chrono::nanoseconds>(until - FaultyNet::Clock::now(), std::chrono::nanoseconds(0));
      const std::size_t n = inner_->poll(
          fresh, ready_.empty()
                     ? (held ? std::min<std::chrono::nanoseconds>(left, std::chrono::milliseconds(1)) : left)
                     : std::chrono::nanoseconds(0));
      stop_where_frozen();
      const bool woken = n == 0 && !held;
      for (std::size_t k = 0; k < n; ++k) sort_in(fresh[k]);
      for (Rank r = 0; r < world(); ++r) arrive(r);
      while (count < out.size() && !ready_.empty()) {
        out[count++] = std::move(ready_.front());
        ready_.pop_front();
      }
      if (count > 0 || woken || woken_.exchange(false) || FaultyNet::Clock::now() >= until) return count;
    }
  }
  void wake() override {
    woken_ = true;
    const std::lock_guard lock(mutex_);
    if (inner_) inner_->wake();
  }
  void cancel(OpId op) override {
    for (Link& l : arriving_)
      for (std::size_t k = 0; k < l.messages.size(); ++k)
        if (l.messages[k].op == op) {
          ready_.push_back({op, 0, Status(Code::kCancelled, "cancelled")});
          l.messages.erase(l.messages.begin() + static_cast<std::ptrdiff_t>(k));
          return;
        }
    if (inner_) inner_->cancel(op);
  }
  Status peer_status(Rank peer) const override { return inner_ ? inner_->peer_status(peer) : Status(); }
  std::uint64_t bytes_sent() const override { return inner_ ? inner_->bytes_sent() : 0; }
  std::uint64_t bytes_received(Rank peer) const override {
    const Link& l = arriving_[static_cast<std::size_t>(peer)];
    if (l.messages.empty()) return l.finished;
    return l.finished + std::min<std::uint64_t>(
                            {l.credit(*net_, peer, rank()), l.messages[0].bytes, net_->sticks_at(peer)});
  }

 private:
  struct Link {
    std::deque<Completion> messages;  // whole at this end, but still under way in the world of the test
    std::uint64_t finished = 0;       // bytes
    mutable double credit_ = 0;       // bytes of the first message that have arrived
    mutable FaultyNet::Clock::time_point counted = FaultyNet::Clock::now();
    std::uint64_t credit(const FaultyNet& net, Rank from, Rank to) const {
      const auto now = FaultyNet::Clock::now();
      if (net.up(from, to))
        credit_ +=
            net.rate(from) > 0 ? net.rate(from) * std::chrono::duration<double>(now - counted).count() : 1e18;
      counted = now;
      return static_cast<std::uint64_t>(std::min(credit_, 1e18));
    }
  };

  bool sticks(const Link& l, Rank from) const {
    return !l.messages.empty() && l.messages[0].bytes > net_->sticks_at(from);
  }
  void sort_in(Completion& c) {
    const auto it = from_.find(c.op);
    if (it == from_.end() || c.status.code() == Code::kCancelled) {
      ready_.push_back(std::move(c));
    } else {
      Link& l = arriving_[static_cast<std::size_t>(it->second)];
      if (l.messages.empty()) {
        l.credit_ = 0;
        l.counted = FaultyNet::Clock::now();
      }
      l.messages.push_back(std::move(c));
    }
    if (it != from_.end()) from_.erase(it);
  }
  void arrive(Rank from) {
    Link& l = arriving_[static_cast<std::size_t>(from)];
    for (std::size_t k = 0; net_->up(from, rank()) && k < l.messages.size() && sticks(l, from); ++k)
      if (l.messages[k].bytes <= net_->sticks_at(from)) {  // small messages overtake the stalled one
        l.finished += l.messages[k].bytes;
        ready_.push_back(std::move(l.messages[k]));
        l.messages.erase(l.messages.begin() + static_cast<std::ptrdiff_t>(k--));
      }
    while (!l.messages.empty() && net_->up(from, rank()) && !sticks(l, from) &&
           l.credit(*net_, from, rank()) >= l.messages.front().bytes) {
      l.finished += l.messages.front().bytes;
      l.credit_ = std::max(0.0, std::min(l.credit_, 1e18) - static_cast<double>(l.messages.front().bytes));
      ready_.push_back(std::move(l.messages.front()));
      l.messages.pop_front();
    }
  }
  void stop_where_frozen() const {
    while (net_->frozen(rank())) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  bool died() {
    if (!net_->killed(rank())) return false;
    const std::lock_guard lock(mutex_);
    inner_.reset();  // the peers detect the failure
    return true;
  }

  std::deque<std::vector<std::uint8_t>> copies_;
  std::shared_ptr<FaultyNet> net_;
  Hook hook_;
  std::mutex mutex_;
  std::map<OpId, Rank> from_;
  std::vector<Link> arriving_;
  std::deque<Completion> ready_;
  std::atomic<bool> woken_{false};
};

}  // namespace tithe::testing
