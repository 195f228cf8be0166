// SPDX-License-Identifier: Apache-2.0
#include "feedback/masks.h"

namespace tithe::feedback {

void mask_velocity(const Impl& impl, ByteView payload, float* velocity) {
  impl.clear_sent(payload, velocity);
}

}  // namespace tithe::feedback
