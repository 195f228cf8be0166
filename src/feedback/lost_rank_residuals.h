// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residuals of a lost rank. Each survivor adds a slice of each tensor to its own residual, or one rank books all.
//
//   whole    every value goes to one rank: no value is divided, and only the sum with that rank's residual is rounded
//   booked   values whose sum would not be finite are booked
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

// Adds the share of rank `me` of `world`, from value n me / world of each tensor on, to `mine`. All states are loose.
void redistribute(const ResidualStore::Map& lost, int me, int world, ResidualStore::Map& mine,
                  LostResiduals& book);
// Books all of `lost`.
void discard(const ResidualStore::Map& lost, LostResiduals& book);

}  // namespace tithe::feedback
