// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the codecs of 16-bit floats, bf16 and fp16. A Format converts value by value:
//
//   kName       the codec's name, as in codecs.def
//   pack(v)     rounds to nearest, ties to even; beyond the largest finite value: that value. Never Inf or NaN:
//               encode reports values that are not finite, and then the payload must not be used
//   unpack(h)   exact. Any 16 bits are a value, so check() tests the payload's size only
//
// Layout   n x u16, little-endian
#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/float_sums.h"
#include "codec/shared/common/payload.h"

namespace tithe::half {

inline std::size_t bound(const Settings&, std::size_t n) { return 2 * n; }

template <typename Format>
Status check(const Call& call, std::size_t n, ByteView payload) {
  return codec::check_size(Format::kName, payload.size(), bound(call.settings, n));
}

// Encodes values [first, n). True if all taken values are finite.
template <typename Format>
bool encode_from(std::size_t first, const EncodeInput& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.value(i);
    finite = finite && is_finite(v);
    const std::uint16_t h = Format::pack(v);
    wire::put(&out[2 * i], h);
    in.store_residual(i, Format::unpack(h));
  }
  return finite;
}

// acc := acc + in for values [first, n), added in fp32 and rounded once; adds the rounding errors to residual_out,
// unless that is nullptr. True if all sums and all residuals are finite.
template <typename Format>
bool combine_from(std::size_t first, std::size_t n, std::uint8_t* acc, const std::uint8_t* in,
                  float* residual_out) {
  bool finite = true;
  for (std::size_t i = first; i < n; ++i) {
    const float sum = Format::unpack(wire::get<std::uint16_t>(&acc[2 * i])) +
                      Format::unpack(wire::get<std::uint16_t>(&in[2 * i]));
    finite = finite && is_finite(sum);
    const std::uint16_t h = Format::pack(sum);
    wire::put(&acc[2 * i], h);
    if (!residual_out) continue;
    residual_out[i] += sum - Format::unpack(h);
    finite = finite && is_finite(residual_out[i]);
  }
  return finite;
}

// Decodes values [first, n).
template <typename Format>
void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [](ByteView p, std::size_t i) { return Format::unpack(wire::get<std::uint16_t>(&p[2 * i])); }, first);
}

struct Kernels {
  bool (*encode)(const EncodeInput& in, std::uint8_t* out);
  void (*decode)(std::span<const ByteView> payloads, const Merge& how, std::span<float> out);
  bool (*combine)(std::size_t n, std::uint8_t* acc, const std::uint8_t* in, float* residual_out);
};

template <typename Format>
constexpr Kernels kReference = {
    .encode = [](const EncodeInput& in, std::uint8_t* out) { return encode_from<Format>(0, in, out); },
    .decode = [](std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) { decode_from<Format>(0, payloads, how, out); },
    .combine = [](std::size_t n, std::uint8_t* acc, const std::uint8_t* in,
                  float* residual_out) { return combine_from<Format>(0, n, acc, in, residual_out); }};

// The functions of an Impl: checks, then a kernel.

template <typename Format, const Kernels& kWith>
Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  TITHE_TRY(codec::check_room(Format::kName, out.size(), bound(call.settings, in.n)));
  return Encoded{2 * in.n, kWith.encode(in, out.data())};
}

template <typename Format, const Kernels& kWith>
Result<Combined> combine(const Call& call, std::size_t n, Bytes acc, ByteView in, float* residual_out) {
  TITHE_TRY(check<Format>(call, n, acc));
  TITHE_TRY(check<Format>(call, n, in));
  const bool finite = kWith.combine(n, acc.data(), in.data(), residual_out);
  if (!finite) sums::clear(acc, {residual_out, residual_out ? n : 0});
  return Combined{finite};
}

template <typename Format, const Kernels& kWith>
constexpr Impl kImpl = {.encode = encode<Format, kWith>,
                        .decode = codec::decode<check<Format>, kWith>,
                        .check = check<Format>,
                        .combine = combine<Format, kWith>};

}  // namespace tithe::half
