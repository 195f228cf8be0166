// SPDX-License-Identifier: Apache-2.0
#pragma once
// Momentum factor masking (Lin et al., ICLR 2018, 3.3): clears the velocity of each sent value, so that old momentum
// does not act against the current gradient.
#include "tithe/seam/codec.h"

namespace tithe::feedback {

// Clears the velocity at every index in `payload`. The codec of `impl` must select values.
void mask_velocity(const Impl& impl, ByteView payload, float* velocity);

}  // namespace tithe::feedback
