// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/floats/fp8_format.h"

#include <algorithm>
#include <string>

#include "codec/shared/common/payload.h"

namespace tithe::fp8 {

Status check_scales(std::string_view codec, std::uint8_t format, ByteView scales) {
  std::uint8_t low = 0xff, high = 0;
  for (const std::uint8_t scale : scales) {
    low = std::min(low, scale);
    high = std::max(high, scale);
  }
  if (low < kMinScale || high > max_scale(format)) return {Code::kCorrupt, std::string(codec) + ": no scale"};
  return {};
}

Status check(std::string_view codec, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size(codec, payload.size(), bytes(n)));
  if (payload[0] > 1) return {Code::kCorrupt, std::string(codec) + ": unknown format"};
  return check_scales(codec, payload[0], payload.subspan(kHead, blocks(n)));
}

float value_at(ByteView payload, std::size_t i, std::size_t n) {
  const std::uint8_t code = payload[kHead + blocks(n) + i];
  const float v = payload[0] == 0 ? E4M3::unpack(code) : E5M2::unpack(code);
  return v * scale_value(payload[kHead + i / kBlock]);
}

// The rounding error is at most 1/16 (e5m2: 1/8) of a value, or half the smallest subnormal: at most 2^-17 of the
// block's largest value, so 32 values lose at most 2^-29 of the block's energy that way.
double contraction(const Settings& s, std::size_t) { return (s[0] == 0 ? 0x1p-8 : 0x1p-6) + 0x1p-29; }

}  // namespace tithe::fp8
