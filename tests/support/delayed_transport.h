// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport wrapper that delivers completions late and in a random order, records a digest of every frame sent, and
// can be cut off like a killed process.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "support/forwarding_transport.h"

namespace tithe::testing {

// The frames that a rank sent, independent of when: per peer and channel, in order.
struct SentDigest {
  std::map<std::pair<Rank, Channel>, std::uint64_t> streams;
  friend bool operator==(const SentDigest&, const SentDigest&) = default;
};

class DelayedTransport final : public ForwardingTransport {
 public:
  // late: delays completions. digest: records the frames; must outlive the transport. cut_after: after this many
  // sends the rank is dead, and nothing is sent or received any more. -1: never.
  DelayedTransport(std::unique_ptr<Transport> inner, unsigned seed, bool late, SentDigest* digest,
                   int cut_after = -1)
      : ForwardingTransport(std::move(inner)),
        rng_(seed),
        late_(late),
        digest_(digest),
        cut_after_(cut_after) {}

  std::string_view kind() const override { return inner_ ? inner_->kind() : "cut"; }

  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (dead()) return {Code::kIo, "cut off"};
    if (cut_after_ >= 0) pending_.insert(op);
    if (digest_ != nullptr && channel != 0) {
      std::uint64_t& h = digest_->streams[{peer, channel}];
      for (const std::uint8_t b : bytes) h = (h ^ b) * 0x100000001b3ULL;
      h = mix64(h ^ bytes.size());
    }
    if (channel != 0 && cut_after_ >= 0 && sends_++ == cut_after_) {
      const std::lock_guard lock(mutex_);
      dead_ = true;
      inner_.reset();  // the peers detect the failure
      return {};
    }
    return inner_->send(peer, channel, bytes, op);
  }
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override {
    if (dead()) return {Code::kIo, "cut off"};
    if (cut_after_ >= 0) pending_.insert(op);
    return inner_->recv(peer, channel, into, op);
  }
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override {
    using std::chrono::microseconds;
    if (dead()) {
      std::this_thread::sleep_for(microseconds(200));
      std::size_t k = 0;
      for (; k < out.size() && !pending_.empty(); ++k)
        out[k] = {pending_.extract(pending_.begin()).value(), 0, Status(Code::kIo, "cut off")};
      return k;
    }
    const std::size_t count = late_ ? poll_late(out, wait) : inner_->poll(out, wait);
    if (cut_after_ >= 0)
      for (std::size_t k = 0; k < count; ++k) pending_.erase(out[k].op);
    return count;
  }
  void wake() override {
    const std::lock_guard lock(mutex_);
    if (!dead_) inner_->wake();
  }
  void cancel(OpId op) override {
    if (!dead()) inner_->cancel(op);
  }
  Status peer_status(Rank peer) const override { return dead() ? Status() : inner_->peer_status(peer); }
  std::uint64_t bytes_sent() const override { return dead() ? 0 : inner_->bytes_sent(); }
  std::chrono::steady_clock::time_point now() const override { return std::chrono::steady_clock::now(); }
  // No key, so no tags: keys differ between runs, and the digest compares the frames of two runs.
  ByteView key() const override { return {}; }
  std::uint64_t bytes_received(Rank peer) const override { return dead() ? 0 : inner_->bytes_received(peer); }

 private:
  std::size_t poll_late(std::span<Completion> out, std::chrono::nanoseconds wait) {
    using std::chrono::microseconds;
    if (!held_.empty()) wait = std::min<std::chrono::nanoseconds>(wait, microseconds(50));
    std::vector<Completion> fresh(out.size());
    fresh.resize(inner_->poll(fresh, wait));
    held_.insert(held_.end(), fresh.begin(), fresh.end());
    std::shuffle(held_.begin(), held_.end(), rng_);
    const std::size_t count = held_.empty() ? 0 : std::min(out.size(), rng_() % (held_.size() + 1));
    for (std::size_t k = 0; k < count; ++k) {
      out[k] = std::move(held_.back());
      held_.pop_back();
    }
    return count;
  }

  bool dead() const { return dead_; }
  std::mt19937 rng_;
  const bool late_;
  SentDigest* digest_;
  const int cut_after_;
  int sends_ = 0;
  bool dead_ = false;  // written by the communication lane, under the mutex since wake() reads it
  std::vector<Completion> held_;
  std::mutex mutex_;
  std::set<OpId> pending_;  // of a rank that is to be cut off
};

}  // namespace tithe::testing
