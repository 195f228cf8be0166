// SPDX-License-Identifier: Apache-2.0
#include "base/finite.h"
#include "codec/shared/common/bit_packing.h"
#include "codec/tbq/tbq.h"

namespace tithe::tbq::literal {

namespace {

enum Code2 : unsigned { kMinus = 0, kZero = 1, kPlus = 2 };

float tau_of(const Settings& s) {
  const float tau = Rule(s).tau;
  return tau > 0.0F ? tau : 1.0F;
}

// (code - 1) tau.
float value(unsigned code, float tau) { return code == kZero ? 0.0F : code == kPlus ? tau : -tau; }

}  // namespace

std::size_t bound(std::size_t n) { return bit_packing::bytes_for(n, 2); }

Status check(std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("tbq", payload.size(), bound(n)));
  if (!bit_packing::ends_clean(payload.data(), n, 2))
    return {Code::kCorrupt, "tbq: a bit past the last value"};
  for (const std::uint8_t byte : payload)
    if ((byte & byte >> 1 & 0x55U) != 0) return {Code::kCorrupt, "tbq: code 3 stands for nothing"};
  return {};
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const float tau = tau_of(call.settings);
  std::fill_n(out, bound(in.n), std::uint8_t{0});
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    const unsigned code = v >= tau ? kPlus : v <= -tau ? kMinus : kZero;
    bit_packing::put(out, i, 2, code);
    in.leave(i, value(code, tau));
  }
  return finite;
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [tau = tau_of(call.settings)](ByteView p, std::size_t i) {
    return value(bit_packing::get(p.data(), i, 2), tau);
  });
}

}  // namespace tithe::tbq::literal
