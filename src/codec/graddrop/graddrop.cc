// SPDX-License-Identifier: Apache-2.0
#include "codec/graddrop/graddrop.h"

#include <algorithm>
#include <cmath>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"
#include "codec/shared/sparse/sparse_typical.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace graddrop {
namespace {

enum Param : std::size_t { kRatio, kSample, kForm };
constexpr ParamSpec kParams[] = {
    {"ratio",
     0.01,
     1e-6,
     1,
     "most of the values that is sent; 1 - ratio is the drop ratio",
     {},
     Role::kRatio},
    {"sample", 0.001, 1e-4, 1, "fraction of the values that the threshold is estimated from, about"},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }
std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), most(s, n), n); }

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("graddrop", n, most(call.settings, n), payload);
}

select::Sample sample_of(const Settings& s, std::size_t n) {
  return select::plan_sample(n, s[kRatio], s[kSample]);
}

// Where more values reach the threshold than the ratio allows, the rest waits. With h hits in the sample they are
// 1 +- 1 / sqrt(h) of the ratio, near a bell; its half above 1 is cut off: 0.4 of the deviation.
std::size_t typical(const Settings& s, std::size_t n) {
  const select::Sample sample = sample_of(s, n);
  const auto hits = static_cast<double>(select::threshold_rank(sample, s[kRatio]));
  const double share = sample.whole() ? 1 : 1 - 0.4 / std::sqrt(hits);
  return sparse::typical(form(s), share * static_cast<double>(most(s, n)), n);
}

// All values that reach the threshold are sent, largest first: at least the sampled ones among them.
double contraction(const Settings& s, std::size_t n) {
  const std::size_t sure = std::min(most(s, n), select::threshold_rank(sample_of(s, n), s[kRatio]));
  return 1 - static_cast<double>(sure) / static_cast<double>(n) *
                 sparse::kKeptEnergy[static_cast<std::size_t>(form(s).values)];
}

std::uint64_t sample_key(const Call& call) {
  return rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("graddrop", in.n));
  TITHE_TRY(codec::check_room("graddrop", out.size(), bound(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const std::uint32_t threshold =
      select::threshold_ref(sample_of(call.settings, in.n), sample_key(call), ratio, in);
  return select::send_from(threshold, select::limits_of(ratio, 1, in.n), form(call.settings), in, out);
}

// Room for twice as many candidates as values sent, since the threshold is an estimate.
select::Layout layout(const Settings& s, std::size_t n) {
  return select::layout(n, 2 * most(s, n), sample_of(s, n));
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return layout(s, n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), most(s, n));
}

Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("graddrop", in.n));
  TITHE_TRY(codec::check_room("graddrop", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("graddrop", call.scratch.size(), scratch(call.settings, in.n)));
  const select::Sample sample = sample_of(call.settings, in.n);
  const select::Lists lists = layout(call.settings, in.n).at(call.scratch);
  const std::size_t rank = select::threshold_rank(sample, call.settings[kRatio]);
  const std::uint32_t threshold = select::threshold_simd(sample, sample_key(call), rank, in, lists.work);
  const std::size_t k = most(call.settings, in.n);
  return select::gather(in, threshold, k, k, lists, out).encoded;
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<graddrop_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace graddrop

const Codec graddrop_codec = {
    .name = "graddrop",
    .doc = "values above a sampled threshold, never more than the ratio (Aji and Heafield 2017)",
    .params = graddrop::kParams,
    .phases = graddrop::kPhases,
    .traits = {.exact_ledger = true, .selects = true, .contraction = graddrop::contraction},
    .scratch = graddrop::scratch,
    .impls = graddrop::kImpls};

std::size_t graddrop_typical(const Settings& s, std::size_t n) { return graddrop::typical(s, n); }

}  // namespace tithe
