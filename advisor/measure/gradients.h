// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients for measuring codecs.
#include <cstdint>
#include <span>
#include <vector>

namespace tithe::sim {

// bell_values() scaled to the deviation of typical gradients (codec/typical.h), on which the sizes of some codecs
// depend.
std::vector<float> synthetic_gradients(std::size_t n, std::uint64_t seed);

// n values of a job's own gradients, repeated if there are fewer; they start in the middle if the seed is odd. Typical
// ones if `own` is empty.
std::vector<float> gradients_like(std::span<const float> own, std::size_t n, std::uint64_t seed);

}  // namespace tithe::sim
