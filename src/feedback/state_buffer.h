// SPDX-License-Identifier: Apache-2.0
#pragma once
// A StateBuffer holds residual and velocity of one tensor that shares no part, or of all tensors of a shared part, in
// memory of its own. So it can be moved to another layout as it is.
#include "feedback/device_residual.h"
#include "feedback/value_range.h"

namespace tithe::feedback {

// The kinds of values that are kept for a tensor.
struct StateKinds {
  bool residual = false;
  bool velocity = false;
};

struct StateBuffer {
  ValueRange values = {};  // of the bucket
  StateKinds needs = {};   // from now on
  bool lossless = false;   // its parts leave no residual
  DoubleBuffer residual = {}, velocity = {};
  DeviceResidual device = {};  // the residual, if it is on a GPU

  void make_room() {
    for (int k = 0; k < 2; ++k) {
      if (needs.residual && !device.on_device()) residual[k].resize(values.n);
      if (needs.velocity) velocity[k].resize(values.n);
    }
  }
};

}  // namespace tithe::feedback
