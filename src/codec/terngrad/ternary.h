// SPDX-License-Identifier: Apache-2.0
#pragma once
// The payload, as codecs/tbq.codec has it too: a sent bit and a sign bit per value, a scale per block.
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          f32 scale | ceil(len/8) sent bits | ceil(len/8) sign bits, both LSB first
//          A value is 0 if its sent bit is 0, else scale, or -scale if its sign bit is 1. The scale is finite and not
//          negative. The sign bit of an unsent value is 0; bits past len are 0.
// Why two planes, not two bits side by side: a SIMD comparison gives a mask, and a mask is stored as it is.
//
// A Rule chooses the scale and the values to be sent:
//   kSum                whether Stats::sum is needed
//   pick(stats, len)    a Pick for a block of finite values
//   pick.scale          the scale of the block
//   pick.sends(v, i)    whether value i is sent; i counts from the start of the carry
#include "base/bytes.h"
#include "codec/shared/common/block.h"

namespace tithe::ternary {

inline constexpr std::size_t kBlock = 1024;
inline constexpr std::size_t kHead = 4;
inline constexpr std::size_t kBlockBytes = kHead + 2 * kBlock / 8;

inline std::size_t plane_bytes(std::size_t len) { return (len + 7) / 8; }
inline std::size_t block_bytes(std::size_t len) { return kHead + 2 * plane_bytes(len); }
inline std::size_t bound(const Settings&, std::size_t n) {
  return n / kBlock * kBlockBytes + (n % kBlock ? block_bytes(n % kBlock) : 0);
}

inline bool bit(const std::uint8_t* plane, std::size_t i) { return plane[i / 8] >> (i % 8) & 1U; }
inline void set_bit(std::uint8_t* plane, std::size_t i) {
  plane[i / 8] = static_cast<std::uint8_t>(plane[i / 8] | 1U << (i % 8));
}

// Value i of n in a payload.
inline float value_of(const std::uint8_t* payload, std::size_t n, std::size_t i) {
  const std::size_t first = i / kBlock * kBlock;
  const std::uint8_t* block = payload + first / kBlock * kBlockBytes;
  const std::uint8_t* sent = block + kHead;
  if (!bit(sent, i - first)) return 0.0F;
  const float scale = wire::get<float>(block);
  return bit(sent + plane_bytes(std::min(kBlock, n - first)), i - first) ? -scale : scale;
}

// Encodes values [first, len) of a block; their bits are 0 before. `at`: index of the block's first value.
template <typename Pick>
void send_from(std::size_t first, std::size_t at, const Pick& pick, const Carry& in, std::uint8_t* out) {
  std::uint8_t* sent = out + kHead;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.take(i);
    const bool goes = pick.sends(v, at + i);
    if (goes) set_bit(sent, i);
    if (goes && std::signbit(v)) set_bit(sent + plane_bytes(in.n), i);
    in.leave(i, goes ? std::copysign(pick.scale, v) : 0.0F);
  }
}

template <typename Pick>
void send_block(const Pick& pick, std::size_t at, const Carry& in, std::uint8_t* out) {
  std::fill_n(out, block_bytes(in.n), std::uint8_t{0});
  wire::put(out, pick.scale);
  send_from(0, at, pick, in, out);
}

// Writes a block that holds a value that is not finite: scale and bits 0, all values left whole.
inline void send_nothing(const Carry& in, std::uint8_t* out) {
  std::fill_n(out, block_bytes(in.n), std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, 0.0F);
}

// The reference encode. True: all taken values are finite.
template <typename Rule>
bool encode(const Rule& rule, const Carry& in, std::uint8_t* out) {
  const auto send = [&](const block::Stats& stats, std::size_t first, const Carry& values, std::uint8_t* to) {
    send_block(rule.pick(stats, values.n), first, values, to);
  };
  return block::each(in, kBlock, kBlockBytes, out, send, send_nothing);
}

Status check(std::string_view codec, std::size_t n, ByteView payload);
void decode_ref(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
void decode_simd(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out);

}  // namespace tithe::ternary
