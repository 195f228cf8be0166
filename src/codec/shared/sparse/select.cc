// SPDX-License-Identifier: Apache-2.0
#include "codec/shared/sparse/select.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/finite.h"
#include "codec/shared/sparse/sparse.h"

namespace tithe::select {

using sparse::magnitude;

Sample plan_sample(std::size_t n, double ratio, double share, double many_hits) {
  const double values = static_cast<double>(n);
  const double few = kFewHits / ratio;
  const double want = std::min(values, std::max(few, std::min(share * values, many_hits / ratio)));
  const auto lines = static_cast<std::size_t>(std::ceil(want / kLine));
  const bool whole = 2 * lines >= n / kLine;
  return {.n = n, .lines = whole ? 0 : lines};
}

std::size_t threshold_rank(const Sample& sample, double ratio) {
  if (sample.whole()) return sparse::count_of(ratio, sample.n);
  const double rank = std::floor(ratio * static_cast<double>(sample.count()) + 0.5);
  return std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, sample.count());
}

Limits limits_of(double ratio, double cap, std::size_t n) {
  const std::size_t k = sparse::count_of(ratio, n);
  const double most = std::min(std::floor(cap * static_cast<double>(k)), static_cast<double>(n));
  return {.k = k, .most = std::max(k, static_cast<std::size_t>(most))};
}

std::uint32_t threshold_ref(const Sample& sample, std::uint64_t key, double ratio, const EncodeInput& in) {
  std::vector<std::uint32_t> seen(sample.count());
  return threshold_ref(sample, key, ratio, in, seen.data());
}

std::uint32_t threshold_ref(const Sample& sample, std::uint64_t key, double ratio, const EncodeInput& in,
                            std::uint32_t* seen) {
  if (sample.n == 0) return 1;
  const std::size_t count = sample.count();
  for (std::size_t k = 0; k < count; ++k)
    seen[k] = magnitude(in.value(sample.whole() ? k : sample.line(key, k / kLine) + k % kLine));
  std::uint32_t* const nth = seen + (threshold_rank(sample, ratio) - 1);
  std::nth_element(seen, nth, seen + count, std::greater<>{});
  return std::max<std::uint32_t>(*nth, 1);
}

std::vector<float> taken(const EncodeInput& in) {
  std::vector<float> values(in.n);
  for (std::size_t i = 0; i < in.n; ++i) values[i] = in.value(i);
  return values;
}

std::size_t keep_largest(std::size_t k, std::span<const float> values, std::span<std::uint32_t> picked) {
  if (picked.size() <= k) return picked.size();
  std::nth_element(picked.begin(), picked.begin() + static_cast<std::ptrdiff_t>(k), picked.end(),
                   [&](std::uint32_t a, std::uint32_t b) {
                     const std::uint32_t ma = magnitude(values[a]);
                     const std::uint32_t mb = magnitude(values[b]);
                     return ma != mb ? ma > mb : a < b;
                   });
  std::sort(picked.begin(), picked.begin() + static_cast<std::ptrdiff_t>(k));
  return k;
}

Encoded send_ref(const sparse::Form& form, const EncodeInput& in, std::span<const float> values,
                 std::span<const std::uint32_t> picked, Bytes out) {
  if (in.residual_out) std::copy(values.begin(), values.end(), in.residual_out);
  std::vector<float> sent;
  for (const std::uint32_t i : picked) {
    sent.push_back(values[i]);
    if (in.residual_out) in.residual_out[i] = 0.0F;
  }
  return {.bytes = sparse::write(form, in.n, picked, sent.data(), in.residual_out, out),
          .finite = std::all_of(values.begin(), values.end(), [](float v) { return is_finite(v); })};
}

Encoded send_from(std::uint32_t threshold, const Limits& limits, const sparse::Form& form,
                  const EncodeInput& in, Bytes out) {
  const std::vector<float> values = taken(in);
  std::vector<std::uint32_t> picked;
  for (std::size_t i = 0; i < in.n; ++i)
    if (magnitude(values[i]) >= threshold) picked.push_back(static_cast<std::uint32_t>(i));
  if (picked.size() > limits.most) picked.resize(keep_largest(limits.k, values, picked));
  return send_ref(form, in, values, picked, out);
}

}  // namespace tithe::select
