// SPDX-License-Identifier: Apache-2.0
#include "support/phase_codecs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "base/finite.h"
#include "codec/shared/common/payload.h"

namespace tithe::testing {
namespace {

bool all_finite(const EncodeInput& in) {
  bool finite = true;
  for (std::size_t i = 0; i < in.n; ++i) finite = finite && is_finite(in.value(i));
  return finite;
}

// ---- shared_step
// Layout   phase 0: f32 step, a power of two or 0      phase 1: n x i16

namespace step {

constexpr float kMaxSteps = 127.0F;

std::size_t bound_step(const Settings&, std::size_t) { return 4; }
std::size_t bound_counts(const Settings&, std::size_t n) { return 2 * n; }
Status check_step(const Call&, std::size_t, ByteView p) {
  TITHE_TRY(codec::check_size("shared_step", p.size(), 4));
  const float s = wire::get<float>(p.data());
  int exponent = 0;
  if (s == 0 || (is_finite(s) && std::frexp(s, &exponent) == 0.5F)) return {};
  return {Code::kCorrupt, "shared_step: the step is no power of two"};
}
Status check_counts(const Call&, std::size_t n, ByteView p) {
  return codec::check_size("shared_step", p.size(), 2 * n);
}

constexpr codec::Check check = codec::by_phase<check_step, check_counts>;

Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  if (call.phase == 0) {
    float most = 0;
    for (std::size_t i = 0; i < in.n; ++i) most = std::max(most, std::fabs(in.value(i)));
    int exponent = 0;
    std::frexp(most / kMaxSteps, &exponent);
    wire::put(out.data(), most > 0 && is_finite(most) ? std::ldexp(1.0F, exponent) : 0.0F);
    return Encoded{4, all_finite(in)};
  }
  const float s = wire::get<float>(call.context.data());
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = in.value(i);
    const auto count = static_cast<std::int16_t>(s > 0 && is_finite(v) ? std::nearbyint(v / s) : 0.0F);
    wire::put(&out[2 * i], count);
    in.store_residual(i, s * static_cast<float>(count));
  }
  return Encoded{2 * in.n, all_finite(in)};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  const float s = wire::get<float>(call.context.data());
  codec::merge_values(payloads, merge, out, [s](ByteView p, std::size_t i) {
    return s * static_cast<float>(wire::get<std::int16_t>(&p[2 * i]));
  });
  return {};
}

Result<Combined> combine_step(const Call&, std::size_t, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("shared_step", in.size(), acc.size()));
  wire::put(acc.data(), std::max(wire::get<float>(acc.data()), wire::get<float>(in.data())));
  return Combined{};
}

Result<Combined> combine_counts(const Call&, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("shared_step", in.size(), acc.size()));
  for (std::size_t i = 0; i < n; ++i)
    wire::put(&acc[2 * i], static_cast<std::int16_t>(wire::get<std::int16_t>(&acc[2 * i]) +
                                                     wire::get<std::int16_t>(&in[2 * i])));
  return Combined{};
}

constexpr Law kMaxLaw[] = {Law::kMax};
constexpr Law kSumLaw[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "step", .laws = kMaxLaw, .bound = bound_step},
                             {.name = "counts", .laws = kSumLaw, .bound = bound_counts}};
constexpr Impl kImpls[] = {codec::reference({.encode = encode,
                                             .decode = decode,
                                             .check = check,
                                             .combine = codec::by_phase<combine_step, combine_counts>})};

}  // namespace step

// ---- led_indices
// Layout   phase 0: u32 count | u32 index[count], increasing      phase 1: count x f32

namespace indices {

std::size_t count_of(std::size_t n) { return (n + 9) / 10; }
std::size_t bound_indices(const Settings&, std::size_t n) { return 4 + 4 * count_of(n); }
std::size_t bound_values(const Settings&, std::size_t n) { return 4 * count_of(n); }

Status check_indices(const Call& call, std::size_t n, ByteView p) {
  TITHE_TRY(codec::check_size("led_indices", p.size(), bound_indices(call.settings, n)));
  std::int64_t last = -1;
  for (std::size_t k = 0; k < count_of(n); ++k) {
    const auto i = std::int64_t{wire::get<std::uint32_t>(&p[4 + 4 * k])};
    if (i <= last || i >= static_cast<std::int64_t>(n)) return {Code::kCorrupt, "led_indices: bad index"};
    last = i;
  }
  return {};
}
Status check_values(const Call& call, std::size_t n, ByteView p) {
  return codec::check_size("led_indices", p.size(), bound_values(call.settings, n));
}

constexpr codec::Check check = codec::by_phase<check_indices, check_values>;

Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const std::size_t count = count_of(in.n);
  if (call.phase == 0) {
    std::vector<std::uint32_t> order(in.n);
    std::iota(order.begin(), order.end(), 0U);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::fabs(in.value(a)) > std::fabs(in.value(b));
    });
    order.resize(count);
    std::sort(order.begin(), order.end());
    wire::put(out.data(), static_cast<std::uint32_t>(count));
    for (std::size_t k = 0; k < count; ++k) wire::put(&out[4 + 4 * k], order[k]);
    return Encoded{4 + 4 * count, all_finite(in)};
  }
  for (std::size_t i = 0; i < in.n; ++i) in.store_residual(i, 0.0F);
  for (std::size_t k = 0; k < count; ++k) {
    const auto i = wire::get<std::uint32_t>(&call.context[4 + 4 * k]);
    wire::put(&out[4 * k], in.value(i));
    in.store_residual(i, in.value(i));
  }
  return Encoded{4 * count, all_finite(in)};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = merge.base ? merge.base[i] : 0.0F;
  for (const ByteView p : payloads)
    for (std::size_t k = 0; k < count_of(out.size()); ++k)
      out[wire::get<std::uint32_t>(&call.context[4 + 4 * k])] += wire::get<float>(&p[4 * k]);
  for (float& v : out) v /= merge.divide;
  return {};
}

