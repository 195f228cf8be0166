// SPDX-License-Identifier: Apache-2.0
// topk: the k values of largest magnitude, exactly; the lower index first among equals. Zeros are never sent.
//
// Layout   codec/sparse.h, at most k = max(1, ceil(ratio * n)) pairs
#include <algorithm>
#include <cmath>

#include "codec/raw.h"
#include "codec/registry.h"
#include "codec/select.h"
#include "codec/select_fast.h"
#include "codec/sparsifier.h"

namespace tithe {
namespace topk {
namespace {

enum Param : std::size_t { kRatio, kForm };
constexpr ParamSpec kParams[] = {{"ratio", 0.01, 1e-6, 1, "fraction of the values that is sent"},
                                 sparse::kValuesParam,
                                 sparse::kIndicesParam};

sparse::Form form(const Settings& s) { return sparse::form_of(s, kForm); }

std::size_t most(const Settings& s, std::size_t n) { return sparse::count_of(s[kRatio], n); }
std::size_t bound(const Settings& s, std::size_t n) { return sparse::bound(form(s), most(s, n), n); }

// What the bound of the fast form is sampled from; it shapes no byte. With h hits, h / ratio values are looked at and
// about 3 k / sqrt(h) candidates are listed in vain, which costs some five times as much each: least in sum at this h.
select::Sample plan_bound(const Settings& s, std::size_t n) {
  const double hits = 8 * s[kRatio] * static_cast<double>(most(s, n));
  return select::plan_sample(n, s[kRatio], 1, std::cbrt(hits * hits));
}

// The tail holds at most its share of the energy; a rounded form takes some of what is sent.
double contraction(const Settings& s, std::size_t n) {
  const double sent = static_cast<double>(most(s, n)) / static_cast<double>(n);
  return 1 - sent * sparse::kKeptEnergy[static_cast<std::size_t>(form(s).values)];
}

Status check(const Settings& s, std::size_t n, ByteView payload) {
  return sparse::check("topk", n, most(s, n), payload);
}

Result<Encoded> encode(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  const std::vector<float> values = select::taken(in);
  std::vector<std::uint32_t> picked;
  for (std::size_t i = 0; i < in.n; ++i)
    if (sparse::magnitude(values[i]) != 0) picked.push_back(static_cast<std::uint32_t>(i));
  select::keep_largest(most(call.settings, in.n), values, picked);
  return select::send_ref(form(call.settings), in, values, picked, out);
}

// Candidates: room for twice what is sent keeps the exact choice rare on data that grows along the way.
select::Layout layout(const Settings& s, std::size_t n) {
  return select::layout(n, 2 * most(s, n), plan_bound(s, n));
}

std::size_t own_scratch(const Settings& s, std::size_t n) { return layout(s, n).bytes(); }
std::size_t scratch(const Settings& s, std::size_t n) {
  return sparse::scratch(form(s), own_scratch(s, n), most(s, n));
}

// A sampled bound that about k + 3 sqrt(k) values reach, one pass that lists those, and the exact choice among
// them. Where fewer than k reach it, the list is put back and everything that is not zero is a candidate.
Result<Encoded> encode_plain(const Call& call, const Carry& in, Bytes out) {
  TITHE_TRY(sparse::check_values("topk", in.n));
  TITHE_TRY(codec::check_room("topk", out.size(), bound(call.settings, in.n)));
  TITHE_TRY(codec::check_scratch("topk", call.scratch.size(), scratch(call.settings, in.n)));
  const std::size_t k = most(call.settings, in.n);
  const select::Sample sample = plan_bound(call.settings, in.n);
  const select::Lists lists = layout(call.settings, in.n).at(call.scratch);
  std::size_t rank = select::threshold_rank(sample, call.settings[kRatio]);
  if (!sample.whole()) {
    rank += 3 + static_cast<std::size_t>(3 * std::sqrt(static_cast<double>(rank)));
    rank = std::min(rank, sample.count());
  }
  const std::uint64_t key = rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
  const std::uint32_t bound = select::threshold_fast(sample, key, rank, in, lists.work);
  select::Gathered got = select::gather(in, bound, k, k, lists, out);
  if (got.count < k && bound > 1) {
    Carry again = in;
    if (in.left) {
      for (std::size_t j = 0; j < got.count; ++j) in.left[lists.index[j]] = lists.value[j];
      again = {.grad = in.left, .residual = nullptr, .left = in.left, .n = in.n};
    }
    got = select::gather(again, 1, k, k, lists, out);
  }
  return got.encoded;
}

constexpr Phase kPhases[] = {{.name = "pairs", .laws = sparse::kLaws, .bound = bound, .check = check}};
constexpr std::span<const Impl> kImpls = sparse::kImpls<topk_codec, kForm, encode, encode_plain, own_scratch>;

}  // namespace
}  // namespace topk

const Codec topk_codec = {.id = CodecId::topk,
                          .name = "topk",
                          .doc = "the largest values, chosen exactly (Aji and Heafield 2017)",
                          .params = topk::kParams,
                          .phases = topk::kPhases,
                          .traits = {.exact_ledger = true, .selects = true, .contraction = topk::contraction},
                          .scratch = topk::scratch,
                          .impls = topk::kImpls};

}  // namespace tithe
