// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradients that nobody computed, for profiles and replays.
#include <cstdint>
#include <vector>

namespace tithe::sim {

// bell_values() of the deviation that gradients have (codec/typical.h), on which the sizes of some codecs depend.
std::vector<float> usual_gradients(std::size_t n, std::uint64_t seed);

}  // namespace tithe::sim
