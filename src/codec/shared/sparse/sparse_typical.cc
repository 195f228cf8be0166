// SPDX-License-Identifier: Apache-2.0
// The expected payloads of the sparsifiers that are programs (codecs/*.codec). Settings hold the parameters in the
// order of the program, then `values` and `indices`.
#include "codec/shared/sparse/sparse_typical.h"

#include <algorithm>
#include <cmath>

#include "codec/shared/sparse/select.h"

namespace tithe {

// About k values reach the sampled threshold.
std::size_t dgc_typical(const Settings& s, std::size_t n) {
  return sparse::typical(sparse::form_of(s, 3), static_cast<double>(sparse::count_of(s[0], n)), n);
}

// If more values reach the threshold than the ratio permits, the excess stays in the residual. With h hits in the
// sample, the number of values is about normal with mean 1 and deviation 1 / sqrt(h), relative to the ratio. Cutting
// off the half above 1 lowers the mean by 0.4 deviations.
std::size_t graddrop_typical(const Settings& s, std::size_t n) {
  const select::Sample sample = select::plan_sample(n, s[0], s[1]);
  const auto hits = static_cast<double>(select::threshold_rank(sample, s[0]));
  const double share = sample.whole() ? 1 : 1 - 0.4 / std::sqrt(hits);
  return sparse::typical(sparse::form_of(s, 2), share * static_cast<double>(sparse::count_of(s[0], n)), n);
}

// The residual of a value is a random walk until it passes tau. With tau in units of the typical deviation, the mean
// number of rounds is (tau + 0.58)^2: a random walk exceeds a barrier by 0.58 steps on average (Siegmund 1985).
std::size_t threshold_typical(const Settings& s, std::size_t n) {
  constexpr double kOver = 0.583;
  const double steps = s[0] / codec::kDefaultDeviation + kOver;
  const double share = std::min(1.0, 1 / (steps * steps));
  return sparse::typical(sparse::form_of(s, 1), share * static_cast<double>(n), n);
}

}  // namespace tithe
