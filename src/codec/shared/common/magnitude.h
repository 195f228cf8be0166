// SPDX-License-Identifier: Apache-2.0
#pragma once
// The magnitudes of values.
#include <span>

namespace tithe::codec {

// The largest magnitude; NaN or infinity if there is a non-finite value; 0 for no values.
float largest_magnitude(std::span<const float> v);

}  // namespace tithe::codec
