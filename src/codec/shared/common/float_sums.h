// SPDX-License-Identifier: Apache-2.0
#pragma once
// Payloads that are arrays of floats: n x f32, little-endian.
#include <algorithm>
#include <bit>
#include <span>

#include "base/bytes.h"
#include "base/finite.h"
#include "tithe/seam/codec.h"

namespace tithe::sums {

// Zeroes both after a sum that is not finite. The NaN that results from two NaNs depends on the processor, but
// payloads and residuals must be equal on all machines.
inline void clear(Bytes acc, std::span<float> residual_out) {
  std::fill(acc.begin(), acc.end(), std::uint8_t{0});
  std::fill(residual_out.begin(), residual_out.end(), 0.0F);
}

inline float value_at(ByteView payload, std::size_t i) { return wire::get<float>(&payload[4 * i]); }

// Writes the taken values from `first` on. True if all are finite.
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

// acc += in for the values from `first` on. True if all sums are finite.
inline bool add_from(std::size_t first, Bytes acc, ByteView in) {
  std::uint32_t most = 0;
  for (std::size_t at = 4 * first; at < acc.size(); at += 4) {
    const float sum = wire::get<float>(&acc[at]) + wire::get<float>(&in[at]);
    most = std::max(most, std::bit_cast<std::uint32_t>(sum) & 0x7fffffffU);
    wire::put(&acc[at], sum);
  }
  return most < 0x7f800000U;
}

// acc += in. True if all sums are finite; otherwise clears acc.
inline bool add(Bytes acc, ByteView in) {
  const bool finite = add_from(0, acc, in);
  if (!finite) clear(acc, {});
  return finite;
}

}  // namespace tithe::sums
