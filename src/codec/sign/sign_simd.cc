// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/common/kernels.h"
#include "codec/sign/sign.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sign/sign_simd.cc"
#include <hwy/foreach_target.h>
// after foreach_target.h
#include "codec/shared/common/block_simd_inl.h"
#include "codec/shared/levels/sign_bits_simd_inl.h"

HWY_BEFORE_NAMESPACE();
namespace tithe::sign::HWY_NAMESPACE {
namespace {
using namespace block::HWY_NAMESPACE;

template <bool kResidual, bool kResidualOut>
bool encode_as(const Call& call, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    std::uint8_t* HWY_RESTRICT to = out + first / kBlock * kBlockBytes;
    const block::Stats stats = stats_of<kResidual, true>(values);
    finite = finite && stats.finite();
    const float scale = scale_of(call, stats, values.n);
    wire::put(to, scale);
    const VF scales = hn::Set(Floats(), scale);
    const std::size_t vectors = whole_pairs(values.n);
    for (std::size_t i = 0; i < vectors; i += lanes()) {
      const VF v = take<kResidual>(values, i);
      const Mask minus = hn::Lt(v, hn::Zero(Floats()));
      store_bits(minus, to + kHead, i);
      if (kResidualOut)
        hn::StoreU(hn::Sub(v, hn::IfThenElse(minus, hn::Neg(scales), scales)), Floats(),
                   values.residual_out + i);
    }
    std::fill(to + kHead + vectors / 8, to + block_bytes(values.n), std::uint8_t{0});
    send_from(vectors, scale, values, to);
  }
  return finite;
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  if (in.residual)
    return in.residual_out ? encode_as<true, true>(call, in, out) : encode_as<true, false>(call, in, out);
  return in.residual_out ? encode_as<false, true>(call, in, out) : encode_as<false, false>(call, in, out);
}

struct Format {
  static constexpr std::size_t kBlock = sign::kBlock;
  static constexpr std::size_t kHead = sign::kHead;
  static constexpr std::size_t kBlockBytes = sign::kBlockBytes;
  static float clear(const std::uint8_t* block) { return wire::get<float>(block); }
  static float set(const std::uint8_t* block) { return -wire::get<float>(block); }
};

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  if (payloads.empty()) return kReference.decode(call, payloads, how, out);
  bit_codes::HWY_NAMESPACE::decode<Format>(payloads, how, out);
}

}  // namespace
}  // namespace tithe::sign::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tithe::sign {
TITHE_KERNELS(const block::Kernels kSimd, encode, decode);
}  // namespace tithe::sign
#endif
