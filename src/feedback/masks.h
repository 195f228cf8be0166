// SPDX-License-Identifier: Apache-2.0
#pragma once
// Momentum factor masking (Lin et al., ICLR 2018, 3.3): the velocity of a sent value restarts at zero, so that old
// momentum does not act against the present gradient.
#include "tithe/seam/codec.h"

namespace tithe::feedback {

// Clears the velocity at every index that `payload`, of an impl of a codec that selects values, sent.
void mask_velocity(const Impl& impl, ByteView payload, float* velocity);

}  // namespace tithe::feedback
