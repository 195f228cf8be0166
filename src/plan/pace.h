// SPDX-License-Identifier: Apache-2.0
#pragma once
// How large a part should be, and from how many values on a codec pays, where something is known of the link.
//
// The work for a part of n values, in seconds, with the shares of StrategyCost:
//   compute   C n   C = encode + shares a rank sends, and its own of the result, * merge: the codec's pace (pace.def)
//   inside    I n   I = bytes per value that a host's ranks send each other / kInsideRate
//   wire      W n   W = bytes per value that leave the busiest host / bytes per second; kManyToOne of these where
//                   several send to one rank
//   frames    F     F = frames that a rank sends * kHandling
// Computing and sending overlap between parts, not within one. A tensor in k parts takes
//   T(k) = n max(C, W) + n min(C, W) / k + k F        least at k = sqrt(n min(C, W) / F)
// A tensor that is sent by a codec has frames of its own; raw it shares those of the small tensors. So the codec pays
// from n = F / (C_raw + W_raw - C - W) on, and nowhere if that is not positive.
#include <cstddef>

#include "tithe/choices.h"

namespace tithe::plan {

// Where nothing is said and no link is known, and a part is one chunk (gather, aggregator): the first byte of such a
// part leaves once all of it is encoded, so it is smaller than others (kUsualPartValues). It is about what best_parts()
// finds for fp8 by gather on 4 ranks: 0.7 million values on a link of 1 Gb/s or 10, where computing is what overlaps.
inline constexpr std::size_t kUsualWholePartValues = std::size_t{1} << 20;

// Bytes per second inside a host, all its ranks together: what is taken of all machines.
inline constexpr double kInsideRate = 1e10;
// Seconds that a rank spends on a frame, where the link's are not fewer.
inline constexpr double kHandling = 8e-6;
// What arrives of a link's rate where several send to one rank at the same time (bench/results/truth.md).
inline constexpr double kManyToOne = 0.9;

// The law by which payloads of a phase combine: the first of the strategy's that the phase knows; nullptr: none.
const Law* first_law(const Phase& phase, const Strategy& strategy);

struct Pace {
  double compute = 0, inside = 0, wire = 0;  // seconds per value
  double frames = 0;                         // seconds per part
};

Pace pace_of(const Spec& spec, const Strategy& strategy, const Place& at, const Link& link);
// T(k) of the above.
double seconds(const Pace& pace, std::size_t n, std::size_t parts);
// The parts in which a tensor of n values takes the least time.
std::size_t best_parts(const Pace& pace, std::size_t n);
// From how many values on; kUsualMinValues where the codec pays nowhere: it was asked for.
std::size_t least_worth(const Pace& pace, const Pace& raw);

}  // namespace tithe::plan
