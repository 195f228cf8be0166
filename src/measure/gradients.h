// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients to measure codecs with.
#include <cstdint>
#include <span>
#include <vector>

namespace tithe::sim {

// bell_values() of the deviation that gradients have (codec/typical.h), on which the sizes of some codecs depend.
std::vector<float> usual_gradients(std::size_t n, std::uint64_t seed);

// n values of a job's own, over and over if they are fewer, from the middle on where the seed is odd; usual ones where
// there are none.
std::vector<float> gradients_like(std::span<const float> own, std::size_t n, std::uint64_t seed);

}  // namespace tithe::sim
