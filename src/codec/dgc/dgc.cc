// SPDX-License-Identifier: Apache-2.0
#include "codec/dgc/dgc.h"

#include <algorithm>

#include "codec/shared/common/payload.h"
#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"
#include "codec/shared/sparse/sparse_typical.h"
#include "codec/shared/sparse/sparsifier.h"

namespace tithe {
namespace dgc {
namespace {

enum Param : std::size_t { kRatio, kSample, kCap, kForm };
constexpr ParamSpec kParams[] = {
    {"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent, about", {}, Role::kRatio},
    {"sample", 0.01, 1e-4, 1, "fraction of the values that the threshold is estimated from, about"},
    {"cap", 1.3, 1, 100, "most values sent, in units of ratio * n; beyond it exactly ratio * n are"},
    sparse::kValuesParam,
    sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

select::Limits limits(const Settings& s, std::size_t n) { return select::limits_of(s[kRatio], s[kCap], n); }

std::uint64_t sample_key(const Call& call) {
  return rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
}

std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), limits(s, n).most, n); }
std::size_t typical(const Settings& s, std::size_t n) {
  return sparse::typical(form(s), static_cast<double>(limits(s, n).k), n);
}

Status check(const Call& call, std::size_t n, ByteView payload) {
  return sparse::check("dgc", n, limits(call.settings, n).most, payload);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("dgc", in.n));
  TITHE_TRY(codec::check_room("dgc", out.size(), bound(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const select::Sample sample = select::plan_sample(in.n, ratio, call.settings[kSample]);
  const std::uint32_t threshold = select::threshold_ref(sample, sample_key(call), ratio, in);
  return select::send_from(threshold, limits(call.settings, in.n), form(call.settings), in, out);
}

select::Layout layout(const Settings& s, std::size_t n) {
  const select::Limits limit = limits(s, n);
  return select::layout(n, std::max(limit.most, 2 * limit.k), select::plan_sample(n, s[kRatio], s[kSample]));
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return layout(s, n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), limits(s, n).most);
}

Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("dgc", in.n));
  TITHE_TRY(codec::check_room("dgc", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("dgc", call.scratch.size(), scratch(call.settings, in.n)));
  const double ratio = call.settings[kRatio];
  const select::Sample sample = select::plan_sample(in.n, ratio, call.settings[kSample]);
  const select::Lists lists = layout(call.settings, in.n).at(call.scratch);
  const std::uint32_t threshold =
      select::threshold_simd(sample, sample_key(call), select::threshold_rank(sample, ratio), in, lists.work);
  const select::Limits limit = limits(call.settings, in.n);
  return select::gather(in, threshold, limit.k, limit.most, lists, out).encoded;
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound}};
constexpr std::span<const Impl> kImpls =
    sparse::kImpls<dgc_codec, kForm, check, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace dgc

const Codec dgc_codec = {.name = "dgc",
                         .doc = "values above a sampled threshold (Lin et al. 2018)",
                         .params = dgc::kParams,
                         .phases = dgc::kPhases,
                         .traits = {.exact_ledger = true, .selects = true},
                         .scratch = dgc::scratch,
                         .impls = dgc::kImpls};

std::size_t dgc_typical(const Settings& s, std::size_t n) { return dgc::typical(s, n); }

}  // namespace tithe
