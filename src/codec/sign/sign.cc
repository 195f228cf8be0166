// SPDX-License-Identifier: Apache-2.0
// sign: of each value its sign, of each block one size (signSGD, J. Bernstein et al., ICML 2018; with the mean
// magnitude as size and with feedback, S. P. Karimireddy et al., ICML 2019).
//
// Layout   per block of kBlock values (the last one may be shorter), back to back:
//          f32 scale, finite and not negative | ceil(len/8) bits, LSB first, 1 = negative; 0 past len
// The mean magnitude is the best single size in the least-squares sense: |x - C(x)|^2 = |x|^2 - |x|_1^2 / len, never
// more than (1 - 1 / len) |x|^2.
#include "base/bytes.h"
#include "codec/block.h"
#include "codec/codes.h"
#include "codec/registry.h"

namespace tithe {
namespace sign {
namespace {

enum Param : std::size_t { kScale };

constexpr std::size_t kBlock = 2048;
constexpr std::size_t kHead = 4;
constexpr std::size_t kBlockBytes = kHead + kBlock / 8;

std::size_t bound(const Settings&, std::size_t n) {
  return n / kBlock * kBlockBytes + (n % kBlock ? kHead + codes::bytes_for(n % kBlock, 1) : 0);
}

Status check(const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("sign", payload.size(), bound(s, n)));
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::uint8_t* block = &payload[first / kBlock * kBlockBytes];
    if (!block::is_scale(wire::get<std::uint32_t>(block)))
      return {Code::kCorrupt, "sign: a block's scale is negative or not finite"};
    if (!codes::ends_clean(block + kHead, std::min(kBlock, n - first), 1))
      return {Code::kCorrupt, "sign: a bit past the last value"};
  }
  return {};
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const auto given = static_cast<float>(call.settings[kScale]);
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    const block::Look found = block::look(values);
    finite = finite && found.finite();
    const float scale = !found.finite() ? 0.0F : given > 0.0F ? given : found.mean(values.n);
    std::fill_n(to, kHead + codes::bytes_for(values.n, 1), std::uint8_t{0});
    wire::put(to, scale);
    for (std::size_t i = 0; i < values.n; ++i) {
      const bool minus = values.take(i) < 0.0F;
      codes::put(to + kHead, i, 1, minus ? 1U : 0U);
      values.leave(i, minus ? -scale : scale);
    }
  }
  return finite;
}

void decode(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [](ByteView p, std::size_t i) {
    const std::uint8_t* block = &p[i / kBlock * kBlockBytes];
    const float scale = wire::get<float>(block);
    return codes::get(block + kHead, i % kBlock, 1) != 0 ? -scale : scale;
  });
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kScale] > 0) return std::numeric_limits<double>::infinity();
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, kBlock)) + 0x1p-20;
}

constexpr ParamSpec kParams[] = {
    {"scale", 0, 0, 1e30, "what a sign stands for; 0 = the mean magnitude of its block"}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<sign_codec, encode>,
                            .decode = block::decode<sign_codec, decode>}};

}  // namespace
}  // namespace sign

const Codec sign_codec = {
    .id = CodecId::sign,
    .name = "sign",
    .doc = "one sign bit per value and a mean magnitude per 2048 (Karimireddy et al. 2019)",
    .params = sign::kParams,
    .phases = sign::kPhases,
    .traits = {.fixed_size = true, .contraction = sign::contraction},
    .scratch = codec::no_scratch,
    .impls = sign::kImpls};

}  // namespace tithe
