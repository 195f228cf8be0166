// SPDX-License-Identifier: Apache-2.0
#include "codec/sign/sign.h"

namespace tithe {
namespace sign {

namespace {

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("sign", payload.size(), bound(call.settings, n)));
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::uint8_t* block = &payload[first / kBlock * kBlockBytes];
    if (!block::is_scale(wire::get<std::uint32_t>(block)))
      return {Code::kCorrupt, "sign: a block's scale is negative or not finite"};
    if (!bit_packing::ends_clean(block + kHead, std::min(kBlock, n - first), 1))
      return {Code::kCorrupt, "sign: a bit past the last value"};
  }
  return {};
}

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    std::uint8_t* to = out + first / kBlock * kBlockBytes;
    const block::Stats stats = block::stats_of(values);
    finite = finite && stats.finite();
    const float scale = scale_of(call, stats, values.n);
    std::fill_n(to, block_bytes(values.n), std::uint8_t{0});
    wire::put(to, scale);
    send_from(0, scale, values, to);
  }
  return finite;
}

void decode_ref(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [](ByteView p, std::size_t i) {
    return value_of(&p[i / kBlock * kBlockBytes], i % kBlock);
  });
}

double contraction(const Settings& s, std::size_t n) {
  if (s[kScale] > 0) return std::numeric_limits<double>::infinity();
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, kBlock)) + 0x1p-20;
}

constexpr ParamSpec kParams[] = {
    {"scale", 0, 0, 1e30, "what a sign stands for; 0 = the mean magnitude of its block"}};
constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<sign_codec, check, kSimd>),
                           codec::reference(block::kImpl<sign_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace sign

const Codec sign_codec = {
    .name = "sign",
    .doc = "one sign bit per value and a mean magnitude per 2048 (Karimireddy et al. 2019)",
    .params = sign::kParams,
    .phases = sign::kPhases,
    .traits = {.fixed_size = true, .contraction = sign::contraction},
    .scratch = codec::no_scratch,
    .impls = sign::kImpls};

}  // namespace tithe
