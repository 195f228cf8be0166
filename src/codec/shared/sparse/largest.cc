// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/largest.h"

#include <algorithm>
#include <cmath>

#include "codec/shared/sparse/select.h"
#include "codec/shared/sparse/select_fast.h"

namespace tithe::largest {
namespace {

// The sample from which choose_simd derives its threshold; the payload does not depend on it. With h hits, h / ratio
// values are sampled and about 3 k / sqrt(h) surplus candidates are listed, each at about five times the cost of a
// sampled value. This h minimises the total cost.
select::Sample plan_bound(double ratio, std::size_t n) {
  const double hits = 8 * ratio * static_cast<double>(sparse::count_of(ratio, n));
  return select::plan_sample(n, ratio, 1, std::cbrt(hits * hits));
}

// Room for candidates: twice the values sent, so that the list rarely overflows even if magnitudes grow with the index.
select::Layout layout(double ratio, std::size_t n) {
  return select::layout(n, 2 * sparse::count_of(ratio, n), plan_bound(ratio, n));
}

}  // namespace

std::size_t scratch(double ratio, std::size_t n) { return layout(ratio, n).bytes(); }

Result<Encoded> send_ref(const sparse::Form& form, double ratio, std::size_t block, const EncodeInput& in,
                         Bytes out) {
  const std::vector<float> values = select::taken(in);
  std::vector<std::uint32_t> picked;
  for (std::size_t first = 0; first < in.n; first += block) {
    const std::size_t end = std::min(first + block, in.n);
    std::vector<std::uint32_t> here;
    for (std::size_t i = first; i < end; ++i)
      if (sparse::magnitude(values[i]) != 0) here.push_back(static_cast<std::uint32_t>(i));
    here.resize(select::keep_largest(sparse::count_of(ratio, end - first), values, here));
    picked.insert(picked.end(), here.begin(), here.end());
  }
  return select::send_ref(form, in, values, picked, out);
}

Result<Encoded> choose_ref(const Call&, double ratio, const EncodeInput& in, Bytes out) {
  return send_ref({}, ratio, std::max<std::size_t>(1, in.n), in, out);
}

// Takes a bound from a sample that about k + 3 sqrt(k) values reach, lists these values in one pass, and selects
// exactly among them. If fewer than k reach the bound, it undoes the pass and all nonzero values are candidates.
Result<Encoded> choose_simd(const Call& call, double ratio, const EncodeInput& in, Bytes out) {
  const std::size_t k = sparse::count_of(ratio, in.n);
  const select::Sample sample = plan_bound(ratio, in.n);
  const select::Lists lists = layout(ratio, in.n).at(call.scratch);
  std::size_t rank = select::threshold_rank(sample, ratio);
  if (!sample.whole()) {
    rank += 3 + static_cast<std::size_t>(3 * std::sqrt(static_cast<double>(rank)));
    rank = std::min(rank, sample.count());
  }
  const std::uint64_t key = rng_key(call.seed, call.round, call.tensor, call.chunk, call.phase);
  const std::uint32_t bound = select::threshold_simd(sample, key, rank, in, lists.work);
  select::Gathered got = select::gather(in, bound, k, k, lists, out);
  if (got.count < k && bound > 1) {
    EncodeInput again = in;
    if (in.residual_out) {
      for (std::size_t j = 0; j < got.count; ++j) in.residual_out[lists.index[j]] = lists.value[j];
      again = {.grad = in.residual_out, .residual = nullptr, .residual_out = in.residual_out, .n = in.n};
    }
    got = select::gather(again, 1, k, k, lists, out);
  }
  return got.encoded;
}

}  // namespace tithe::largest
