// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/rng.h"
#include "tithe/codec.h"

namespace tithe::randomk {

// The places of one payload, in increasing order: n values are cut into `count` strata whose lengths differ by at most
// one, and from each one place is drawn. A function of its arguments only: who shares the key shares the places.
// Stratum j is [floor(j n / count), floor((j + 1) n / count)); without a division per place.
class Places {
 public:
  Places(std::uint64_t key, std::size_t n, std::size_t count)
      : key_(key), count_(count), length_(count == 0 ? 0 : n / count), extra_(count == 0 ? 0 : n % count) {
    draw();
  }
  bool done() const { return j_ == count_; }
  std::size_t place() const { return place_; }
  void next() {
    low_ += length();
    rest_ += extra_;
    if (rest_ >= count_) rest_ -= count_;
    ++j_;
    draw();
  }

 private:
  std::size_t length() const { return length_ + (rest_ + extra_ >= count_ ? 1 : 0); }
  void draw() {
    if (!done())
      place_ = low_ + (std::uint64_t{draw32(key_, static_cast<std::uint32_t>(j_))} * length() >> 32);
  }

  std::uint64_t key_;
  std::size_t count_;
  std::size_t length_;  // of the shorter strata
  std::size_t extra_;
  std::size_t j_ = 0;
  std::size_t low_ = 0;
  std::size_t rest_ = 0;  // j * extra_ mod count
  std::size_t place_ = 0;
};

// Leaves all values whole: left, where there is one, becomes what is taken. True if all of it is finite.
bool leave_all(const Carry& in);

}  // namespace tithe::randomk
