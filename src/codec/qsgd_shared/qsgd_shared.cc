// SPDX-License-Identifier: Apache-2.0
#include "codec/qsgd_shared/qsgd_shared.h"

#include "codec/shared/int_sum/shared_levels.h"

namespace tithe {
namespace qsgd_shared {
namespace {

enum Param : std::size_t { kRanks = 3 };  // after those of codec/shared/levels/buckets.h
constexpr ParamSpec kParams[] = {buckets::kParams[buckets::kBits], buckets::kParams[buckets::kNorm],
                                 buckets::kParams[buckets::kBucket], int_fields::kWorkers};

// Alistarh et al., lemma 3.1. f: the position between two levels, 0 to 1; f (1 - f) is at most 1/4 and at most f.
double contraction(const Settings& s, std::size_t n) {
  const buckets::LevelFormat format(s);
  const auto len = static_cast<double>(std::clamp(n, std::size_t{1}, format.bucket()));
  const double steps = format.steps();
  return std::min(len / (4 * steps * steps), std::sqrt(len) / steps) + 0x1p-20;
}

// A gap between two levels.
double error(const Settings& s, double, double largest) {
  return buckets::most_norm(s, largest) / buckets::LevelFormat(s).steps();
}

buckets::LevelFormat format(const Settings& s) { return buckets::LevelFormat(s); }
unsigned most(const Settings& s) { return static_cast<unsigned>(s[kRanks]); }
constexpr shared_levels::Kind kKind = {format, most, buckets::norm_of};
using Made = shared_levels::Made<qsgd_shared_codec, kKind>;

}  // namespace
}  // namespace qsgd_shared

const Codec qsgd_shared_codec = {
    .name = "qsgd_shared",
    .doc = "qsgd under norms that all ranks share; levels add up (Alistarh et al. 2017)",
    .params = qsgd_shared::kParams,
    .phases = qsgd_shared::Made::kPhases,
    .traits = {.unbiased = true,
               .one_pass_feedback = false,
               .adds_transformed = true,
               .contraction = qsgd_shared::contraction,
               .error = qsgd_shared::error},
    .scratch = codec::no_scratch,
    .impls = qsgd_shared::Made::kImpls};

}  // namespace tithe
