// SPDX-License-Identifier: Apache-2.0
#pragma once
// Strategy "auto" chooses from facts that are the same on all ranks: the codec, the world, the hosts, and the link if
// it is configured. plan/codec_cost.h estimates the time of a part of n values.
//
//   same      no clock and no probe: the same job has the same strategies on every machine, and so the same bytes
//   accurate  payloads that are decoded to be added are rounded at each hop: strategies that round more often than
//             `server` are left out, unless all of their rounding loses at most kMaxLost of the energy
//   fast      compared with the best strategy, in the simulator, by advisor/planner/auto_strategy_test.cc
#include <span>
#include <vector>

#include "tithe/choices.h"

namespace tithe::plan {

// kAssumedRate: bytes per second of an unknown link, 1 Gbit/s; a tenth of it is tried too.
inline constexpr double kAssumedRate = 125e6;
inline constexpr double kMaxLost = 1.0 / 32;
inline constexpr double kAsFast = 1.01;

// True if the roundings of a strategy lose little, or as little as those of `server`: "accurate" above.
bool is_accurate(const Spec& spec, const Strategy& strategy, const Place& at);
// The options for a tensor, in the order of strategies.def; never empty. `aggregator` is never an option: it exists
// for comparisons. `inside`: a codec inside hosts is set, so only strategies of two levels are options. If none is
// set, the link inside hosts is known and the codec is lossy, each strategy of two levels occurs several times: with
// uncompressed values inside a host, with a codec of one or two bytes per value, and with the codec itself. Among
// options of equal time, the first loses least.
std::vector<StrategyOption> strategy_options_of(const Spec& spec, const std::optional<Spec>& inside,
                                                const ChoiceDefaults& defaults);
// Keeps the options for tensors that share parts: those that add in the order of ranks, because the size of a part
// depends on the bucket but no result may. Keeps all if a codec inside is set, or if no option adds in that order.
std::vector<StrategyOption> strategy_options_of_group(std::span<const StrategyOption> options, bool inside);
// The option with the least time for n values, each with its best number of parts. If the link is unknown: the option
// with the smallest factor over the best, for links of kAssumedRate and of a tenth of that. If several have the same
// time within kAsFast: one that adds in the order of ranks, `gather` or `server`, which round least often; of these the
// one with the fewest sequential messages, which suffers least if the link's latency exceeds the assumption.
const StrategyOption& best_option(std::span<const StrategyOption> options, std::size_t n);

}  // namespace tithe::plan
