// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much of a data connection's bytes may be under way: what the link took lately, and a little more. TCP itself
// fills whatever queue stands before a slow link, and what other connections say, this rank's control connection
// among them, would wait behind it for seconds.
//
//   at most   kAlways, and what was acknowledged within the last kLately (or twice the link's delay, if that is more)
//   a pause   of up to kRemembered leaves the most that the link took within such a time, until as much time has shown
//             what it takes now (RFC 7661 lets TCP keep its window as long). Else each step would begin anew, over a
//             long way several round trips. A link that has not taken all within a pause has become slow
//
// So what is under way may double with each round trip, and a fast link is not held back.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tithe::tcp {

class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::size_t kAlways = 16 * 1024;
  static constexpr std::chrono::milliseconds kLately{250};
  static constexpr std::chrono::minutes kRemembered{5};

  void wrote(std::size_t bytes) { written_ += bytes; }

  // Bytes that may be written now, when so many have not been acknowledged. Once they are used up, `wait` says when to
  // ask again.
  std::size_t room(Time now, std::size_t under_way, std::chrono::microseconds delay) {
    const std::uint64_t acknowledged = written_ - std::min<std::uint64_t>(written_, under_way);
    const auto half = std::max<std::chrono::nanoseconds>(kLately / 2, delay);
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
    if (now - resumed_ > 2 * half + delay) remembered_ = 0;
    asked_ = now;
    if (acknowledged > acknowledged_) {
      lately_ += acknowledged - acknowledged_;
      acknowledged_ = acknowledged;
      wait_ = kLeastWait;
    } else {
      wait_ = std::min(2 * wait_, kMostWait);
    }
    most_ = std::max(most_, before_ + lately_);
    const std::uint64_t most = kAlways + std::max(before_ + lately_, remembered_);
    return most > under_way ? most - under_way : 0;
  }
  std::chrono::microseconds wait() const { return wait_; }

 private:
  static constexpr std::chrono::microseconds kLeastWait{100}, kMostWait{16'000};
  std::uint64_t written_ = 0, acknowledged_ = 0;
  Time asked_ = {};
  Time began_ = {};                        // of the span that lately_ is of; before_ is of the span before it
  std::uint64_t before_ = 0, lately_ = 0;  // acknowledged bytes
  Time resumed_ = {};                      // after the last pause
  std::uint64_t most_ = 0;                 // of both since then
  std::uint64_t remembered_ = 0;           // of both before that
  std::chrono::microseconds wait_ = kLeastWait;
};

}  // namespace tithe::tcp
