// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residuals of a lost rank. Each survivor adds a slice of each tensor to its own residual, or one rank records
// all of them as lost.
//
//   whole    each value goes to one rank: no value is divided, and only the sum with that rank's residual is rounded
//   booked   if a sum would not be finite, the lost rank's value is recorded as lost
#include <map>
#include <string>

#include "feedback/residual_store.h"

namespace tithe::feedback {

struct LostResidual {
  std::uint64_t values = 0;  // non-zero values
  double sum = 0;
  LostResidual& operator+=(const LostResidual& other) {
    values += other.values;
    sum += other.sum;
    return *this;
  }
};
using LostResiduals = std::map<std::string, LostResidual, std::less<>>;  // by key

// Adds the share of rank `me` of `world` to `mine`: from value n * me / world of each tensor on. All states must be
// loose.
void redistribute(const ResidualStore::Map& lost, int me, int world, ResidualStore::Map& mine,
                  LostResiduals& book);
// Records all of `lost` as lost.
void discard(const ResidualStore::Map& lost, LostResiduals& book);

}  // namespace tithe::feedback
