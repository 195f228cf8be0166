// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/floats/fp8_kernels.h"

#include "codec/shared/common/block.h"

namespace tithe::fp8 {
namespace {

template <typename Float>
bool find_scales(const EncodeInput& in, std::uint8_t* scales) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    std::uint32_t largest = 0;
    for (std::size_t i = first; i < std::min(first + kBlock, in.n); ++i)
      largest = std::max(largest, magnitude(in.value(i)));
    finite = finite && largest < 0x7f800000U;
    *scales++ = static_cast<std::uint8_t>(Float::scale_of(largest));
  }
  return finite;
}

template <typename Float>
bool send_under(const EncodeInput& in, const std::uint8_t* scales, std::uint8_t* codes) {
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    const std::uint32_t scale = scales[i / kBlock];
    const float v = in.value(i);
    finite = finite && magnitude(v) < 0x7f800000U;
    codes[i] = Float::pack(v * scale_value(254 - scale));
    in.store_residual(i, Float::unpack(codes[i]) * scale_value(scale));
  }
  return finite;
}

// In fp64 the sum of two codes is exact, so residual_out is rounded once.
template <typename Float>
void add_codes(std::size_t n, const std::uint8_t* scales, std::uint8_t* acc, const std::uint8_t* in,
               float* residual_out) {
  for (std::size_t i = 0; i < n; ++i) {
    const float a = Float::unpack(acc[i]), b = Float::unpack(in[i]);
    acc[i] = Float::pack(a + b);
    if (!residual_out) continue;
    const double lost = double{a} + double{b} - double{Float::unpack(acc[i])};
    residual_out[i] = static_cast<float>(residual_out[i] + lost * scale_value(scales[i / kBlock]));
  }
}

bool find_scales(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales) {
  return in_format(format, [&]<typename Float>(Float) { return find_scales<Float>(in, scales); });
}

bool send(std::uint8_t format, const EncodeInput& in, const std::uint8_t* scales, std::uint8_t* codes) {
  return in_format(format, [&]<typename Float>(Float) { return send_under<Float>(in, scales, codes); });
}

bool encode(std::uint8_t format, const EncodeInput& in, std::uint8_t* scales, std::uint8_t* codes) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const EncodeInput values = block::part(in, first, std::min(kBlock, in.n - first));
    finite = find_scales(format, values, scales) && finite;
    send(format, values, scales++, codes + first);
  }
  return finite;
}

void decode(std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const std::size_t n = out.size();
  codec::merge_values(payloads, how, out, [n](ByteView p, std::size_t i) { return value_at(p, i, n); });
}

void add(std::uint8_t format, std::size_t n, const std::uint8_t* scales, std::uint8_t* acc,
         const std::uint8_t* in, float* residual_out) {
  in_format(format, [&]<typename Float>(Float) { add_codes<Float>(n, scales, acc, in, residual_out); });
}

}  // namespace

const Kernels kReference = {
    .find_scales = find_scales, .send = send, .encode = encode, .decode = decode, .add = add};

}  // namespace tithe::fp8
