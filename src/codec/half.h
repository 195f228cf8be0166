// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the two 16-bit floats share. A Format gives the two directions, value by value:
//
//   kName       as in codecs.def
//   pack(v)     round to nearest, ties to even; beyond the largest finite value: that value. Never Inf or NaN:
//               a value that is not finite is reported by encode, and the payload must not be used
//   unpack(h)   exact; any 16 bits are a value, so the size is all there is to check in a payload
//
// Layout   n x u16, little-endian
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/raw.h"
#include "codec/sums.h"

namespace tithe::half {

inline std::size_t bound(const Settings&, std::size_t n) { return 2 * n; }

template <typename Format>
Status check(const Settings& s, std::size_t n, ByteView payload) {
  return codec::check_size(Format::kName, payload.size(), bound(s, n));
}

// Values [first, n) of an encode whose first values are done. True if all taken values are finite.
template <typename Format>
bool encode_from(std::size_t first, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    const std::uint16_t h = Format::pack(v);
    wire::put(&out[2 * i], h);
    in.leave(i, Format::unpack(h));
  }
  return finite;
}

// acc := acc + in, added in fp32 and rounded once; what the rounding takes goes to left. True if all sums are finite,
// and all that is left.
template <typename Format>
bool combine_from(std::size_t first, std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* left) {
  bool finite = true;
  for (std::size_t i = first; i < n; ++i) {
    const float sum = Format::unpack(wire::get<std::uint16_t>(&acc[2 * i])) +
                      Format::unpack(wire::get<std::uint16_t>(&in[2 * i]));
    finite = finite && is_finite(sum);
    const std::uint16_t h = Format::pack(sum);
    wire::put(&acc[2 * i], h);
    if (!left) continue;
    left[i] += sum - Format::unpack(h);
    finite = finite && is_finite(left[i]);
  }
  return finite;
}

// Values [first, n) of a decode.
template <typename Format>
void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [](ByteView p, std::size_t i) { return Format::unpack(wire::get<std::uint16_t>(&p[2 * i])); }, first);
}

// The seam's functions: the checks in front of a body.

template <typename Format, bool (*kBody)(const Carry&, std::uint8_t*)>
Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(codec::check_room(Format::kName, out.size(), bound(call.settings, in.n)));
  return Encoded{2 * in.n, kBody(in, out.data())};
}

template <typename Format, void (*kBody)(std::span<const ByteView>, const Merge&, std::span<float>)>
Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  for (const ByteView p : payloads) TITHE_TRY(check<Format>(call.settings, out.size(), p));
  kBody(payloads, how, out);
  return {};
}

template <typename Format, bool (*kBody)(std::size_t, std::uint8_t*, const std::uint8_t*, float*)>
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* left) {
  TITHE_TRY(check<Format>(call.settings, n, acc));
  TITHE_TRY(check<Format>(call.settings, n, in));
  const bool finite = kBody(n, acc.data(), in.data(), left);
  if (!finite) sums::clear(acc, {left, left ? n : 0});
  return Combined{finite};
}

// The reference.

template <typename Format>
bool encode_ref(const Carry& in, std::uint8_t* out) {
  return encode_from<Format>(0, in, out);
}
template <typename Format>
void decode_ref(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_from<Format>(0, payloads, how, out);
}

}  // namespace tithe::half
