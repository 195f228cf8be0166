// SPDX-License-Identifier: Apache-2.0
#include "codec/sidco/sidco.h"

#include <algorithm>
#include <cmath>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"
#include "codec/shared/sparse/sparse_typical.h"
#include "codec/shared/sparse/sparsifier.h"
#include "codec/sidco/sidco_fit.h"

namespace tithe {
namespace sidco {
namespace {

enum Param : std::size_t { kRatio, kFit, kSample, kCap, kForm };
constexpr std::string_view kFits[] = {"exponential", "gamma", "pareto"};
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent, about", {}, Role::kRatio},
    {"fit", 0, 0, 2, "what the magnitudes are taken for; gamma: then Pareto tails", kFits},
    {"sample", 0.02, 1e-4, 1, "fraction of the values that the fit looks at, about"},
    {"cap", 1.3, 1, 100, "most values sent, in units of ratio * n; beyond it exactly ratio * n are"},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

Fit fit_of(const Settings& s) { return static_cast<Fit>(static_cast<int>(s[kFit])); }

select::Limits limits(const Settings& s, std::size_t n) { return select::limits_of(s[kRatio], s[kCap], n); }

std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), limits(s, n).most, n); }
std::size_t typical(const Settings& s, std::size_t n) {
  return sparse::typical(form(s), static_cast<double>(limits(s, n).k), n);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("sidco", n, limits(call.settings, n).most, payload);
}

// A thousand sampled values beyond the threshold: moments vary less than a quantile, and the fraction of the sample
// beyond the threshold is accurate to 3 %.
select::Sample sample_of(const Settings& s, std::size_t n) {
  constexpr double kHits = 1000;
  return select::plan_sample(n, s[kRatio], s[kSample], kHits);
}

// At least the sampled values that reach the threshold are sent, the largest first: kLeast of the ratio if a fit gave
// the threshold (fitted() requires that), else the ratio itself.
double contraction(const Settings& s, std::size_t n) {
  const double reach = kLeast * s[kRatio] * static_cast<double>(sample_of(s, n).count());
  const double sure = std::min(static_cast<double>(limits(s, n).k), std::floor(reach));
  return 1 - sure / static_cast<double>(n) * sparse::kKeptEnergy[static_cast<std::size_t>(form(s).values)];
}

std::uint64_t sample_key(const Call& call) {
  return rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("sidco", in.n));
  TITHE_TRY(codec::check_room("sidco", out.size(), bound(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const select::Sample sample = sample_of(call.settings, in.n);
  const std::vector<float> seen = select::sample_ref(sample, sample_key(call), in);
  std::vector<float> room(seen.size() + kKeptSlack);
  std::uint32_t threshold = fitted(kReference, fit_of(call.settings), ratio, seen, room.data());
  if (threshold == 0) threshold = select::threshold_ref(sample, sample_key(call), ratio, in);
  return select::send_from(threshold, limits(call.settings, in.n), form(call.settings), in, out);
}

// The lists of codec/shared/sparse/select_fast.h, whose work array first holds the sample; then the room for fitted().
struct Layout {
  select::Layout lists;
  std::size_t room;  // elements
  std::size_t bytes() const { return lists.bytes() + 4 * room; }
};
Layout layout(const Settings& s, std::size_t n) {
  const select::Limits limit = limits(s, n);
  const select::Sample sample = sample_of(s, n);
  return {.lists = select::layout(n, std::max(limit.most, 2 * limit.k), sample),
          .room = sample.count() + kKeptSlack};
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return layout(s, n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), limits(s, n).most);
}

Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("sidco", in.n));
  TITHE_TRY(codec::check_room("sidco", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("sidco", call.scratch.size(), scratch(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const select::Sample sample = sample_of(call.settings, in.n);
  const Layout lay = layout(call.settings, in.n);
  const select::Lists lists = lay.lists.at(call.scratch);
  auto* seen = reinterpret_cast<float*>(lists.work);
  auto* room = reinterpret_cast<float*>(call.scratch.data() + lay.lists.bytes());
  select::take_sample(sample, sample_key(call), in, seen);
  std::uint32_t threshold = fitted(kSimd, fit_of(call.settings), ratio, {seen, sample.count()}, room);
  if (threshold == 0)
    threshold = select::threshold_simd(sample, sample_key(call), select::threshold_rank(sample, ratio), in,
                                       lists.work);
  const select::Limits limit = limits(call.settings, in.n);
  return select::gather(in, threshold, limit.k, limit.most, lists, out).encoded;
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<sidco_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace sidco

const Codec sidco_codec = {
    .name = "sidco",
    .doc = "values above a threshold that a fitted distribution gives (Abdelmoniem et al. 2021)",
    .params = sidco::kParams,
    .phases = sidco::kPhases,
    .traits = {.exact_ledger = true, .selects = true, .contraction = sidco::contraction},
    .scratch = sidco::scratch,
    .impls = sidco::kImpls};

std::size_t sidco_typical(const Settings& s, std::size_t n) { return sidco::typical(s, n); }

}  // namespace tithe
