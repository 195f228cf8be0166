// SPDX-License-Identifier: Apache-2.0
#pragma once
// A holding is what is kept of a tensor that shares no part, or of all tensors that share one, in memory of its own: so
// it can change hands as it is, however tensors are ordered elsewhere.
#include "feedback/device_residual.h"
#include "feedback/value_range.h"

namespace tithe::carry {

// The kinds of values that are kept of a tensor.
struct Own {
  bool residual = false;
  bool velocity = false;
};

struct Holding {
  Slice values = {};      // of the bucket
  Own needs = {};         // from now on
  bool lossless = false;  // its parts leave nothing unsent
  Copies residual = {}, velocity = {};
  Afar afar = {};  // where the residual is, if that is not here

  void make_room() {
    for (int k = 0; k < 2; ++k) {
      if (needs.residual && !afar.away()) residual[k].resize(values.n);
      if (needs.velocity) velocity[k].resize(values.n);
    }
  }
};

}  // namespace tithe::carry
