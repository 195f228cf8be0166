// SPDX-License-Identifier: Apache-2.0
#pragma once
// Limits the bytes in flight on a data connection to slightly more than the link delivered recently. TCP alone fills
// the queue before a slow link, and messages of other connections, such as this rank's control connection, would wait
// behind that queue for seconds.
//
// Three terms set the limit:
//   - delivery: kAlways plus the bytes acknowledged within the last kLossWindow (or within twice the round trip time,
//     if that is longer). So the bytes in flight can double with each round trip, and a fast link is not limited.
//   - pauses: after a pause of up to kPeakLifetime, the largest delivery before the pause still counts until one more
//     such interval has measured the link again (RFC 7661 lets TCP keep its window for as long). Without this, each
//     training step would start from kAlways, which costs several round trips on a long path. If bytes are still
//     unacknowledged at the end of the pause, the link has become slow and the old value is dropped.
//   - losses: losses at a full queue halve the limit, at least to kAlways plus the bytes of one round trip. kHoldTime
//     later, the limit doubles whenever it leaves the link idle. Without this, several ranks that send to one rank
//     behind a shallow queue would lose packets in each round and wait for retransmission timers of 200 ms.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tithe::tcp {

class Congestion {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kAlways = 16 * 1024;
  static constexpr std::chrono::milliseconds kLossWindow{250};
  static constexpr std::chrono::minutes kPeakLifetime{5};
  static constexpr std::chrono::seconds kHoldTime{10};

  // The state of a connection, from the kernel.
  struct LinkState {
    std::size_t bytes_in_flight = 0;         // bytes that have not been acknowledged
    bool idle = false;                       // no byte is in flight to any rank
    std::chrono::microseconds round_trip{};  // the current round trip time
    std::uint32_t retransmitted = 0;         // retransmitted packets since the connection began
  };

  void wrote(std::size_t bytes) { written_ += bytes; }
  // True if the last room() returned 0 because of earlier losses.
  bool limited_by_losses() const { return limited_by_losses_; }

  // The bytes that may be written now if at most `limit` bytes may be in flight. After a 0, ask again once wait() has
  // passed.
  std::size_t room(Time now, const LinkState& link, std::size_t limit) {
    shortest_ = last_call_ == Time{} ? link.round_trip : std::min(shortest_, link.round_trip);
    const auto half = std::max<std::chrono::nanoseconds>(kLossWindow / 2, shortest_);
    count(now, link.bytes_in_flight, half);
    adapt(now, link);
    const double share = shortest_ / std::chrono::duration<double, std::micro>(half);
    const auto in_a_round_trip =
        static_cast<std::uint64_t>(static_cast<double>(previous_ + current_) * share);
    const std::uint64_t recent = kAlways + std::max(previous_ + current_, previous_peak_);
    const std::uint64_t loss_limit = std::max(loss_limit_, kAlways + in_a_round_trip);
    const std::uint64_t allowed = std::min<std::uint64_t>({recent, loss_limit, limit});
    const bool limited = link.bytes_in_flight + (allowed < recent ? allowed / kShare : 1) > allowed;
    limited_by_losses_ = limited && allowed == loss_limit;
    if (!limited) return allowed - link.bytes_in_flight;
    // Wait until the link has delivered the excess.
    if (const std::uint64_t lately = previous_ + current_; lately > 0) {
      const std::uint64_t excess = link.bytes_in_flight + allowed / kShare - allowed;
      const auto due = std::chrono::duration_cast<std::chrono::microseconds>(
          static_cast<double>(excess) / static_cast<double>(lately) * kLossWindow);
      wait_ = std::clamp(due, kMinWait, wait_);
    }
    return 0;
  }
  std::chrono::microseconds wait() const { return wait_; }

