// SPDX-License-Identifier: Apache-2.0
#pragma once
// sign_majority: all ranks vote on the sign of each value, and the majority's sign is the result (signSGD with majority
// vote, J. Bernstein et al., ICML 2018).
//
// In the published form a server counts single bits and answers with single bits. Here the counts add up along the
// exchange, with any strategy and without a server: phase 0 sums the votes for minus, from which every rank computes
// the majority M of each value (+1, -1, or 0 for a tie), and phase 1 sums one scale per block. Each rank in effect
// sends scale * M. So payloads add up, taken == sent + residual_out, and a rank in the minority keeps the difference
// in its residual. A rank's scale is the projection of its own values on M, sum(v M) / sum(M M). The multiple of M
// nearest to x has |x - C(x)| <= |x|, for any votes of the other ranks. With one rank the scale is the mean
// magnitude, as in sign. The published form uses the same scale for all: scale=...,feedback=none.
//
// Layout   phase 0 (sum): u8 bits of a count | u8 voters, 1 .. 2^bits - 1 | n counts of minus, each <= voters, packed
//                         without gaps, lowest bit first, padding bits 0
//          phase 1 (sum): f32 scale per block of kBlock values (the last one may be shorter)
// Payloads of phase 0 are added as one long integer, since no count exceeds its bits.
#include "base/bytes.h"
#include "base/finite.h"
#include "base/fold.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/common/block.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec sign_majority_codec;
}

namespace tithe::sign_majority {

enum Param : std::size_t { kVoters, kScale };

inline constexpr std::size_t kBlock = 2048;
inline constexpr std::size_t kHead = 2;

inline unsigned bits_of(const Settings& s) { return static_cast<unsigned>(s[kVoters]) + 1; }
inline float fixed_scale(const Call& call) { return static_cast<float>(call.settings[kScale]); }
inline void put_head(unsigned bits, std::uint8_t* votes) {
  votes[0] = static_cast<std::uint8_t>(bits);
  votes[1] = 1;
}

// The majority M of value i: 1, -1, or 0 for a tie.
inline float majority(ByteView votes, std::size_t i) {
  const unsigned voters = votes[1];
  const unsigned minus = bit_packing::get(votes.data() + kHead, i, votes[0]);
  return 2 * minus < voters ? 1.0F : 2 * minus > voters ? -1.0F : 0.0F;
}

// Writes the votes of values [first, n); their bytes are 0 before. False: some taken value is not finite.
inline bool vote_from(std::size_t first, unsigned bits, const EncodeInput& in, std::uint8_t* votes) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    bit_packing::put(votes + kHead, i, bits, v < 0.0F ? 1U : 0U);
  }
  return finite;
}

// The projection of a block's values on M. In binary64, so that the mean of equal magnitudes is exactly that magnitude.
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
  // The scale: `given` if that is not 0, else the mean, clamped so that the distance to every value is a float.
  float scale(float given) const {
    constexpr double kMaxFloat = std::numeric_limits<float>::max();
    if (!finite) return 0.0F;
    if (given > 0.0F) return given;
    if (decided == 0) return 0.0F;
    const double mean = sum.total() / static_cast<double>(decided);
    return static_cast<float>(std::clamp(mean, high - kMaxFloat, low + kMaxFloat));
  }
};

// Decodes values [first, n).
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
  // The encodes of phase 0 and phase 1. True: all taken values are finite.
  bool (*vote)(const Call& call, const EncodeInput& in, std::uint8_t* out);
  bool (*send_scales)(const Call& call, const EncodeInput& in, std::uint8_t* out);
  void (*decode)(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // sign_majority_simd.cc

}  // namespace tithe::sign_majority
