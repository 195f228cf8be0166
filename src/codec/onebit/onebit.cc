// SPDX-License-Identifier: Apache-2.0
#include "codec/onebit/onebit.h"

namespace tithe {
namespace onebit {

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size("onebit", payload.size(), bound(call.settings, n)));
  for (std::size_t first = 0; first < n; first += kBlock) {
    const std::size_t len = std::min(kBlock, n - first);
    const std::uint8_t* block = &payload[first / kBlock * kBlockBytes];
    const float neg = wire::get<float>(block);
    const float pos = wire::get<float>(block + 4);
    if (!is_finite(neg) || !is_finite(pos) || neg > 0.0F || pos < 0.0F)
      return {Code::kCorrupt, "onebit: no mean of block " + std::to_string(first / kBlock)};
    if (len % 8 != 0 && block[kHead + len / 8] >> (len % 8) != 0)
      return {Code::kCorrupt, "onebit: a bit past the last value"};
  }
  return {};
}

namespace {

// A mean reduces the energy of a block by (sum of x)^2 / len, which is at least 1 / len of it.
double contraction(const Settings&, std::size_t n) {
  return 1 - 1 / static_cast<double>(std::clamp(n, std::size_t{1}, kBlock)) + 0x1p-20;
}

bool encode_block(const Carry& in, std::uint8_t* out) {
  Fold<float> sum[2];
  std::size_t count[2] = {};
  bool finite = true;
  std::fill_n(out, block_bytes(in.n), std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    sum[up(v)].add(i, v);
    ++count[up(v)];
    if (up(v)) out[kHead + i / 8] = static_cast<std::uint8_t>(out[kHead + i / 8] | 1U << (i % 8));
  }
  const float means[2] = {mean(sum[0].total(), count[0]), mean(sum[1].total(), count[1])};
  wire::put(&out[0], means[0]);
  wire::put(&out[4], means[1]);
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, means[up(in.take(i))]);
  return finite;
}

bool encode_ref(const Call&, const Carry& in, std::uint8_t* out) {
  bool finite = true;
  for (std::size_t first = 0; first < in.n; first += kBlock) {
    const Carry values = block::part(in, first, std::min(kBlock, in.n - first));
    finite = encode_block(values, out + first / kBlock * kBlockBytes) && finite;
  }
  return finite;
}

void decode_ref(const Call&, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  codec::merge_values(payloads, how, out, [](ByteView p, std::size_t i) {
    return value_of(&p[i / kBlock * kBlockBytes], i % kBlock);
  });
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "signs", .laws = kLaws, .bound = bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<onebit_codec, check, kSimd>),
                           codec::reference(block::kImpl<onebit_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace onebit

const Codec onebit_codec = {.name = "onebit",
                            .doc = "one sign bit per value and two means per 2048 values (Seide et al. 2014)",
                            .params = {},
                            .phases = onebit::kPhases,
                            .traits = {.fixed_size = true, .contraction = onebit::contraction},
                            .scratch = codec::no_scratch,
                            .impls = onebit::kImpls};

}  // namespace tithe
