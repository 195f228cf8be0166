// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/int_sum/shared_levels.h"

#include "base/finite.h"

namespace tithe::shared_levels {
namespace {

constexpr std::size_t kTop = 4;  // bytes in front of the norms

unsigned top_of(const LevelFormat& format) { return 2 * format.steps(); }
std::size_t buckets_of(const LevelFormat& format, std::size_t n) {
  return (n + format.bucket() - 1) >> format.log2_bucket;
}
unsigned ranks_of(ByteView norms) { return wire::get<std::uint16_t>(norms.data()); }
float norm_at(ByteView norms, std::size_t bucket) {
  return wire::get<float>(norms.data() + kTop + 4 * bucket);
}

// Calls use(piece's first value, its length, its bucket).
template <typename Use>
void each_piece(const LevelFormat& format, std::size_t n, Use use) {
  const std::size_t piece = std::min(kPiece, format.bucket());
  for (std::size_t first = 0; first < n; first += piece)
    use(first, std::min(piece, n - first), first >> format.log2_bucket);
}

// ---- The reference

bool send(const Bucket& bucket, std::size_t at, const Carry& in, std::uint32_t* numbers) {
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.take(i);
    finite = finite && is_finite(v);
    const int level = bucket.level(v, at + i);
    numbers[i] = static_cast<std::uint32_t>(bucket.zero + level);
    in.leave(i, bucket.value(level));
  }
  return finite;
}

void receive(const Bucket& bucket, unsigned added, bool first, const std::uint32_t* numbers,
             std::size_t count, float* sum) {
  const int zero = bucket.zero * static_cast<int>(added);
  for (std::size_t i = 0; i < count; ++i) {
    const float v = bucket.value(static_cast<int>(numbers[i]) - zero);
    sum[i] = first ? v : sum[i] + v;
  }
}

}  // namespace

const Kernels kReference = {
    .stats = block::stats_of, .send = send, .receive = receive, .fields = int_fields::kReference};

std::size_t Body::bound_norms(const Settings& s, std::size_t n) const {
  return kTop + 4 * buckets_of(kind.format(s), n);
}

std::size_t Body::bound_levels(const Settings& s, std::size_t n) const {
  return int_fields::bytes(n, int_fields::bits_for(top_of(kind.format(s)), kind.most(s)));
}

Status Body::check(const Kernels& with, const Call& call, std::size_t n, ByteView payload) const {
  const Settings& s = call.settings;
  const LevelFormat format = kind.format(s);
  if (call.phase != 0)
    return int_fields::check(with.fields, {codec.name, n, top_of(format), kind.most(s)}, payload);
  TITHE_TRY(codec::check_size(codec.name, payload.size(), bound_norms(s, n)));
  const auto corrupt = [&](const char* what) {
    return Status(Code::kCorrupt, std::string(codec.name) + what);
  };
  if (ranks_of(payload) == 0 || ranks_of(payload) > kind.most(s))
    return corrupt(": more ranks than there may be");
  if (payload[2] != format.bits || payload[3] != format.log2_bucket)
    return corrupt(": other bits or another bucket");
  for (std::size_t b = 0; b < buckets_of(format, n); ++b)
    if (!block::is_scale(wire::get<std::uint32_t>(&payload[kTop + 4 * b])))
      return corrupt(": a norm that is negative or not finite");
  return {};
}

Result<Combined> Body::combine(const Kernels& with, const Call& call, std::size_t n, Bytes acc,
                               ByteView in) const {
  const Settings& s = call.settings;
  const LevelFormat format = kind.format(s);
  if (call.phase != 0) {
    TITHE_TRY(int_fields::add(with.fields, {codec.name, n, top_of(format), kind.most(s)}, call, acc, in));
    return Combined{};
  }
  TITHE_TRY(codec::check_size(codec.name, in.size(), acc.size()));
  TITHE_TRY(check(with, call, n, in));
  TITHE_TRY(int_fields::count({codec.name, n, 0, kind.most(s)}, call, acc, in));
  for (std::size_t b = 0; b < buckets_of(format, n); ++b)
    wire::put(&acc[kTop + 4 * b], std::max(norm_at(acc, b), norm_at(in, b)));
  return Combined{};
}

Result<Encoded> Body::encode(const Kernels& with, const Call& call, const Carry& in, Bytes out) const {
  TITHE_TRY(codec::check_room(codec.name, out.size(), codec.phases[call.phase].bound(call.settings, in.n)));
  const LevelFormat format = kind.format(call.settings);
  bool finite = true;
  if (call.phase == 0) {
    wire::put(out.data(), std::uint16_t{1});
    out[2] = static_cast<std::uint8_t>(format.bits);
    out[3] = static_cast<std::uint8_t>(format.log2_bucket);
    for (std::size_t b = 0; b < buckets_of(format, in.n); ++b) {
      const std::size_t first = b << format.log2_bucket;
      const Carry bucket = block::part(in, first, std::min(format.bucket(), in.n - first));
      const block::Stats stats = with.stats(bucket);
      finite = finite && stats.finite();
      wire::put(&out[kTop + 4 * b], stats.finite() ? kind.norm(call.settings, bucket, stats) : 0.0F);
    }
    return Encoded{bound_norms(call.settings, in.n), finite};
  }
  const unsigned bits = int_fields::bits_for(top_of(format), ranks_of(call.context));
  std::uint32_t numbers[kPiece];
  int_fields::put_head(out.data(), {1, bits});
  each_piece(format, in.n, [&](std::size_t first, std::size_t len, std::size_t b) {
    const Bucket bucket(block::key(call), format, norm_at(call.context, b));
    finite = with.send(bucket, first, block::part(in, first, len), numbers) && finite;
    with.fields.pack(numbers, first, len, bits, out.data());
  });
  return Encoded{int_fields::bytes(in.n, bits), finite};
}

Status Body::decode(const Kernels& with, const Call& call, std::span<const ByteView> payloads,
                    const Merge& how, std::span<float> out) const {
  for (const ByteView p : payloads) TITHE_TRY(check(with, call, out.size(), p));
  const LevelFormat format = kind.format(call.settings);
  const unsigned bits = int_fields::bits_for(top_of(format), ranks_of(call.context));
  for (const ByteView p : payloads)
    if (int_fields::head_of(p).bits != bits || int_fields::head_of(p).added > ranks_of(call.context))
      return {Code::kCorrupt, std::string(codec.name) + ": int fields for another number of ranks"};
  std::uint32_t numbers[kPiece];
  each_piece(format, out.size(), [&](std::size_t first, std::size_t len, std::size_t b) {
    const Bucket bucket(0, format, norm_at(call.context, b));
    float* sum = out.data() + first;
    if (how.base == nullptr && payloads.empty()) std::fill_n(sum, len, 0.0F);
    if (how.base != nullptr && how.base != out.data()) std::copy_n(how.base + first, len, sum);
    for (std::size_t p = 0; p < payloads.size(); ++p) {
      with.fields.unpack(payloads[p].data(), first, len, bits, numbers);
      with.receive(bucket, int_fields::head_of(payloads[p]).added, p == 0 && how.base == nullptr, numbers,
                   len, sum);
    }
    if (how.divide != 1.0F)
      for (std::size_t i = 0; i < len; ++i) sum[i] /= how.divide;
  });
  return {};
}

}  // namespace tithe::shared_levels
