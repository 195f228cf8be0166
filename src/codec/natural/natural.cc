// SPDX-License-Identifier: Apache-2.0
#include "codec/natural/natural.h"

namespace tithe {
namespace natural {

void send_from(std::size_t first, std::size_t at, std::uint64_t key, const Carry& in, std::uint8_t* block) {
  const std::uint32_t base = block[0];
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.take(i);
    const unsigned code = (exponent(v, key, at + i, base) - base) | unsigned{std::signbit(v)} << 7;
    block[1 + i] = static_cast<std::uint8_t>(code);
    in.leave(i, value(code, base));
  }
}

void send_nothing(const Carry& in, std::uint8_t* block) {
  std::fill_n(block, 1 + in.n, std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, 0.0F);
}

void decode_from(std::size_t first, std::span<const ByteView> payloads, const Merge& how,
                 std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [](ByteView p, std::size_t i) {
        const std::uint8_t* block = &p[i / kBlock * kBlockBytes];
        return value(block[1 + i % kBlock], block[0]);
      },
      first);
}

namespace {

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("natural", payload.size(), bound(call.settings, n)));
  for (std::size_t at = 0; at < payload.size(); at += kBlockBytes)
    if (payload[at] == 0 || payload[at] > kTopExponent - kWindow)
      return {Code::kCorrupt, "natural: a block's base is not 1 .. 127"};
  return {};
}

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  const std::uint64_t key = block::key(call);
  const auto send = [&](const block::Stats& stats, std::size_t first, const Carry& values, std::uint8_t* to) {
    to[0] = static_cast<std::uint8_t>(base_of(stats));
    send_from(0, first, key, values, to);
  };
  return block::each(in, kBlock, kBlockBytes, out, send, send_nothing);
}

void decode_ref(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  decode_from(0, payloads, how, out);
}

double contraction(const Settings&, std::size_t) { return 0.125 + 0x1p-20; }

double error(const Settings&, double value, double) { return std::fabs(value); }

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "powers", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<natural_codec, check, kSimd>),
                           codec::reference(block::kImpl<natural_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace natural

const Codec natural_codec = {
    .name = "natural",
    .doc = "a sign and a power of two in 8 bits, at random, unbiased (Horvath et al. 2019)",
    .params = {},
    .phases = natural::kPhases,
    .traits = {.exact_ledger = true,
               .fixed_size = true,
               .unbiased = true,
               .contraction = natural::contraction,
               .error = natural::error},
    .scratch = codec::no_scratch,
    .impls = natural::kImpls};

}  // namespace tithe
