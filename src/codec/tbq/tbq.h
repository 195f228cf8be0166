// SPDX-License-Identifier: Apache-2.0
#pragma once
// tbq: a value that reaches a threshold is sent as the threshold, with its sign; other values are not sent (N. Strom,
// Interspeech 2015; as TBQ in HiPress, SOSP 2021). Layout: codec/shared/levels/ternary.h; the scale of a block is its
// threshold.
//
// In the published form the user sets one threshold for all values: tau=... By default each block has its own, 5/4 of
// its mean magnitude, but at most its largest magnitude. The least error has 1.1 means for normal values and 1.4 means
// for Laplace values; 5/4 is near both. Since the largest value is always sent,
//     |x - C(x)|^2 <= (1 - 1/kBlock) |x|^2   without tau,
// and a block of equal magnitudes is sent exactly.
//
// mode=literal: HiPress' bytes, for peers that use them: n codes of 2 bits, four to a byte, LSB first, padding bits 0;
// 1 is 0, 2 is tau, 0 is -tau. No scale travels, so tau must be equal on all ranks; its default is 1, as in HiPress for
// MXNet. (HiPress for PyTorch takes 2. The program printed for its language never subtracts from the residual what it
// sends.)
#include "codec/shared/levels/ternary.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec tbq_codec;
}

namespace tithe::tbq {

enum Param : std::size_t { kTau, kMode };

inline bool is_literal(const Settings& s) { return s[kMode] != 0; }

struct Pick {
  float scale;  // 0: nothing is sent
  bool sends(float v, std::size_t) const { return scale > 0.0F && std::fabs(v) >= scale; }
};

struct Rule {
  static constexpr bool kSum = true;
  float tau;  // 0: each block has its own threshold

  explicit Rule(const Settings& s)
      : tau(s[kTau] > 0 ? std::max(static_cast<float>(s[kTau]), std::numeric_limits<float>::min()) : 0.0F) {}
  Pick pick(const block::Stats& stats, std::size_t len) const {
    return {tau > 0.0F ? tau : std::min(1.25F * stats.mean(len), stats.most())};
  }
};

// tbq_literal.cc
namespace literal {
std::size_t bound(std::size_t n);
Status check(std::size_t n, ByteView payload);
bool encode(const Call& call, const Carry& in, std::uint8_t* out);
void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
}  // namespace literal

// The kernels of mode=blocks.
extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // tbq_simd.cc

}  // namespace tithe::tbq
