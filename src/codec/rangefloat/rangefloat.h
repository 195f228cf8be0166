// SPDX-License-Identifier: Apache-2.0
#pragma once
// rangefloat: sends every value as a range-based float (floats/range_codes.h). m is the number of mantissa bits
// with the least squared error on a sample of the values, or is given.
//
// The range ends at the largest magnitude of each block of 1024 values, found in one pass over memory, or is given.
//
// Layout   u8 N | u8 m | u16 0, then per block of 1024 values (the last one may be shorter):
//          u32 base | codes, N bits each, lowest bit first; padding bits are 0
#include "base/bytes.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/shared/floats/range_codes.h"
#include "tithe/seam/codec.h"

namespace tithe {
extern const Codec rangefloat_codec;
}

namespace tithe::rangefloat {

using range::Codes;
using range::Head;
using range::kLargest;
using range::kMaxBits;
using range::kMinBits;
using range::magnitude;

inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kBlockHead = 4;

inline std::size_t block_bytes(int bits, std::size_t len) {
  return kBlockHead + bit_packing::bytes_for(len, static_cast<unsigned>(bits));
}
inline std::size_t bytes(int bits, std::size_t n) {
  return kHead + n / kBlock * block_bytes(bits, kBlock) + (n % kBlock ? block_bytes(bits, n % kBlock) : 0);
}

// The kernels for codes of N = 8 bits. For other widths there is only the reference.
struct Kernels {
  // head.mantissa has been chosen. largest: the bits of a given range, or 0. True: all taken values are finite.
  bool (*encode)(const Head& head, std::uint32_t largest, const EncodeInput& in, std::uint8_t* out);
  void (*decode)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
};
extern const Kernels kReference;
extern const Kernels kSimd;  // rangefloat_simd.cc

// The reference for one block, and for one value.
bool encode_block(const Head& head, std::uint32_t largest, const EncodeInput& in, std::uint8_t* out);
float value_at(ByteView payload, std::size_t i);

}  // namespace tithe::rangefloat
