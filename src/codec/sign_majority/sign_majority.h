// SPDX-License-Identifier: Apache-2.0
#pragma once
// sign_majority: all ranks vote on the sign of each value, and the majority's sign arrives (signSGD with majority vote,
// J. Bernstein et al., ICML 2018).
//
// Published for a server that counts single bits and answers with single bits. Here the counts themselves add up on the
// way, in any strategy, and nobody decides: phase 0 sums how many voted minus; then every rank knows each majority M,
// +1, -1, or 0 for a tie, and phase 1 sums one size per block. The outcome of a vote is no sum of what was voted. But
// the way it is cut here, each rank sends size * M, so payloads still add up, taken == sent + left, and a rank that was
// outvoted keeps the difference in its residual.
// A rank's size is that of its own values along M, sum(v M) / sum(M M): the nearest multiple of M, so that whatever the
// others voted |x - C(x)| <= |x|. Alone it is the mean magnitude, as in sign. Published: the same size for all; that is
// scale=...,feedback=none.
//
// Layout   phase 0 (sum): u8 bits of a count | u8 voters, 1 .. 2^bits - 1 | n counts of minus, each <= voters, packed
//                         without gaps, the lowest bit first, 0 behind the last one
//          phase 1 (sum): f32 size per block of kBlock values (the last one may be shorter)
// Payloads of phase 0 add up as one long number: no count grows beyond its bits.
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/common/bit_packing.h"
#include "codec/common/block.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec sign_majority_codec;
}

namespace tithe::sign_majority {

enum Param : std::size_t { kVoters, kScale };

inline constexpr std::size_t kBlock = 2048;
inline constexpr std::size_t kHead = 2;

inline unsigned bits_of(const Settings& s) { return static_cast<unsigned>(s[kVoters]) + 1; }
inline float given_of(const Call& call) { return static_cast<float>(call.settings[kScale]); }
inline void put_head(unsigned bits, std::uint8_t* votes) {
  votes[0] = static_cast<std::uint8_t>(bits);
  votes[1] = 1;
}

// Of value i: 1, -1, or 0 for a tie.
inline float majority(ByteView votes, std::size_t i) {
  const unsigned voters = votes[1];
  const unsigned minus = bit_packing::get(votes.data() + kHead, i, votes[0]);
  return 2 * minus < voters ? 1.0F : 2 * minus > voters ? -1.0F : 0.0F;
}

// Votes of values [first, n), whose bytes are 0; false where one of them is not finite.
inline bool vote_from(std::size_t first, unsigned bits, const Carry& in, std::uint8_t* votes) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    bit_packing::put(votes + kHead, i, bits, v < 0.0F ? 1U : 0U);
  }
  return finite;
}

// What a rank's values of a block are along M. In binary64: equal magnitudes have their own as mean, exactly.
struct Along {
  Fold<double> sum;
  double low = 0;
  double high = 0;
  std::size_t decided = 0;
  bool finite = true;

  void see(std::size_t i, float v, float m) {
    const double along = double{v} * double{m};
    finite = finite && is_finite(v);
    sum.add(i, along);
    low = std::min(low, along);
    high = std::max(high, along);
    decided += m != 0.0F;
  }
  // The mean, but no further from any value than a float can say; or what is given.
  float size(float given) const {
    constexpr double kMost = std::numeric_limits<float>::max();
    if (!finite) return 0.0F;
    if (given > 0.0F) return given;
    if (decided == 0) return 0.0F;
    const double mean = sum.total() / static_cast<double>(decided);
    return static_cast<float>(std::clamp(mean, high - kMost, low + kMost));
  }
};

// Values [first, n) of a decode.
inline void decode_from(std::size_t first, ByteView votes, std::span<const ByteView> payloads,
                        const Merge& how, std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [votes](ByteView p, std::size_t i) {
        return wire::get<float>(&p[i / kBlock * 4]) * majority(votes, i);
      },
      first);
}

struct Kernels {
  // Phase 0 and phase 1. True: all taken values are finite.
  bool (*vote)(const Call& call, const Carry& in, std::uint8_t* out);
  bool (*send_sizes)(const Call& call, const Carry& in, std::uint8_t* out);
  void (*decode)(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // sign_majority_simd.cc

}  // namespace tithe::sign_majority
