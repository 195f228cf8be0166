// SPDX-License-Identifier: Apache-2.0
#pragma once
// A holding is what is kept of a tensor that shares no part, or of all tensors that share one, in memory of its own: so
// it can change hands as it is, however tensors are ordered elsewhere.
#include <array>

#include "base/large.h"
#include "carry/slice.h"

namespace tithe::carry {

// The kinds of values that are kept of a tensor.
struct Own {
  bool residual = false;
  bool velocity = false;
};

// As the last commit left it and as the open round leaves it; empty where nothing is kept.
using Copies = std::array<LargeFloats, 2>;

struct Holding {
  Slice values = {};      // of the bucket
  Own needs = {};         // from now on
  bool lossless = false;  // its parts leave nothing unsent
  Copies residual = {}, velocity = {};

  void make_room() {
    for (int k = 0; k < 2; ++k) {
      if (needs.residual) residual[k].resize(values.n);
      if (needs.velocity) velocity[k].resize(values.n);
    }
  }
};

}  // namespace tithe::carry