 private:
  static constexpr std::chrono::microseconds kMinWait{100}, kMaxWait{16'000};
  // The round trip time must exceed the shortest one by this part before a queue is assumed.
  static constexpr int kQueueShare = 8;
  // A loss counts if at least kLost packets were retransmitted within kLossWindow, and at least one packet in
  // kLostShare. CUBIC loses fewer than that when it reaches the end of a queue. Such losses cost little, while one
  // connection that slows down among others costs a fifth.
  static constexpr std::uint64_t kLost = 32, kLostShare = 64, kPacket = 1448;
  // A write of less than this part of the limit is not worth a system call.
  static constexpr std::uint64_t kShare = 4;
  static constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 40;

  // Halves the limit `loss_limit_` after losses, and doubles it again if it leaves the link idle.
  void adapt(Time now, const LinkState& link) {
    if (now - counted_ > kLossWindow) {
      const std::uint64_t lost = link.retransmitted - retransmitted_, bytes = acknowledged_ - counted_from_;
      retransmitted_ = link.retransmitted;
      counted_from_ = acknowledged_;
      counted_ = now;
      const bool queue = link.round_trip > shortest_ + shortest_ / kQueueShare;
      if (queue && lost >= kLost && lost * kPacket * kLostShare > bytes) {
        loss_limit_ =
            std::max<std::uint64_t>(std::min<std::uint64_t>(loss_limit_, link.bytes_in_flight) / 2, kAlways);
        hold_until_ = now + kHoldTime;
        return;
      }
    }
    if (limited_by_losses_ && link.idle && now >= hold_until_)
      loss_limit_ = std::min(2 * loss_limit_, kUnlimited);
  }

  // Counts acknowledged bytes in two intervals of `half` each: the current one (current_) and the one before
  // (previous_).
  void count(Time now, std::size_t bytes_in_flight, std::chrono::nanoseconds half) {
    const std::uint64_t acknowledged = written_ - std::min<std::uint64_t>(written_, bytes_in_flight);
    if (now - last_call_ > 2 * half) {  // a pause: the times of the acknowledgements are unknown
      const bool slow = bytes_in_flight > 0 || now - last_call_ > kPeakLifetime;
      previous_peak_ = slow ? 0 : std::max(previous_peak_, peak_);
      resumed_ = now;
      previous_ = current_ = peak_ = 0;
      acknowledged_ = acknowledged;
      began_ = now;
      wait_ = kMinWait;
    } else if (now - began_ > half) {
      previous_ = now - began_ > 2 * half ? 0 : current_;
      current_ = 0;
      began_ = now;
    }
    if (now - resumed_ > 2 * half + shortest_) previous_peak_ = 0;
    last_call_ = now;
    if (acknowledged > acknowledged_) {
      current_ += acknowledged - acknowledged_;
      acknowledged_ = acknowledged;
      wait_ = kMinWait;
    } else {
      wait_ = std::min(2 * wait_, kMaxWait);
    }
    peak_ = std::max(peak_, previous_ + current_);
  }

  std::uint64_t written_ = 0, acknowledged_ = 0;
  Time last_call_ = {};
  // Start of the interval that current_ counts; previous_ counts the interval before it.
  Time began_ = {};
  std::uint64_t previous_ = 0, current_ = 0;  // acknowledged bytes
  Time resumed_ = {};                         // end of the last pause
  std::uint64_t peak_ = 0;                    // maximum of previous_ + current_ since resumed_
  std::uint64_t previous_peak_ = 0;           // the same maximum before the pause; 0: none counts
  std::chrono::microseconds wait_ = kMinWait;
  std::chrono::microseconds shortest_ = {};  // round trip
  std::uint64_t loss_limit_ = kUnlimited;    // the limit on bytes in flight that losses have set
  bool limited_by_losses_ = false;
  Time hold_until_ = {};
  Time counted_ = {};
  std::uint64_t counted_from_ = 0;   // acknowledged_ at counted_
  std::uint32_t retransmitted_ = 0;  // retransmissions at counted_
};

}  // namespace tithe::tcp
