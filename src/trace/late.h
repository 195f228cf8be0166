// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds the rank for which the others wait. In each round it is the rank that submits its last bucket last, by the
// aligned clocks. Its cost is the time between this submission and the last submission of the second-latest rank. The
// cause is the rank's own work (a slower processor, more data, a paused program), not its link.
//
// Only time beyond the clocks' error counts. Only rounds that ended on all ranks count.
#include <span>

#include "trace/account.h"
#include "trace/clocks.h"

namespace tithe::trace {

// Of one rank.
struct Late {
  std::size_t rounds = 0, last_in = 0;  // common rounds; those in which it was last
  double cost_ns = 0;                   // per common round
  double step_ns = 0;                   // mean over all ranks
  double share() const { return step_ns > 0 ? cost_ns / step_ns : 0; }
};

// By rank.
std::vector<Late> late(std::span<const std::vector<Round>> rounds, std::span<const Clock> clocks);

}  // namespace tithe::trace
