// SPDX-License-Identifier: Apache-2.0
#pragma once
// Expected payload sizes for gradients, for predictions. Memory is allocated for bound(), the maximum.
//
//   typical   within a tenth of the mean payload of normally distributed values with the typical deviation, after
//             enough rounds for the residual to become stationary (tests/conformance/typical_suite.cc); compared with
//             the gradients of a model in lab/results/typical.md
//   at most   never above the bound
#include <cstddef>

#include "tithe/seam/codec.h"

namespace tithe::codec {

// The typical standard deviation of gradients. Only codecs with an absolute bound depend on it.
inline constexpr double kDefaultDeviation = 1e-3;

// The expected payload size of n gradients in bytes; the bound for codecs without a line in typical.def.
std::size_t expected_bytes(const Codec& codec, std::size_t phase, const Settings& settings, std::size_t n);

// True if the size depends on the values: expected_bytes() then applies to gradients with the distribution above.
bool size_varies(const Codec& codec);

}  // namespace tithe::codec

namespace tithe {
#define TITHE_TYPICAL(name) std::size_t name##_typical(const Settings&, std::size_t n);
#include "codec/typical.def"
#undef TITHE_TYPICAL
}  // namespace tithe
