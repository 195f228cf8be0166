// SPDX-License-Identifier: Apache-2.0
// One clock for computing and one for rounds: a round begins when it is issued and all earlier rounds have ended.
#include "advisor/sim/sharded_step.h"

#include <algorithm>
#include <span>

namespace tithe::sim {
namespace {

// The units in the order of their first computation.
std::vector<std::size_t> order_of(std::span<const UnitCompute> computes) {
  std::vector<std::size_t> order;
  for (const UnitCompute& c : computes)
    if (std::ranges::find(order, c.unit) == order.end()) order.push_back(c.unit);
  return order;
}

class Schedule {
 public:
  explicit Schedule(const ShardedStep& step) : step_(step), gathered_(step.units.size(), kNever) {}

  Seconds run() {
    for (const ShardedUnit& u : step_.units) gathers_.push_back(u.gather);
    pass(step_.forward, step_.forward_prefetch, false);
    for (std::size_t u = 0; u < step_.units.size(); ++u) {
      if (!step_.units[u].keeps) gathered_[u] = kNever;
      gathers_[u] = step_.units[u].regather;
    }
    pass(step_.backward, 1, true);
    return std::max(now_, free_);
  }

 private:
  Seconds issue(Seconds round) { return free_ = std::max(now_, free_) + round; }
  void gather(std::size_t unit) {
    if (gathered_[unit] == kNever) gathered_[unit] = issue(gathers_[unit]);
  }

  void pass(std::span<const UnitCompute> computes, std::size_t prefetch, bool reduces) {
    const std::vector<std::size_t> order = order_of(computes);
    std::size_t begun = 0;  // units of `order` that have begun to compute
    for (std::size_t k = 0; k < computes.size(); ++k) {
      const std::size_t unit = computes[k].unit;
      gather(unit);
      now_ = std::max(now_, gathered_[unit]);
      if (begun < order.size() && order[begun] == unit) {
        ++begun;
        for (std::size_t next = begun; next < std::min(begun + prefetch, order.size()); ++next)
          gather(order[next]);
      }
      now_ += computes[k].seconds;
      const auto same = [&](const UnitCompute& c) { return c.unit == unit; };
      if (!reduces || std::ranges::any_of(computes.subspan(k + 1), same)) continue;
      now_ = std::max(now_, reduced_);
      reduced_ = issue(step_.units[unit].reduce);
    }
  }

  const ShardedStep& step_;
  std::vector<Seconds> gathers_;   // by unit: the duration of its gather in the present pass
  std::vector<Seconds> gathered_;  // by unit: the end of its gather; kNever: not issued
  Seconds now_ = 0, free_ = 0;     // of computing, of rounds
  Seconds reduced_ = 0;            // the end of the last reduce-scatter
};

}  // namespace

Seconds duration_of(const ShardedStep& step) { return Schedule(step).run(); }

}  // namespace tithe::sim
