// SPDX-License-Identifier: Apache-2.0
// terngrad_shared: -scale, 0 or scale, at random so that the mean is the value, under a scale that all ranks share
// (W. Wen et al., NeurIPS 2017, section 3.2: the largest of all workers' scales). So the signs of W ranks add up to a
// whole number from -W to W. Layout in codec/shared_levels.h, with bits = 2 and buckets of 1024 values.
#include "codec/registry.h"
#include "codec/shared_levels.h"
#include "codec/terngrad_scale.h"

namespace tithe {
namespace terngrad_shared {
namespace {

enum Param : std::size_t { kCut, kRanks };
constexpr ParamSpec kParams[] = {terngrad::kCutParam, lane::kWorkers};

buckets::Shape shape(const Settings&) {
  buckets::Shape shape{Settings{}};
  shape.bits = 2;
  shape.log2_bucket = 10;
  return shape;
}
unsigned most(const Settings& s) { return static_cast<unsigned>(s[kRanks]); }
float scale(const Settings& s, const Carry& bucket, const block::Look& look) {
  return terngrad::scale_of(static_cast<float>(s[kCut]), look, bucket.n);
}
constexpr shared_levels::Kind kKind = {shape, most, scale};
using Made = shared_levels::Made<terngrad_shared_codec, kKind>;

}  // namespace
}  // namespace terngrad_shared

const Codec terngrad_shared_codec = {
    .id = CodecId::terngrad_shared,
    .name = "terngrad_shared",
    .doc = "terngrad under scales that all ranks share; signs add up (Wen et al. 2017)",
    .params = terngrad_shared::kParams,
    .phases = terngrad_shared::Made::kPhases,
    .traits = {.unbiased = true,
               .one_pass_feedback = false,
               .adds_transformed = true,
               .contraction = terngrad::contraction},
    .scratch = codec::no_scratch,
    .impls = terngrad_shared::Made::kImpls};

}  // namespace tithe
