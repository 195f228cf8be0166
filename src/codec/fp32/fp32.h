// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp32: no compression, the baseline of all other codecs.
//
// Layout   n x f32, little-endian
#include "codec/shared/common/float_sums.h"
#include "codec/shared/common/payload.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec fp32_codec;
}

namespace tithe::fp32 {

// Decodes values [first, n).
inline void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out) {
  codec::merge_values(payloads, how, out, sums::value_at, first);
}

struct Kernels {
  bool (*encode)(const EncodeInput& in, std::uint8_t* out);
  void (*decode)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
  bool (*combine)(Bytes acc, ByteView in);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fp32_simd.cc

}  // namespace tithe::fp32
