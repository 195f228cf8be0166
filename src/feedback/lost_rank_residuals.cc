// SPDX-License-Identifier: Apache-2.0
#include "feedback/lost_rank_residuals.h"

#include "base/finite.h"

namespace tithe::feedback {
namespace {

void discard(LostResidual& booked, float value) {
  booked.values += value != 0.0F ? 1 : 0;
  booked.sum += double{value};
}

// Adds the values [first, last) of `from`, which may be empty, to `to`. booked: null for a velocity, which is not
// part of the ledger.
void add(const std::vector<float>& from, std::size_t first, std::size_t last, std::vector<float>& to,
         LostResidual* booked) {
  if (from.empty() || first == last) return;
  to.resize(from.size());
  for (std::size_t i = first; i < last; ++i) {
    const float sum = to[i] + from[i];
    if (is_finite(sum))
      to[i] = sum;
    else if (booked != nullptr)
      discard(*booked, from[i]);
  }
}

}  // namespace

void redistribute(const ResidualStore::Map& lost, int me, int world, ResidualStore::Map& mine,
                  LostResiduals& book) {
  const auto rank = static_cast<std::size_t>(me), ranks = static_cast<std::size_t>(world);
  for (const auto& [key, from] : lost) {
    TensorState& to = mine[key];
    to.n = from.n;
    // n * rank / ranks, computed without overflow.
    const auto begin = [n = to.n, ranks](std::size_t r) { return n / ranks * r + n % ranks * r / ranks; };
    LostResidual booked;
    add(from.loose_residual, begin(rank), begin(rank + 1), to.loose_residual, &booked);
    add(from.loose_velocity, begin(rank), begin(rank + 1), to.loose_velocity, nullptr);
    if (booked.values != 0) book[key] += booked;
  }
}

void discard(const ResidualStore::Map& lost, LostResiduals& book) {
  for (const auto& [key, from] : lost)
    for (const float v : from.loose_residual)
      if (v != 0.0F) discard(book[key], v);
}

}  // namespace tithe::feedback
