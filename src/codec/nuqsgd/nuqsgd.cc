// SPDX-License-Identifier: Apache-2.0
#include "codec/nuqsgd/nuqsgd.h"

namespace tithe {
namespace nuqsgd {

void send_from(std::size_t first, std::size_t at, std::uint64_t key, const LevelFormat& format, float norm,
               const Carry& in, std::uint8_t* codes) {
  for (std::size_t i = first; i < in.n; ++i) {
    const float v = in.take(i);
    const float share = norm > 0.0F ? std::fabs(v) / norm : 0.0F;
    const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(at + i)) >> (32 - kFraction);
    const unsigned sign = unsigned{std::signbit(v)} << (format.bits - 1);
    const unsigned code = level_of(share, format.steps(), draw) | sign;
    bit_packing::put(codes, i, format.bits, code);
    in.leave(i, value(code, format, norm));
  }
}

void decode_from(std::size_t first, const LevelFormat& format, std::span<const ByteView> payloads,
                 const Merge& how, std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [format](ByteView p, std::size_t i) {
        const std::uint8_t* bucket = &p[format.start(i >> format.log2_bucket)];
        const unsigned code =
            bit_packing::get(bucket + buckets::kHead, i & (format.bucket() - 1), format.bits);
        return value(code, format, wire::get<float>(bucket));
      },
      first);
}

namespace {

Status check(const Call& call, std::size_t n, ByteView payload) {
  return buckets::check("nuqsgd", call.settings, n, payload);
}

bool encode_ref(const Call& call, const Carry& in, std::uint8_t* out) {
  const LevelFormat format(call.settings);
  const std::uint64_t key = block::key(call);
  bool finite = true;
  buckets::put_top(format, out);
  for (std::size_t first = 0; first < in.n; first += format.bucket()) {
    const Carry bucket = block::part(in, first, std::min(format.bucket(), in.n - first));
    std::uint8_t* to = out + format.start(first >> format.log2_bucket);
    const block::Stats stats = block::stats_of(bucket);
    if (!stats.finite()) {
      finite = false;
      buckets::send_nothing(format, bucket, to);
      continue;
    }
    const float norm = buckets::norm_of(call.settings, bucket, stats);
    std::fill_n(to, format.bucket_bytes(bucket.n), std::uint8_t{0});
    wire::put(to, norm);
    send_from(0, first, key, format, norm, bucket, to + buckets::kHead);
  }
  return finite;
}

void decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                std::span<float> out) {
  decode_from(0, LevelFormat(call.settings), payloads, how, out);
}

// An eighth between powers of two; below the smallest level as in qsgd.
double contraction(const Settings& s, std::size_t n) {
  const LevelFormat format(s);
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, format.bucket()));
  const double least = std::ldexp(1.0, 1 - static_cast<int>(format.steps()));
  return 0.125 + std::min(len * least * least / 4, std::sqrt(len) * least) + 0x1p-20;
}

// Traits::error: the gap between two levels is the lower level; below the smallest level it is the smallest level.
double error(const Settings& s, double value, double largest) {
  const double least = std::ldexp(1.0, 1 - static_cast<int>(LevelFormat(s).steps()));
  return std::max(std::fabs(value), least * buckets::most_norm(s, largest));
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = buckets::bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<nuqsgd_codec, check, kSimd>),
                           codec::reference(block::kImpl<nuqsgd_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace nuqsgd

const Codec nuqsgd_codec = {
    .name = "nuqsgd",
    .doc = "qsgd with powers of two as levels, unbiased (Ramezani-Kebrya et al. 2021)",
    .params = buckets::kParams,
    .phases = nuqsgd::kPhases,
    .traits = buckets::traits(nuqsgd::contraction, nuqsgd::error),
    .scratch = codec::no_scratch,
    .impls = nuqsgd::kImpls};

}  // namespace tithe
