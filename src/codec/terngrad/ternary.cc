// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad/ternary.h"

namespace tithe::ternary {

Status check(std::string_view codec, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size(codec, payload.size(), bound({}, n)));
  const auto corrupt = [&](const char* what) { return Status(Code::kCorrupt, std::string(codec) + what); };
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t len = std::min(kBlock, n - first);
    const std::uint8_t* block = &payload[first / kBlock * kBlockBytes];
    if (!block::is_scale(wire::get<std::uint32_t>(block)))
      return corrupt(": a block's scale is negative or not finite");
    const std::uint8_t* sent = block + kHead;
    const std::uint8_t* minus = sent + plane_bytes(len);
    unsigned odd = 0;
    for (std::size_t k = 0; k < plane_bytes(len); ++k) odd |= minus[k] & ~unsigned{sent[k]};
    if (odd != 0) return corrupt(": the sign of a value that is not sent");
    if (len % 8 != 0 && sent[len / 8] >> (len % 8) != 0) return corrupt(": a bit past the last value");
  }
  return {};
}

void decode_ref(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out,
                      [n = out.size()](ByteView p, std::size_t i) { return value_of(p.data(), n, i); });
}

}  // namespace tithe::ternary
