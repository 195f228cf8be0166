// SPDX-License-Identifier: Apache-2.0
#pragma once
// A StateBuffer has the residual and velocity of one tensor that shares no part, or of all tensors of a shared part.
// It has its own memory, so it can be moved to another layout unchanged.
#include "feedback/device_residual.h"
#include "feedback/value_range.h"

namespace tithe::feedback {

// The kinds of state of a tensor.
struct StateKinds {
  bool residual = false;
  bool velocity = false;
};

struct StateBuffer {
  ValueRange values = {};  // of the bucket
  StateKinds needs = {};   // for the next rounds
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
