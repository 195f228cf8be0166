// SPDX-License-Identifier: Apache-2.0
// nuqsgd: qsgd with the levels 0, 2^-(K - 1), ..., 1/2, 1 times a bucket's norm: closer together where most values
// are (A. Ramezani-Kebrya et al., JMLR 2021).
//
// Layout   codec/buckets.h; a code is sign << (bits - 1) | k, its value 0 where k is 0, else 2^(k - K) * norm,
//          rounded to fp32; K = 2^(bits - 1) - 1
// Between two levels the draw decides so that the mean is the value, to within 2^-23 of the norm.
#include "codec/buckets.h"
#include "codec/registry.h"

namespace tithe {
namespace nuqsgd {
namespace {

using buckets::Shape;

constexpr int kFraction = 23;
constexpr std::uint32_t kOne = 127U << kFraction;  // the bits of 1.0F

// k for a magnitude of `share` of the norm, 0 .. 1; draw: 23 random bits.
unsigned level_of(float share, std::uint32_t most, std::uint32_t draw) {
  const std::uint32_t least = kOne - ((most - 1) << kFraction);  // of the lowest level but 0
  const auto bits = std::bit_cast<std::uint32_t>(share);
  // A float's fraction says how far it is from one power of two to the next: a carry moves to the next.
  if (bits >= least) return ((bits - least + draw) >> kFraction) + 1;
  const float between = std::ldexp(share, static_cast<int>(most) - 1 + kFraction);
  return static_cast<float>(draw) < between ? 1 : 0;
}

float value(unsigned code, const Shape& shape, float norm) {
  const unsigned k = code & shape.steps();
  const float size = k == 0 ? 0.0F : std::ldexp(norm, static_cast<int>(k) - static_cast<int>(shape.steps()));
  return code >> (shape.bits - 1) != 0 ? -size : size;
}

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return buckets::check("nuqsgd", s, n, payload);
}

bool encode(const Call& call, const Carry& in, std::uint8_t* out) {
  const Shape shape(call.settings);
  const std::uint64_t key = block::key(call);
  bool finite = true;
  buckets::put_top(shape, out);
  for (std::size_t first = 0; first < in.n; first += shape.bucket()) {
    const Carry bucket = block::part(in, first, std::min(shape.bucket(), in.n - first));
    std::uint8_t* to = out + shape.start(first >> shape.log2_bucket);
    const block::Look found = block::look(bucket);
    if (!found.finite()) {
      finite = false;
      buckets::send_nothing(shape, bucket, to);
      continue;
    }
    const float norm = buckets::norm_of(call.settings, bucket, found);
    std::fill_n(to, shape.bucket_bytes(bucket.n), std::uint8_t{0});
    wire::put(to, norm);
    for (std::size_t i = 0; i < bucket.n; ++i) {
      const float v = bucket.take(i);
      const float share = norm > 0.0F ? std::fabs(v) / norm : 0.0F;
      const std::uint32_t draw = draw_high(key, static_cast<std::uint32_t>(first + i)) >> (32 - kFraction);
      const unsigned code = level_of(share, shape.steps(), draw) | unsigned{std::signbit(v)}
                                                                       << (shape.bits - 1);
      codes::put(to + buckets::kHead, i, shape.bits, code);
      bucket.leave(i, value(code, shape, norm));
    }
  }
  return finite;
}

void decode(const Call& call, std::span<const ByteView> payloads, const Merge& how, std::span<float> out) {
  const Shape shape(call.settings);
  codec::merge_values(payloads, how, out, [shape](ByteView p, std::size_t i) {
    const std::uint8_t* bucket = &p[shape.start(i >> shape.log2_bucket)];
    const unsigned code = codes::get(bucket + buckets::kHead, i & (shape.bucket() - 1), shape.bits);
    return value(code, shape, wire::get<float>(bucket));
  });
}

// An eighth between powers of two, and below the lowest level as qsgd.
double contraction(const Settings& s, std::size_t n) {
  const Shape shape(s);
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, shape.bucket()));
  const double least = std::ldexp(1.0, 1 - static_cast<int>(shape.steps()));
  return 0.125 + std::min(len * least * least / 4, std::sqrt(len) * least) + 0x1p-20;
}

// Two levels are as far apart as the lower one is large; below the lowest one, by that.
double error(const Settings& s, double value, double largest) {
  const double least = std::ldexp(1.0, 1 - static_cast<int>(Shape(s).steps()));
  return std::max(std::fabs(value), least * buckets::most_norm(s, largest));
}

constexpr Law kLaws[] = {Law::kDecode};
constexpr Phase kPhases[] = {{.name = "levels", .laws = kLaws, .bound = buckets::bound, .check = check}};
constexpr Impl kImpls[] = {{.name = "ref",
                            .usable = codec::always,
                            .encode = block::encode<nuqsgd_codec, encode>,
                            .decode = block::decode<nuqsgd_codec, decode>}};

}  // namespace
}  // namespace nuqsgd

const Codec nuqsgd_codec = {
    .id = CodecId::nuqsgd,
    .name = "nuqsgd",
    .doc = "qsgd with powers of two as levels, unbiased (Ramezani-Kebrya et al. 2021)",
    .params = buckets::kParams,
    .phases = nuqsgd::kPhases,
    .traits = buckets::traits(nuqsgd::contraction, nuqsgd::error),
    .scratch = codec::no_scratch,
    .impls = nuqsgd::kImpls};

}  // namespace tithe
