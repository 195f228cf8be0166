// SPDX-License-Identifier: Apache-2.0
#pragma once
// A set of numbers below a bound that gives its least one: a bit for each, above them a bit for each word that is not
// empty, and so on up to one word. It costs a few instructions whatever the bound, and allocates only when that grows.
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tithe {

class NumberSet {
 public:
  // Numbers below n from now on, at most 2^30; it is empty then.
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
  // The set must not be empty.
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
  std::vector<std::uint64_t> words_;     // the numbers' own first
  std::array<std::size_t, 5> floors_{};  // where the words of each floor begin
  std::size_t top_ = 0;
};

}  // namespace tithe
