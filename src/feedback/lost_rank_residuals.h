// SPDX-License-Identifier: Apache-2.0
#pragma once
// An estate is what a lost rank had left unsent. Others take it over, a slice of each tensor each, or it is booked.
//
//   whole    every value goes to one rank: nothing is divided, and rounded is only the sum with what that rank owes
//   booked   what cannot be taken over, since that sum would be no float, is booked
#include <map>
#include <string>

#include "feedback/residual_store.h"

namespace tithe::carry {

struct Booked {
  std::uint64_t values = 0;  // that were not zero
  double sum = 0;
  Booked& operator+=(const Booked& other) {
    values += other.values;
    sum += other.sum;
    return *this;
  }
};
using Book = std::map<std::string, Booked, std::less<>>;  // by key

// Rank `me` of `world` takes over its share of the estate, from value n me / world of each tensor on. All is loose.
void inherit(const Store::Map& estate, int me, int world, Store::Map& mine, Book& book);
// All of it is given up.
void give_up(const Store::Map& estate, Book& book);

}  // namespace tithe::carry
