// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long payloads of gradients are, for those who predict: beside bound(), the most that one may be, and what
// memory is taken for.
//
//   typical   within a tenth of the mean payload of bell-shaped values of the usual deviation, in rounds after which
//             feedback has settled (tests/conformance/typical_suite.cc); bench/results/typical.md has a model's own
//             gradients beside them
//   at most   never above the bound
#include <cstddef>

#include "tithe/seam/codec.h"

namespace tithe::codec {

// The deviation of gradients. Sizes of most codecs do not depend on it; of those with an absolute bound they do.
inline constexpr double kUsualDeviation = 1e-3;

// The bytes that a payload of n gradients is expected to have. For codecs without a line in typical.def: the bound.
std::size_t expected_bytes(const Codec& codec, std::size_t phase, const Settings& settings, std::size_t n);

// True if the size depends on the values: expected_bytes() then holds for gradients like those above, and others may
// have shorter or longer payloads.
bool size_varies(const Codec& codec);

}  // namespace tithe::codec

namespace tithe {
#define TITHE_TYPICAL(name) std::size_t name##_typical(const Settings&, std::size_t n);
#include "codec/typical.def"
#undef TITHE_TYPICAL
}  // namespace tithe
