// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp32: no compression, the baseline of all other codecs.
//
// Layout   n x f32, little-endian
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec fp32_codec;
}

namespace tithe::fp32 {

// The per-value code, for values [first, n).

inline bool encode_from(std::size_t first, const EncodeInput& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    wire::put(&out[4 * i], v);
    in.store_residual(i, v);
  }
  return finite;
}

inline void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out) {
  codec::merge_values(
      payloads, how, out, [](ByteView p, std::size_t i) { return wire::get<float>(&p[4 * i]); }, first);
}

// True if all sums are finite.
inline bool combine_from(std::size_t first, std::size_t n, std::uint8_t* acc, const std::uint8_t* in) {
  bool finite = true;
  for (std::size_t i = first; i < n; ++i) {
    const float sum = wire::get<float>(&acc[4 * i]) + wire::get<float>(&in[4 * i]);
    finite = finite && is_finite(sum);
    wire::put(&acc[4 * i], sum);
  }
  return finite;
}

struct Kernels {
  bool (*encode)(const EncodeInput& in, std::uint8_t* out);
  void (*decode)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
  bool (*combine)(std::size_t n, std::uint8_t* acc, const std::uint8_t* in);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // fp32_simd.cc

}  // namespace tithe::fp32
