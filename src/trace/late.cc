// SPDX-License-Identifier: Apache-2.0
// For each round, compares the last submissions of all ranks on rank 0's clock.
#include "trace/late.h"

#include <algorithm>
#include <limits>
#include <map>

namespace tithe::trace {

std::vector<Late> late(std::span<const std::vector<Round>> rounds, std::span<const Clock> clocks) {
  std::map<std::uint32_t, std::vector<const Round*>> common;  // the rounds of all ranks, by number
  for (const std::vector<Round>& of_rank : rounds)
    for (const Round& r : of_rank) common[r.number].push_back(&r);
  std::erase_if(common, [&](const auto& one) { return one.second.size() != rounds.size(); });
  std::vector<Late> all(rounds.size());
  if (rounds.size() < 2 || common.empty()) return all;
  double step = 0;
  for (const auto& [number, of] : common) {
    std::size_t last = 0;
    std::vector<std::int64_t> handed;
    for (std::size_t r = 0; r < of.size(); ++r) {
      handed.push_back(clocks[r].by_rank0(of[r]->buckets.back().handed));
      step += static_cast<double>(of[r]->end - of[r]->begin);
      if (handed[r] > handed[last]) last = r;
    }
    std::int64_t apart = std::numeric_limits<std::int64_t>::max();
    for (std::size_t r = 0; r < of.size(); ++r)
      if (r != last)
        apart = std::min(apart, handed[last] - handed[r] - clocks[last].error_ns() - clocks[r].error_ns());
    if (apart <= 0) continue;
    ++all[last].last_in;
    all[last].cost_ns += static_cast<double>(apart);
  }
  const auto n = static_cast<double>(common.size());
  for (Late& one : all) {
    one.rounds = common.size();
    one.cost_ns /= n;
    one.step_ns = step / n / static_cast<double>(rounds.size());
  }
  return all;
}

}  // namespace tithe::trace
