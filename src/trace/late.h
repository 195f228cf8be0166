// SPDX-License-Identifier: Apache-2.0
#pragma once
// The rank that the others wait for. In each round it is the one that hands over its last bucket after all others, by
// the aligned clocks; it costs the round what lies between that and the last hand-over of the next one. It is what the
// rank's own work costs (a slower processor, more data, a program that pauses), not its link, which others see in their
// frames.
//
//   certain   of what lies between only that counts which the clocks' errors leave
//   common    rounds that all ranks have ended
#include <span>

#include "trace/account.h"
#include "trace/clocks.h"

namespace tithe::trace {

struct Late {                           // of one rank
  std::size_t rounds = 0, last_in = 0;  // all common ones; those in which it was last
  double cost_ns = 0;                   // per common round
  double step_ns = 0;                   // mean over all ranks
  double share() const { return step_ns > 0 ? cost_ns / step_ns : 0; }
};

// By rank.
std::vector<Late> late(std::span<const std::vector<Round>> rounds, std::span<const Clock> clocks);

}  // namespace tithe::trace