Result<Combined> combine(const Call&, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("led_indices", in.size(), acc.size()));
  for (std::size_t k = 0; k < count_of(n); ++k)
    wire::put(&acc[4 * k], wire::get<float>(&acc[4 * k]) + wire::get<float>(&in[4 * k]));
  return Combined{};
}

constexpr Law kLeaderLaw[] = {Law::kLeader};
constexpr Law kSumLaw[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "indices", .laws = kLeaderLaw, .bound = bound_indices},
                             {.name = "values", .laws = kSumLaw, .bound = bound_values}};
constexpr Impl kImpls[] = {
    codec::reference({.encode = encode, .decode = decode, .check = check, .combine = combine})};

}  // namespace indices

// ---- kept_step
// Layout   f32 step, a power of two | n x i32        memory: f32 step; 0: none yet

namespace kept {

constexpr float kMaxCount = 0x1p20F;  // a rank's; those of 256 ranks add up within 32 bits
constexpr float kDefaultCount = 64.0F;

std::size_t memory(const Settings&, std::size_t n) { return n > 0 ? 4 : 0; }
std::size_t bound(const Settings&, std::size_t n) { return 4 + 4 * n; }
Status check(const Call& call, std::size_t n, ByteView p) {
  TITHE_TRY(codec::check_size("kept_step", p.size(), bound(call.settings, n)));
  const float step = wire::get<float>(p.data());
  int exponent = 0;
  if (step > 0 && is_finite(step) && std::frexp(step, &exponent) == 0.5F) return {};
  return {Code::kCorrupt, "kept_step: the step is no power of two"};
}

Result<Encoded> encode(const Call& call, const EncodeInput& in, Bytes out) {
  const float kept = call.memory.empty() ? 0.0F : wire::get<float>(call.memory.data());
  const float step = kept > 0 ? kept : 1.0F;
  wire::put(out.data(), step);
  for (std::size_t i = 0; i < in.n; ++i) {
    const float v = is_finite(in.value(i)) ? in.value(i) : 0.0F;
    const auto count = static_cast<std::int32_t>(std::clamp(std::nearbyint(v / step), -kMaxCount, kMaxCount));
    wire::put(&out[4 + 4 * i], count);
    in.store_residual(i, step * static_cast<float>(count));
  }
  return Encoded{bound(call.settings, in.n), all_finite(in)};
}

Status decode(const Call& call, std::span<const ByteView> payloads, const Merge& merge,
              std::span<float> out) {
  TITHE_TRY(codec::check_all(check, call, payloads, out.size()));
  const auto count = [](ByteView p, std::size_t i) {
    return static_cast<float>(wire::get<std::int32_t>(&p[4 + 4 * i]));
  };
  codec::merge_values(payloads, merge, out,
                      [&](ByteView p, std::size_t i) { return wire::get<float>(p.data()) * count(p, i); });
  if (call.next_memory.empty()) return {};
  float most = 0;
  for (std::size_t i = 0; i < out.size(); ++i) most = std::max(most, std::fabs(count(payloads[0], i)));
  const float step = wire::get<float>(payloads[0].data());
  int exponent = 0;
  std::frexp(step * most / kDefaultCount, &exponent);
  wire::put(call.next_memory.data(), most > 0 ? std::ldexp(1.0F, exponent) : step);
  return {};
}

Result<Combined> combine(const Call&, std::size_t n, Bytes acc, ByteView in, float*) {
  TITHE_TRY(codec::check_size("kept_step", in.size(), acc.size()));
  if (wire::get<float>(acc.data()) != wire::get<float>(in.data()))
    return Status(Code::kCorrupt, "kept_step: ranks remember different steps");
  for (std::size_t i = 1; i <= n; ++i)
    wire::put(&acc[4 * i], wire::get<std::int32_t>(&acc[4 * i]) + wire::get<std::int32_t>(&in[4 * i]));
  return Combined{};
}

constexpr Law kSumLaw[] = {Law::kSum};
constexpr Phase kPhases[] = {{.name = "counts", .laws = kSumLaw, .bound = bound}};
constexpr Impl kImpls[] = {
    codec::reference({.encode = encode, .decode = decode, .check = check, .combine = combine})};

}  // namespace kept
}  // namespace

const Codec shared_step_codec = {.name = "shared_step",
                                 .doc = "whole numbers of a step that all ranks share (test)",
                                 .params = {},
                                 .phases = step::kPhases,
                                 .traits = {.exact_ledger = true, .fixed_size = true},
                                 .scratch = codec::no_scratch,
                                 .impls = step::kImpls};

const Codec led_indices_codec = {.name = "led_indices",
                                 .doc = "the values at indices that one rank picks (test)",
                                 .params = {},
                                 .phases = indices::kPhases,
                                 .traits = {.exact_ledger = true, .fixed_size = true},
                                 .scratch = codec::no_scratch,
                                 .impls = indices::kImpls};

const Codec kept_step_codec = {.name = "kept_step",
                               .doc = "whole numbers of a step that the round before suggests (test)",
                               .params = {},
                               .phases = kept::kPhases,
                               .traits = {.exact_ledger = true, .fixed_size = true},
                               .scratch = codec::no_scratch,
                               .memory = kept::memory,
                               .impls = kept::kImpls};

}  // namespace tithe::testing
