// SPDX-License-Identifier: Apache-2.0
#pragma once
// A set of numbers below a bound, with fast access to its minimum: one bit per number, above it one bit per non-empty
// word, and so on up to a single word. Operations take a few instructions for any bound; only resize() allocates
// memory.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tithe {

class NumberSet {
 public:
  // Clears the set and allows numbers below n, at most 2^30.
  void resize(std::size_t n) {
    top_ = 0;
    std::size_t words = 0;
    for (std::size_t count = (n + 63) / 64;; count = (count + 63) / 64) {
      floors_[top_] = words;
      words += std::max<std::size_t>(count, 1);
      if (count <= 1) break;
      ++top_;
    }
    words_.assign(words, 0);
  }
  bool empty() const { return words_.empty() || words_.back() == 0; }
  // The minimum. The set must not be empty.
  std::size_t least() const {
    std::size_t at = 0;
    for (std::size_t f = top_ + 1; f-- > 0;)
      at = 64 * at + static_cast<std::size_t>(std::countr_zero(words_[floors_[f] + at]));
    return at;
  }
  void insert(std::size_t number) {
    for (std::size_t f = 0; f <= top_; ++f) {
      std::uint64_t& word = words_[floors_[f] + number / 64];
      const bool known_above = word != 0;
      word |= std::uint64_t{1} << number % 64;
      if (known_above) return;
      number /= 64;
    }
  }
  void erase(std::size_t number) {
    for (std::size_t f = 0; f <= top_; ++f) {
      std::uint64_t& word = words_[floors_[f] + number / 64];
      word &= ~(std::uint64_t{1} << number % 64);
      if (word != 0) return;
      number /= 64;
    }
  }
  void clear() { std::fill(words_.begin(), words_.end(), 0); }

 private:
  std::vector<std::uint64_t> words_;     // the words of the numbers come first
  std::array<std::size_t, 5> floors_{};  // index of the first word of each level
  std::size_t top_ = 0;
};

}  // namespace tithe
