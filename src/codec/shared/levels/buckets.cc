// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/levels/buckets.h"

namespace tithe::buckets {

std::size_t bound(const Settings& s, std::size_t n) {
  const LevelFormat format(s);
  const std::size_t rest = n & (format.bucket() - 1);
  return format.start(n >> format.log2_bucket) + (rest != 0 ? format.bucket_bytes(rest) : 0);
}

Status check(std::string_view codec, const Settings& s, std::size_t n, ByteView payload) {
  TITHE_TRY(codec::check_size(codec, payload.size(), bound(s, n)));
  const auto corrupt = [&](const char* what) { return Status(Code::kCorrupt, std::string(codec) + what); };
  const LevelFormat format(s);
  if (payload[0] != format.bits || payload[1] != format.log2_bucket)
    return corrupt(": other bits or another bucket");
  for (std::size_t first = 0; first < n; first += format.bucket()) {
    const std::uint8_t* bucket = &payload[format.start(first >> format.log2_bucket)];
    if (!block::is_scale(wire::get<std::uint32_t>(bucket)))
      return corrupt(": a norm that is negative or not finite");
    if (!bit_packing::ends_clean(bucket + kHead, std::min(format.bucket(), n - first), format.bits))
      return corrupt(": a bit past the last code");
  }
  return {};
}

float norm_of(const Settings& s, const Carry& bucket, const block::Stats& stats) {
  if (s[kNorm] == 0 || stats.peak == 0) return stats.most();
  Fold<double> sum;  // the squares of floats neither overflow nor vanish
  for (std::size_t i = 0; i < bucket.n; ++i) {
    const double v = bucket.take(i);
    sum.add(i, v * v);
  }
  const double norm = std::min<double>(std::sqrt(sum.total()), std::numeric_limits<float>::max());
  return std::max(static_cast<float>(norm), stats.most());
}

void send_nothing(const LevelFormat& format, const Carry& in, std::uint8_t* out) {
  std::fill_n(out, format.bucket_bytes(in.n), std::uint8_t{0});
  for (std::size_t i = 0; i < in.n; ++i) in.leave(i, 0.0F);
}

void put_top(const LevelFormat& format, std::uint8_t* out) {
  out[0] = static_cast<std::uint8_t>(format.bits);
  out[1] = static_cast<std::uint8_t>(format.log2_bucket);
}

}  // namespace tithe::buckets
