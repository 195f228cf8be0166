// SPDX-License-Identifier: Apache-2.0
#pragma once
// Estimates of a part's time, of the best part size, and of the least tensor for which a codec is faster, if the link
// is known.
//
// The work for a part of n values, in seconds, with the shares of StrategyCost:
//   compute   C n   C = encode + shares a rank sends, and its own of the result, * merge (codec_cost.def);
//                   and kCheckByte for each byte that it sends, for the checksum
//   inside    I n   I = bytes per value that a host's ranks send each other / the link's rate inside, or kInsideRate
//   wire      W n   W = bytes per value that leave the busiest host / bytes per second; kManyToOne of these where
//                   several hosts send to one rank
//   frames    F     F = frames that a rank sends * kHandling, and as many are received
//   delay     D     D = messages one after the other * seconds per frame
// Four workers share it: the cores, the links inside a host and between hosts, and the thread that handles frames.
// Parts overlap, so the busiest of them decides; those that are nearly as busy are seen, since each waits for others
// now and then. Little of the delays is seen, and less the more parts of a bucket are under way. Among others, a tensor
// of n values in k parts takes
//   T(n) = ((k F)^4 + (n C)^4 + (n I)^4 + (n W)^4)^(1/4) + D (kSeen + kSeenOfBucket n / kBucketValues)
// A tensor alone, in k parts, takes
//   n m + n r / k + k F        least at k = sqrt(n r / F)
// with m the largest of C, I and W, and r the others. With a codec it has its own frames; uncompressed it shares
// those of the small tensors, and costs n T(N) / N, N being a part of the largest size. So the codec is faster where
// T(n) of one part is less. If it is slower everywhere, it is used from kUsualMinValues on, as configured. Uncompressed
// tensors gain nothing by their own frames, and have them from where F is a tenth of the rest.
#include <cstddef>
#include <span>

#include "tithe/choices.h"

namespace tithe::plan {

// Where nothing is said and no link is known, and a part is one chunk (gather, aggregator): the first byte of such a
// part leaves once all of it is encoded, so it is smaller than others (kUsualPartValues). It is about what best_parts()
// finds for fp8 by gather on 4 ranks: 0.7 million values on a link of 1 Gb/s or 10, where computing is what overlaps.
inline constexpr std::size_t kUsualWholePartValues = std::size_t{1} << 20;
// The values of a part at most, where nothing is said and no link is known: its payload has about kUsualPayload, so a
// few parts stay in the processor's caches and a slow link is not idle between them; and no chunk has less than
// kLeastPayload, since a frame costs something (bench/results/wire.md). Codecs that send little have the largest parts.
inline constexpr std::size_t kUsualPayload = std::size_t{1} << 20, kLeastPayload = std::size_t{1} << 16;
std::size_t usual_part_values(const Spec& spec, const Strategy& strategy, const Place& at);

// Bytes per second inside a host, all its ranks together, of a machine of which nothing is known.
inline constexpr double kInsideRate = 1e10;
// Seconds to hand a message or its receive to the transport, or to take one that has come; and so those that a rank
// spends on a frame that it sends and one that it receives, where the link's are not fewer.
inline constexpr double kOfMessage = 3e-6, kHandling = 3 * kOfMessage;
// Seconds to take the checksum of a byte.
inline constexpr double kCheckByte = 0.05e-9;
// The share of a link's rate that arrives where several hosts send to one rank at the same time
// (bench/results/truth.md).
inline constexpr double kManyToOne = 0.9;

// The law by which payloads of a phase combine: the first of the strategy's that the phase knows; nullptr: none.
const Law* first_law(const Phase& phase, const Strategy& strategy);

// The share of its delays by which a tensor lengthens a step. It depends on how many others there are, which nobody
// knows; these hold for most of planner/auto_strategy_test.cc.
inline constexpr double kSeen = 0.02, kSeenOfBucket = 0.13;
inline constexpr double kBucketValues = 6.25e6;  // of the usual bucket, 25 MB

// inside: the codec inside a host, if the strategy has two levels; nullptr: uncompressed values.
CodecCost codec_cost_of(const Spec& spec, const Strategy& strategy, const Place& at, const Link& link,
                        const Spec* inside = nullptr);
// T(n) of the above.
double seconds_among_others(const CodecCost& cost, std::size_t n, std::size_t parts = 1);
// The time of a tensor alone, in so many parts.
double seconds(const CodecCost& cost, std::size_t n, std::size_t parts);
// The parts in which a tensor of n values alone takes the least time.
std::size_t best_parts(const CodecCost& cost, std::size_t n);
// The least number of values for which one of these options is faster than a share of the small tensors' uncompressed
// part; kUsualPartValues at most. `same`: the options are uncompressed too.
std::size_t least_worth(std::span<const StrategyOption> options, const CodecCost& uncompressed, bool same);

}  // namespace tithe::plan
