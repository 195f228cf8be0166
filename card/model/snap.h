// SPDX-License-Identifier: Apache-2.0
#pragma once
// snap: rounds to fp32 values that a network card with groups of inceptionn (card/docs/card.md) restores bit for bit;
// the rest stays in the residual. The payload is plain fp32: only the card makes it shorter.
//
// A value becomes the value that inceptionn with the same bound and mode decodes (floats/size_classes.h). -0 becomes
// +0, because a second pass would change it. So snapping is idempotent for every bound in both modes. Sums of snapped
// values need not be snapped, so every hop snaps again.
//
// Layout   n x f32, little-endian
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"
#include "codec/shared/floats/size_classes.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec snap_codec;
}

namespace tithe::snap {

using inceptionn::Classes;

inline float kept(const Classes& c, float v) {
  const float sent = inceptionn::send(c, v).value;
  return sent == 0.0F ? 0.0F : sent;
}

// The per-value code, for values [first, n). True if all taken values are finite.
inline bool encode_from(std::size_t first, const Classes& c, const EncodeInput& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    const float sent = kept(c, v);
    wire::put(&out[4 * i], sent);
    in.store_residual(i, sent);
  }
  return finite;
}

inline void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                        std::span<float> out) {
  codec::merge_values(
      payloads, how, out, [](ByteView p, std::size_t i) { return wire::get<float>(&p[4 * i]); }, first);
}

struct Kernels {
  bool (*encode)(const Classes& c, const EncodeInput& in, std::uint8_t* out);
  void (*decode)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // snap_simd.cc

}  // namespace tithe::snap
