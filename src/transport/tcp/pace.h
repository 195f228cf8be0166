// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much of a data connection's bytes may be under way: what the link took lately, and a little more. TCP itself
// fills whatever queue stands before a slow link, and what other connections say, this rank's control connection
// among them, would wait behind it for seconds.
//
//   at most   kAlways, and what was acknowledged within the last kLately (or twice the link's delay, if that is more)
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

  void wrote(std::size_t bytes) { written_ += bytes; }

  // Bytes that may be written now, when so many have not been acknowledged. Once they are used up, `wait` says when to
  // ask again.
  std::size_t room(Time now, std::size_t under_way, std::chrono::microseconds delay) {
    const std::uint64_t acknowledged = written_ - std::min<std::uint64_t>(written_, under_way);
    const auto half = std::max<std::chrono::nanoseconds>(kLately / 2, delay);
    if (now - asked_ > 2 * half) {  // what was acknowledged meanwhile says nothing of the link as it is
      before_ = lately_ = 0;
      acknowledged_ = acknowledged;
      began_ = now;
      wait_ = kLeastWait;
    } else if (now - began_ > half) {
      before_ = now - began_ > 2 * half ? 0 : lately_;
      lately_ = 0;
      began_ = now;
    }
    asked_ = now;
    if (acknowledged > acknowledged_) {
      lately_ += acknowledged - acknowledged_;
      acknowledged_ = acknowledged;
      wait_ = kLeastWait;
    } else {
      wait_ = std::min(2 * wait_, kMostWait);
    }
    const std::uint64_t most = kAlways + before_ + lately_;
    return most > under_way ? most - under_way : 0;
  }
  std::chrono::microseconds wait() const { return wait_; }

 private:
  static constexpr std::chrono::microseconds kLeastWait{100}, kMostWait{16'000};
  std::uint64_t written_ = 0, acknowledged_ = 0;
  Time asked_ = {};
  Time began_ = {};                        // of the span that lately_ is of; before_ is of the span before it
  std::uint64_t before_ = 0, lately_ = 0;  // acknowledged bytes
  std::chrono::microseconds wait_ = kLeastWait;
};

}  // namespace tithe::tcp
