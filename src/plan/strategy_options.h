// SPDX-License-Identifier: Apache-2.0
#pragma once
// Strategy "auto": who sends what to whom follows from what all ranks know: the codec, the world, who shares a host,
// and the link if it is said. plan/codec_cost.h says what a part of n values takes among others.
//
//   same      no clock and no probe: the same job has the same strategies on every machine, and so the same bytes
//   accurate  payloads that are decoded to be added are rounded at each hop: strategies that round more often than
//             `server` are left out, unless all of their rounding loses at most kMostLost of the energy
//   fast      held to the best of them, in the simulator, by advice/planner/auto_strategy_test.cc
#include <span>
#include <vector>

#include "tithe/choices.h"

namespace tithe::plan {

inline constexpr double kAssumedRate =
    125e6;  // bytes per second of a link that nobody has described: 1 Gbit/s, or a tenth of it
inline constexpr double kMostLost = 1.0 / 32;
inline constexpr double kAsFast = 1.01;

// True: the roundings of a strategy lose little, or as little as those of `server`: "accurate" of the above.
bool is_accurate(const Spec& spec, const Strategy& strategy, const Place& at);
// The ways that a tensor may travel by, in the order of strategies.def; never empty. `aggregator` is never one: it is
// there to compare with. `inside`: a codec was named for what ranks of one host send each other, so only strategies
// that treat hosts apart will do. Where none was named and the link inside hosts is known, each of these strategies is
// there several times if the codec loses values: with raw values inside a host, with a codec of one or two bytes per
// value, and with the codec itself. Of ways that take as long, the first loses least.
std::vector<StrategyOption> strategy_options_of(const Spec& spec, const std::optional<Spec>& inside,
                                                const Usual& usual);
// Keeps the ways for tensors that share parts: those that add in the order of ranks, since the size of a part depends
// on the bucket, and no result may. Keeps all where a codec inside is named, or where no way adds so.
std::vector<StrategyOption> strategy_options_of_group(std::span<const StrategyOption> options, bool inside);
// The way that takes the least time for n values, in the parts that are best for each. Where nobody has described the
// link: the one that is least far behind the best, be the link one of kAssumedRate or of a tenth of that. If several
// take as long within kAsFast, one that adds in the order of ranks, `gather` or `server`, which round least often; of
// these the one with the fewest messages one after the other, which suffers least where a link is slower to answer than
// assumed.
const StrategyOption& best_option(std::span<const StrategyOption> options, std::size_t n);

}  // namespace tithe::plan
