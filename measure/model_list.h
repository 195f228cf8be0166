// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a model, from a file of models/ (models/README.md).
#include <cstddef>
#include <string>
#include <vector>

#include "tithe/status.h"

namespace tithe::bench {

struct ModelTensor {
  std::string name;
  std::size_t values = 0;
  std::size_t row = 0;  // values per row of the matrix that it is
  double ready_ms = 0;  // since backward began
};

struct ModelList {
  std::string model;
  double forward_ms = 0;
  std::vector<ModelTensor> tensors;  // in the order in which they become ready
  std::size_t values() const;
};

// scale: every tensor has this many times fewer values, at least one; above 1 it is a vector. kInvalid for a file that
// is no such list, or not in order of readiness; kIo where it cannot be read.
Result<ModelList> read_model_list(const std::string& path, std::size_t scale = 1);

}  // namespace tithe::bench
