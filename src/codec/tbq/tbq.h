// SPDX-License-Identifier: Apache-2.0
#pragma once
// tbq: values that reach a threshold are sent as the threshold with their sign, the others not (N. Strom,
// Interspeech 2015; as TBQ in HiPress, SOSP 2021). Layout in codec/levels/ternary.h; the scale of a block is its
// threshold.
//
// Published with a threshold for all values, set by hand. So here with tau=...; by default each block has its own:
// 5/4 of its mean magnitude, but no more than its largest. For normal values 1.1 and for Laplace ones 1.4 means
// leave least behind, and 5/4 costs neither much. As the largest value is always sent,
//     |x - C(x)|^2 <= (1 - 1/kBlock) |x|^2   without tau given,
// and a block of equal magnitudes is sent exactly.
//
// mode=literal: HiPress' bytes, for peers that speak them. n codes of 2 bits, four to a byte, LSB first, 0 behind the
// last: 1 is 0, 2 is tau, 0 is -tau. No scale travels, so tau must be the same everywhere; without one it is 1, as in
// HiPress for MXNet. (Its PyTorch form took 2; the program printed for its language never leaves what it sends.)
#include "codec/levels/ternary.h"
#include "tithe/codec.h"

namespace tithe {
extern const Codec tbq_codec;
}

namespace tithe::tbq {

enum Param : std::size_t { kTau, kMode };

inline bool is_literal(const Settings& s) { return s[kMode] != 0; }

struct Pick {
  float scale;  // 0: nothing goes
  bool sends(float v, std::size_t) const { return scale > 0.0F && std::fabs(v) >= scale; }
};

struct Rule {
  static constexpr bool kSum = true;
  float tau;  // 0: from the block

  explicit Rule(const Settings& s)
      : tau(s[kTau] > 0 ? std::max(static_cast<float>(s[kTau]), std::numeric_limits<float>::min()) : 0.0F) {}
  Pick pick(const block::Look& look, std::size_t len) const {
    return {tau > 0.0F ? tau : std::min(1.25F * look.mean(len), look.most())};
  }
};

// tbq_literal.cc
namespace literal {
std::size_t bound(std::size_t n);
Status check(std::size_t n, ByteView payload);
bool encode(const Call& call, const Carry& in, std::uint8_t* out);
void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
}  // namespace literal

// Of mode=blocks.
extern const block::Kernels kReference;
extern const block::Kernels kSimd;  // tbq_simd.cc

}  // namespace tithe::tbq
