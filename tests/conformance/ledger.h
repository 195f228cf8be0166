// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ledger of a round: what all ranks put in against what came out and what they kept.
#include <algorithm>
#include <cmath>

#include "conformance/law_cases.h"

namespace tithe::testing {

// The largest imbalance of a round, in units of what is allowed; 0 where every value balances to the bit.
//
// Allowed where a codec is not exact: each rank rounds once per value in take(), once in leave(), at most
// `world` times in adding others' payloads and as often in the rounding that it books for a sum law, and the
// final sum rounds `world` times; each by at most half an ulp of a term that is no larger than the sum S of all
// magnitudes that take part. So |imbalance| <= 4 (world + 1) world / world ... <= 4 (world + 1) 2^-24 S. Where payloads
// add in another domain, S is the largest of its tensor's: what is rounded there is spread over many values.
inline double imbalance(const std::vector<Values>& grads, const std::vector<Values>& before,
                        const Values& result, const std::vector<Values>& after, const Traits& traits,
                        bool exact) {
  double worst = 0;
  const auto world = static_cast<double>(grads.size());
  for (std::size_t k = 0; k < result.size(); ++k) {
    std::vector<double> balance, magnitude;
    for (std::size_t i = 0; i < result[k].size(); ++i) {
      balance.push_back(-double{result[k][i]});
      magnitude.push_back(std::fabs(result[k][i]));
      for (std::size_t r = 0; r < grads.size(); ++r) {
        balance[i] += double{grads[r][k][i]} + double{before[r][k][i]} - double{after[r][k][i]};
        magnitude[i] += std::fabs(grads[r][k][i]) + std::fabs(before[r][k][i]) + std::fabs(after[r][k][i]);
      }
    }
    if (traits.adds_transformed && !magnitude.empty())
      std::fill(magnitude.begin(), magnitude.end(), *std::max_element(magnitude.begin(), magnitude.end()));
    for (std::size_t i = 0; i < balance.size(); ++i) {
      // Below the normal floats a rounding takes half of the smallest one.
      const double allowed = exact ? 0 : 4 * (world + 1) * (0x1p-24 * magnitude[i] + 0x1p-150);
      if (balance[i] != 0) worst = std::max(worst, std::fabs(balance[i]) / std::max(allowed, 1e-300));
    }
  }
  return worst;
}

}  // namespace tithe::testing
