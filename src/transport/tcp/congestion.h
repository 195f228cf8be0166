// SPDX-License-Identifier: Apache-2.0
#pragma once
// Limits the bytes in flight on a data connection to slightly more than the link delivered recently. TCP alone fills
// the queue before a slow link, and messages of other connections, such as this rank's control connection, would wait
// behind that queue for seconds.
//
// Three terms set the limit:
//   - delivery: kAlways plus the bytes acknowledged within the last kLately (or within twice the round trip time, if
//     that is longer). So the bytes in flight can double with each round trip, and a fast link is not limited.
//   - pauses: after a pause of up to kRemembered, the largest delivery before the pause still counts until one more
//     such interval has measured the link again (RFC 7661 lets TCP keep its window for as long). Without this, each
//     training step would start from kAlways, which costs several round trips on a long path. If bytes are still
//     unacknowledged at the end of the pause, the link has become slow and the old value is dropped.
//   - losses: losses at a full queue halve the limit, at least to kAlways plus the bytes of one round trip. kCareful
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
  static constexpr std::chrono::milliseconds kLately{250};
  static constexpr std::chrono::minutes kRemembered{5};
  static constexpr std::chrono::seconds kCareful{10};

  // The state of a connection, from the kernel.
  struct Look {
    std::size_t under_way = 0;         // bytes that have not been acknowledged
    bool dry = false;                  // no byte is in flight to any rank
    std::chrono::microseconds trip{};  // the current round trip time
    std::uint32_t sent_again = 0;      // retransmitted packets since the connection began
  };

  void wrote(std::size_t bytes) { written_ += bytes; }
  // True if the last room() returned 0 because of earlier losses.
  bool fears() const { return fears_; }

  // The bytes that may be written now if at most `limit` bytes may be in flight. After a 0, ask again once wait() has
  // passed.
  std::size_t room(Time now, const Look& look, std::size_t limit) {
    shortest_ = asked_ == Time{} ? look.trip : std::min(shortest_, look.trip);
    const auto half = std::max<std::chrono::nanoseconds>(kLately / 2, shortest_);
    count(now, look.under_way, half);
    adapt(now, look);
    const double share = shortest_ / std::chrono::duration<double, std::micro>(half);
    const auto in_a_trip = static_cast<std::uint64_t>(static_cast<double>(before_ + lately_) * share);
    const std::uint64_t took = kAlways + std::max(before_ + lately_, remembered_);
    const std::uint64_t safe = std::max(safe_, kAlways + in_a_trip);
    const std::uint64_t may = std::min<std::uint64_t>({took, safe, limit});
    const bool held_back = look.under_way + (may < took ? may / kShare : 1) > may;
    fears_ = held_back && may == safe;
    if (!held_back) return may - look.under_way;
    // Wait until the link has delivered the excess.
    if (const std::uint64_t lately = before_ + lately_; lately > 0) {
      const std::uint64_t excess = look.under_way + may / kShare - may;
      const auto due = std::chrono::duration_cast<std::chrono::microseconds>(
          static_cast<double>(excess) / static_cast<double>(lately) * kLately);
      wait_ = std::clamp(due, kLeastWait, wait_);
    }
    return 0;
  }
  std::chrono::microseconds wait() const { return wait_; }

 private:
  static constexpr std::chrono::microseconds kLeastWait{100}, kMostWait{16'000};
  // The round trip time must exceed the shortest one by this part before a queue is assumed.
  static constexpr int kQueueShare = 8;
  // A loss counts if at least kLost packets were retransmitted within kLately, and at least one packet in kLostShare.
  // CUBIC loses fewer than that when it reaches the end of a queue. Such losses cost little, while one connection that
  // slows down among others costs a fifth.
  static constexpr std::uint64_t kLost = 32, kLostShare = 64, kPacket = 1448;
  // A write of less than this part of the limit is not worth a system call.
  static constexpr std::uint64_t kShare = 4;
  static constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 40;

  // Halves the limit `safe_` after losses, and doubles it again if it leaves the link idle.
  void adapt(Time now, const Look& look) {
    if (now - counted_ > kLately) {
      const std::uint64_t lost = look.sent_again - sent_again_, bytes = acknowledged_ - counted_from_;
      sent_again_ = look.sent_again;
      counted_from_ = acknowledged_;
      counted_ = now;
      const bool queue = look.trip > shortest_ + shortest_ / kQueueShare;
      if (queue && lost >= kLost && lost * kPacket * kLostShare > bytes) {
        safe_ = std::max<std::uint64_t>(std::min<std::uint64_t>(safe_, look.under_way) / 2, kAlways);
        careful_until_ = now + kCareful;
        return;
      }
    }
    if (fears_ && look.dry && now >= careful_until_) safe_ = std::min(2 * safe_, kNoEnd);
  }

  // Counts acknowledged bytes in two intervals of `half` each: the current one (lately_) and the one before (before_).
  void count(Time now, std::size_t under_way, std::chrono::nanoseconds half) {
    const std::uint64_t acknowledged = written_ - std::min<std::uint64_t>(written_, under_way);
    if (now - asked_ > 2 * half) {  // a pause: the times of the acknowledgements are unknown
      const bool slow = under_way > 0 || now - asked_ > kRemembered;
      remembered_ = slow ? 0 : std::max(remembered_, most_);
      resumed_ = now;
      before_ = lately_ = most_ = 0;
      acknowledged_ = acknowledged;
      began_ = now;
      wait_ = kLeastWait;
    } else if (now - began_ > half) {
      before_ = now - began_ > 2 * half ? 0 : lately_;
      lately_ = 0;
      began_ = now;
    }
    if (now - resumed_ > 2 * half + shortest_) remembered_ = 0;
    asked_ = now;
    if (acknowledged > acknowledged_) {
      lately_ += acknowledged - acknowledged_;
      acknowledged_ = acknowledged;
      wait_ = kLeastWait;
    } else {
      wait_ = std::min(2 * wait_, kMostWait);
    }
    most_ = std::max(most_, before_ + lately_);
  }

  std::uint64_t written_ = 0, acknowledged_ = 0;
  Time asked_ = {};
  // Start of the interval that lately_ counts; before_ counts the interval before it.
  Time began_ = {};
  std::uint64_t before_ = 0, lately_ = 0;  // acknowledged bytes
  Time resumed_ = {};                      // end of the last pause
  std::uint64_t most_ = 0;                 // maximum of before_ + lately_ since resumed_
  std::uint64_t remembered_ = 0;           // the same maximum before the pause; 0: none counts
  std::chrono::microseconds wait_ = kLeastWait;
  std::chrono::microseconds shortest_ = {};  // round trip
  std::uint64_t safe_ = kNoEnd;              // the limit on bytes in flight that losses have set
  bool fears_ = false;
  Time careful_until_ = {};
  Time counted_ = {};
  std::uint64_t counted_from_ = 0;  // acknowledged_ at counted_
  std::uint32_t sent_again_ = 0;    // retransmissions at counted_
};

}  // namespace tithe::tcp
