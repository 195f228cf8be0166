// SPDX-License-Identifier: Apache-2.0
#pragma once
// Estimates the time of a part, the best part size, and the smallest tensor for which a codec is faster, if the link is
// known.
//
// The work for a part of n values, in seconds, with the shares of StrategyCost:
//   compute   C n   C = encode + (shares that a rank sends, and its own share of the result) * merge (codec_cost.def);
//                   plus kChecksumByte per sent byte, for the checksum
//   inside    I n   I = bytes per value between ranks of a host / the link's rate inside, or kInsideRate
//   wire      W n   W = bytes per value that leave the busiest host / bytes per second; only kManyToOne of that rate if
//                   several hosts send to one rank
//   frames    F     F = frames that a rank sends * kHandling; it receives as many
//   delay     D     D = sequential messages * seconds per frame
// There are four resources: the cores, the links inside a host, the links between hosts, and the thread that handles
// frames. Parts overlap, so the busiest resource decides. Resources that are nearly as busy have an influence too,
// because each waits for the others at times. Only a small share of the delays is visible, and it decreases with the
// number of active parts. Among other tensors, a tensor of n values in k parts takes
//   T(n) = ((k F)^4 + (n C)^4 + (n I)^4 + (n W)^4)^(1/4) + D (kSeen + kSeenOfBucket n / kBucketValues)
// A tensor alone, in k parts, takes
//   n m + n r / k + k F        minimal at k = sqrt(n r / F)
// with m the largest of C, I and W, and r the sum of the others. With a codec a tensor has its own frames.
// Uncompressed, it shares the frames of the small tensors, and costs n T(N) / N, where N is the largest part size. So
// the codec is faster if T(n) of one part is less. If it is slower for all sizes, it is used from kDefaultMinValues on,
// as configured. Uncompressed tensors gain nothing from their own frames, and have them if F is at most a tenth of
// the rest.
#include <cstddef>
#include <span>

#include "tithe/choices.h"

namespace tithe::plan {

// The part size if it is not configured, the link is unknown, and a part is one chunk (gather, aggregator). The first
// byte of such a part leaves when the whole part is encoded, so it is smaller than other parts (kDefaultPartValues).
// best_parts() finds about this size for fp8 by gather on 4 ranks: 0.7 million values on a link of 1 or 10 Gb/s,
// where only computing overlaps.
inline constexpr std::size_t kDefaultWholePartValues = std::size_t{1} << 20;
// The largest part size if it is not configured and the link is unknown. The payload has about kDefaultPayload bytes,
// so that a few parts stay in the processor's caches and a slow link is not idle between them. No chunk has less than
// kMinPayload, because of the cost per frame (lab/results/wire.md). Codecs with small payloads have the largest
// parts.
inline constexpr std::size_t kDefaultPayload = std::size_t{1} << 20, kMinPayload = std::size_t{1} << 16;
std::size_t default_part_values(const Spec& spec, const Strategy& strategy, const Place& at);

// Bytes per second inside a host, over all its ranks, if the rate is unknown.
inline constexpr double kInsideRate = 1e10;
// kOfMessage: seconds to post a message or a receive, or to handle a completed one. kHandling: seconds of a rank per
// frame that it sends and one that it receives, unless the link's time per frame is smaller.
inline constexpr double kOfMessage = 3e-6, kHandling = 3 * kOfMessage;
// Seconds per byte for the checksum.
inline constexpr double kChecksumByte = 0.05e-9;
// The share of a link's rate that remains if several hosts send to one rank at the same time
// (lab/results/truth.md).
inline constexpr double kManyToOne = 0.9;

// The law by which payloads of a phase combine: the strategy's first law that the phase supports; nullptr: none.
const Law* first_law(const Phase& phase, const Strategy& strategy);

// The share of a tensor's delays by which it lengthens a step. It depends on the number of other tensors, which is
// unknown here; these values hold for most cases of planner/auto_strategy_test.cc.
inline constexpr double kSeen = 0.02, kSeenOfBucket = 0.13;
inline constexpr double kBucketValues = 6.25e6;  // of a usual bucket of 25 MB

// inside: the codec inside a host, if the strategy has two levels; nullptr: uncompressed values.
CodecCost codec_cost_of(const Spec& spec, const Strategy& strategy, const Place& at, const Link& link,
                        const Spec* inside = nullptr);
// T(n) above.
double seconds_among_others(const CodecCost& cost, std::size_t n, std::size_t parts = 1);
// The time of a tensor alone, in `parts` parts.
double seconds(const CodecCost& cost, std::size_t n, std::size_t parts);
// The number of parts in which a tensor of n values alone takes the least time.
std::size_t best_parts(const CodecCost& cost, std::size_t n);
// The smallest number of values for which one of these options is faster than a share of the small tensors'
// uncompressed part; at most kDefaultPartValues. `same`: the options are uncompressed too.
std::size_t min_worth(std::span<const StrategyOption> options, const CodecCost& uncompressed, bool same);

}  // namespace tithe::plan
