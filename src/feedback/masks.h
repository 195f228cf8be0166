// SPDX-License-Identifier: Apache-2.0
#pragma once
// Momentum factor masking (Lin et al., ICLR 2018, 3.3): the velocity of a value that was sent starts anew, so that old
// momentum does not push where the gradient no longer points.
#include "tithe/seam/codec.h"

namespace tithe::carry {

// Clears the velocity at every index that `payload`, of an impl of a codec that selects values, sent.
void mask_velocity(const Impl& impl, ByteView payload, float* velocity);

}  // namespace tithe::carry
