// SPDX-License-Identifier: Apache-2.0
#pragma once
// Clocks of any ratio and phase around a Verilated module: whose edge is next.
#include <vector>

#include "streams.h"

namespace bench {

class Clocks {
 public:
  Clocks(std::vector<CData*> lines, Random& random) : random_(random) {
    for (CData* line : lines) {
      *line = 0;
      all_.push_back({line, 1 + random() % 9, 4});
    }
  }
  // Now and then another clock is the faster one.
  void change() {
    for (One& one : all_) one.half = 1 + random_() % 9;
  }
  std::uint64_t edges() const { return edges_; }

  // Before a rising edge of clock k: before(k), with inputs as they stay; after it: after(k).
  template <typename Eval, typename Before, typename After>
  void edge(const Eval& eval, const Before& before, const After& after) {
    std::size_t k = 0;
    for (std::size_t i = 1; i < all_.size(); ++i)
      if (all_[i].next < all_[k].next) k = i;
    One& one = all_[k];
    one.next += one.half;
    ++edges_;
    if (!*one.line) before(k);
    *one.line = !*one.line;
    eval();
    if (*one.line) after(k);
  }

 private:
  struct One {
    CData* line;
    std::uint64_t next, half;
  };
  std::vector<One> all_;
  Random& random_;
  std::uint64_t edges_ = 0;
};

}  // namespace bench
