// SPDX-License-Identifier: Apache-2.0
#include "codec/levels/buckets.h"

namespace tithe::buckets {

std::size_t bound(const Settings& s, std::size_t n) {
  const Shape shape(s);
  const std::size_t rest = n & (shape.bucket() - 1);
  return shape.start(n >> shape.log2_bucket) + (rest != 0 ? shape.bucket_bytes(rest) : 0);
}

Status check(std::string_view codec, const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size(codec, payload.size(), bound(s, n)));
  const auto corrupt = [&](const char* what) { return Status(Code::kCorrupt, std::string(codec) + what); };
  const Shape shape(s);
  if (payload[0] != shape.bits || payload[1] != shape.log2_bucket)
    return corrupt(": other bits or another bucket");
  for (std::size_t first = 0; first < n; first += shape.bucket()) {
    const std::uint8_t* bucket = &payload[shape.start(first >> shape.log2_bucket)];
    if (!block::is_scale(wire::get<std::uint32_t>(bucket)))
      return corrupt(": a norm that is negative or not finite");
    if (!bit_packing::ends_clean(bucket + kHead, std::min(shape.bucket(), n - first), shape.bits))
      return corrupt(": a bit past the last code");
  }
  return {};
}

float norm_of(const Settings& s, const Carry& bucket, const block::Look& look) {
  if (s[kNorm] == 0 || look.peak == 0) return look.most();
  Fold<double> sum;  // the squares of floats neither overflow nor vanish
  for (std::size_t i = 0; i < bucket.n; ++i) {
    const double v = bucket.take(i);
    sum.add(i, v * v);
  }
  const double norm = std::min<double>(std::sqrt(sum.total()), std::numeric_limits<float>::max());
  return std::max(static_cast<float>(norm), look.most());
}

void send_nothing(const Shape& shape, const Carry& in, std::uint8_t* out) {
  std::fill_n(out, shape.bucket_bytes(in.n), std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, 0.0F);
}

void put_top(const Shape& shape, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(shape.bits);
  out[1] = static_cast<std::uint8_t>(shape.log2_bucket);
}

}  // namespace tithe::buckets
