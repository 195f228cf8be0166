// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad_shared/terngrad_shared.h"

#include "codec/shared/int_sum/shared_levels.h"

namespace tithe {
namespace terngrad_shared {
namespace {

enum Param : std::size_t { kCut, kRanks };
constexpr ParamSpec kParams[] = {{"cut", 0, 0, 100,
                                  "largest scale in standard deviations of its block (published: 2.5); "
                                  "biased; 0 = the largest magnitude"},
                                 int_fields::kWorkers};
constexpr std::size_t kScaledValues = 1024;  // values that share a scale

buckets::LevelFormat format(const Settings&) {
  buckets::LevelFormat format{Settings{}};
  format.bits = 2;
  format.log2_bucket = 10;
  return format;
}
unsigned most(const Settings& s) { return static_cast<unsigned>(s[kRanks]); }
// The standard deviation is estimated as sqrt(pi / 2) mean magnitudes, which is exact for normal values.
float scale(const Settings& s, const Carry& bucket, const block::Stats& stats) {
  const auto cut = static_cast<float>(s[kCut]);
  const float deviation = 1.25331414F * stats.mean(bucket.n);
  return cut > 0.0F ? std::min(cut * deviation, stats.most()) : stats.most();
}
// The worst block has one large value and others of 1 / sqrt(len) of it. Cutting adds less than 1.
double contraction(const Settings& s, std::size_t n) {
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, kScaledValues));
  return (std::sqrt(len) - 1) / 2 + (s[kCut] > 0 ? 1 : 0) + 0x1p-20;
}
constexpr shared_levels::Kind kKind = {format, most, scale};
using Made = shared_levels::Made<terngrad_shared_codec, kKind>;

}  // namespace
}  // namespace terngrad_shared

const Codec terngrad_shared_codec = {
    .name = "terngrad_shared",
    .doc = "terngrad under scales that all ranks share; signs add up (Wen et al. 2017)",
    .params = terngrad_shared::kParams,
    .phases = terngrad_shared::Made::kPhases,
    .traits = {.unbiased = true,
               .one_pass_feedback = false,
               .adds_transformed = true,
               .contraction = terngrad_shared::contraction},
    .scratch = codec::no_scratch,
    .impls = terngrad_shared::Made::kImpls};

}  // namespace tithe
