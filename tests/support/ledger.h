// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ledger of a round: the sum of all ranks' inputs against the result plus all residuals.
#include <algorithm>
#include <cmath>
#include <iomanip>
#include <ostream>

#include "support/law_cases.h"

namespace tithe::testing {

// The value that is furthest out of balance.
struct Imbalance {
  double times = 0;  // relative to the allowed imbalance; 0 if every value balances exactly
  std::size_t tensor = 0, values = 0, value = 0;
  double put_in = 0;    // gradients and residuals before
  double came_out = 0;  // result and residuals after
  double allowed = 0;
  friend std::ostream& operator<<(std::ostream& out, const Imbalance& i) {
    return out << std::setprecision(17) << "tensor " << i.tensor << " of " << i.values << " values, value "
               << i.value << ": the ranks put in " << i.put_in << ", the result and what they keep is "
               << i.came_out << ", allowed are " << i.allowed;
  }
};

// The largest imbalance of a round.
//
// The allowed imbalance of a codec that is not exact: each rank rounds once per value in value(), once in
// store_residual(), at most `world` times in adding other ranks' payloads and as often in the rounding errors booked
// for a sum law, and the final sum rounds `world` times; each rounding is at most half an ulp of a term that is no
// larger than the sum S of all magnitudes. So |imbalance| <= 4 (world + 1) world / world ... <= 4 (world + 1) 2^-24 S.
// If payloads are added in another domain, S is the largest in the tensor, since a rounding error there spreads over
// many values.
inline Imbalance imbalance(const std::vector<Values>& grads, const std::vector<Values>& before,
                           const Values& result, const std::vector<Values>& after, const Traits& traits,
                           bool exact) {
  Imbalance worst;
  const auto world = static_cast<double>(grads.size());
  for (std::size_t k = 0; k < result.size(); ++k) {
    const std::size_t n = result[k].size();
    std::vector<double> put_in(n), came_out(result[k].begin(), result[k].end()), magnitude(n);
    for (std::size_t i = 0; i < n; ++i) magnitude[i] = std::fabs(result[k][i]);
    for (std::size_t r = 0; r < grads.size(); ++r) {
      const float *grad = grads[r][k].data(), *had = before[r][k].data(), *has = after[r][k].data();
      for (std::size_t i = 0; i < n; ++i) {
        put_in[i] += double{grad[i]} + double{had[i]};
        came_out[i] += double{has[i]};
        magnitude[i] += std::fabs(grad[i]) + std::fabs(had[i]) + std::fabs(has[i]);
      }
    }
    if (traits.adds_transformed && !magnitude.empty())
      std::fill(magnitude.begin(), magnitude.end(), *std::max_element(magnitude.begin(), magnitude.end()));
    for (std::size_t i = 0; i < put_in.size(); ++i) {
      // Below the normal floats a rounding takes half of the smallest one.
      const double allowed = exact ? 0 : 4 * (world + 1) * (0x1p-24 * magnitude[i] + 0x1p-150);
      const double off = std::fabs(put_in[i] - came_out[i]);
      const double times = off == 0 ? 0 : off / std::max(allowed, 1e-300);
      if (std::isnan(times) || times > worst.times)
        worst = {times, k, result[k].size(), i, put_in[i], came_out[i], allowed};
    }
  }
  return worst;
}

}  // namespace tithe::testing
