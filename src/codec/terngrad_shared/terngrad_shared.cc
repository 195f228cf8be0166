// SPDX-License-Identifier: Apache-2.0
#include "codec/terngrad_shared/terngrad_shared.h"

#include "codec/shared/int_sum/shared_levels.h"
#include "codec/shared/levels/terngrad_scale.h"

namespace tithe {
namespace terngrad_shared {
namespace {

enum Param : std::size_t { kCut, kRanks };
constexpr ParamSpec kParams[] = {terngrad::kCutParam, int_fields::kWorkers};

buckets::LevelFormat format(const Settings&) {
  buckets::LevelFormat format{Settings{}};
  format.bits = 2;
  format.log2_bucket = 10;
  return format;
}
unsigned most(const Settings& s) { return static_cast<unsigned>(s[kRanks]); }
float scale(const Settings& s, const Carry& bucket, const block::Stats& stats) {
  return terngrad::scale_of(static_cast<float>(s[kCut]), stats, bucket.n);
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
               .contraction = terngrad::contraction,
               .error = terngrad::error},
    .scratch = codec::no_scratch,
    .impls = terngrad_shared::Made::kImpls};

}  // namespace tithe
