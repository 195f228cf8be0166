// SPDX-License-Identifier: Apache-2.0
#pragma once
// How large values are.
#include <span>

namespace tithe::codec {

// The largest magnitude; a NaN or an infinity where there is one. 0 of none.
float largest_magnitude(std::span<const float> v);

}  // namespace tithe::codec
