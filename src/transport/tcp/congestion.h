// SPDX-License-Identifier: Apache-2.0
#pragma once
// Limits the bytes in flight on a data connection to the amount that the link took lately, and a little more. TCP alone
// fills the queue before a slow link, and messages of other connections, such as this rank's control connection,
// would wait behind it for seconds.
//
//   at most   kAlways, and what was acknowledged within the last kLately (or twice the link's delay, if that is more)
//   a pause   of up to kRemembered leaves the most that the link took within such a time, until as much time has shown
//             what it takes now (RFC 7661 lets TCP keep its window as long). Else each step would begin anew, over a
//             long way several round trips. A link that has not taken all within a pause has become slow
//   losses    from a queue halve what may be under way, down to kAlways and what the link took within a round trip. It
//             doubles again where the link runs dry for want of it, kCareful later at the earliest. Else, where several
//             ranks send to one behind a shallow queue, each round would lose packets and wait for timers of 200 ms
//
// So what is under way may double with each round trip, and a fast link is not held back.
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

  struct Look {                        // at a connection
    std::size_t under_way = 0;         // bytes that have not been acknowledged
    bool dry = false;                  // nothing is under way to anybody
    std::chrono::microseconds trip{};  // a round trip takes so long just now
    std::uint32_t sent_again = 0;      // packets, since it began
  };

  void wrote(std::size_t bytes) { written_ += bytes; }
  // There was no room when it was asked last, for fear of losses.
  bool fears() const { return fears_; }

  // Bytes that may be written now, where no more than `limit` may be under way. Once they are used up, `wait` says when
  // to ask again.
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
    if (const std::uint64_t lately = before_ + lately_; lately > 0) {  // until the link has made room
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
  static constexpr int kQueueShare = 8;  // of the shortest round trip: a queue that is none
  // At least kLost retransmissions within kLately, and at least one packet in kLostShare. Cubic loses fewer when it
  // reaches the end of a queue: these cost little, while one connection that slows down among others costs a fifth.
  static constexpr std::uint64_t kLost = 32, kLostShare = 64, kPacket = 1448;
  static constexpr std::uint64_t kShare = 4;  // of what may be under way: less is not worth a write
  static constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 40;

  // Losses halve what may be under way; a link that runs dry for want of it doubles it again.
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

  void count(Time now, std::size_t under_way, std::chrono::nanoseconds half) {
    const std::uint64_t acknowledged = written_ - std::min<std::uint64_t>(written_, under_way);
    if (now - asked_ > 2 * half) {  // what was acknowledged meanwhile: nobody knows when
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
  Time began_ = {};                        // of the span that lately_ is of; before_ is of the span before it
  std::uint64_t before_ = 0, lately_ = 0;  // acknowledged bytes
  Time resumed_ = {};                      // after the last pause
  std::uint64_t most_ = 0;                 // of both since then
  std::uint64_t remembered_ = 0;           // of both before that
  std::chrono::microseconds wait_ = kLeastWait;
  std::chrono::microseconds shortest_ = {};  // round trip
  std::uint64_t safe_ = kNoEnd;              // so much may be under way and nothing is lost
  bool fears_ = false;
  Time careful_until_ = {};
  Time counted_ = {};
  std::uint64_t counted_from_ = 0;  // acknowledged_ then
  std::uint32_t sent_again_ = 0;    // then
};

}  // namespace tithe::tcp
