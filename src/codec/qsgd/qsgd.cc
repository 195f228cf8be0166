// SPDX-License-Identifier: Apache-2.0
#include "codec/qsgd/qsgd.h"

#include "codec/shared/levels/qsgd_format.h"

namespace tithe {
namespace qsgd {

void send_from(std::size_t first, std::size_t at, const LevelFormat& format, const Rounding& rounding,
               float norm, const Carry& in, std::uint8_t* codes) {
  const Levels levels(format, norm);
  for (std::size_t i = first; i < in.n; ++i) {
    const int level = rounding.level(in.take(i), at + i);
    bit_packing::put(codes, i, format.bits, levels.code(level));
    in.leave(i, levels.value(level));
  }
}

void decode_from(std::size_t first, const LevelFormat& format, std::span<const ByteView> payloads,
                 const Merge& how, std::span<float> out) {
  codec::merge_values(
      payloads, how, out,
      [format](ByteView p, std::size_t i) {
        const std::uint8_t* bucket = &p[format.start(i >> format.log2_bucket)];
        const Levels levels(format, wire::get<float>(bucket));
        return levels.value(
            levels.level(bit_packing::get(bucket + kHead, i & (format.bucket() - 1), format.bits)));
      },
      first);
}

// Alistarh et al., lemma 3.1. f: the position between two levels, 0 to 1; f (1 - f) is at most 1/4 and at most f.
double contraction(const Settings& s, std::size_t n) {
  const LevelFormat format(s);
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, format.bucket()));
  const double steps = format.steps();
  return std::min(len / (4 * steps * steps), std::sqrt(len) / steps) + 0x1p-20;
}

namespace {

// Whether one of `count` codes is 0, which is not the code of a level.
bool has_zero(const std::uint8_t* codes, std::size_t count, unsigned bits) {
  unsigned found = 0;
  const std::size_t whole = bits == 4 ? count / 2 * 2 : bits == 8 ? count : 0;
  for (std::size_t k = 0; k < whole * bits / 8; ++k)
    found |= unsigned{codes[k] < (bits == 8 ? 1 : 16)} | unsigned{bits == 4 && (codes[k] & 15U) == 0};
  for (std::size_t i = whole; i < count; ++i) found |= unsigned{bit_packing::get(codes, i, bits) == 0};
  return found != 0;
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  TITHE_TRY(buckets::check("qsgd", call.settings, n, payload));
  const LevelFormat format(call.settings);
  for (std::size_t first = 0; first < n; first += format.bucket())
    if (has_zero(&payload[format.start(first >> format.log2_bucket) + kHead],
                 std::min(format.bucket(), n - first), format.bits))
      return {Code::kCorrupt, "qsgd: a code below the lowest level"};
  return {};
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
    send_from(0, first, format, Rounding(key, format, norm), norm, bucket, to + kHead);
  }
  return finite;
}

void decode_ref(const Call& call, std::span<const ByteView> payloads, const Merge& how,
                std::span<float> out) {
  decode_from(0, LevelFormat(call.settings), payloads, how, out);
}

double error(const Settings& s, double, double largest) {
  return buckets::most_norm(s, largest) / LevelFormat(s).steps();
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = buckets::bound}};
constexpr Impl kImpls[] = {codec::simd(block::kImpl<qsgd_codec, check, kSimd>),
                           codec::reference(block::kImpl<qsgd_codec, check, kReference>)};

}  // namespace

const block::Kernels kReference = {.encode = encode_ref, .decode = decode_ref};

}  // namespace qsgd

const Codec qsgd_codec = {
    .name = "qsgd",
    .doc = "even levels up to a bucket's norm, at random, unbiased (Alistarh et al. 2017)",
    .params = buckets::kParams,
    .phases = qsgd::kPhases,
    .traits = buckets::traits(qsgd::contraction, qsgd::error),
    .scratch = codec::no_scratch,
    .impls = qsgd::kImpls};

}  // namespace tithe
