// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a model, from a file of models/ (models/README.md).
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
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
  double backward_ms() const { return tensors.empty() ? 0 : tensors.back().ready_ms; }
};

std::vector<std::string_view> model_names();  // of models/, in the order of the alphabet

// "bert_base", as this build found it in models/; or the path of a file, which has a '/' or ends in .json. Behind
// either ":scale=0.1": every tensor has that fraction of its values, at least one, and is a vector; times stay.
// kInvalid for another name, with the nearest; for a fraction that is not above 0 and at most 1; for a file that is
// no such list, is not in order of readiness, or is larger than 16 MiB. kIo where it cannot be read.
Result<ModelList> open_model(std::string_view text);

using TensorSpan = std::span<const ModelTensor>;
// As DistributedDataParallel fills its buckets, tensors of four bytes per value in order of readiness: one is closed by
// the tensor that brings it to `cap` bytes, the first by the one that brings it to `first`.
std::vector<TensorSpan> buckets_of(const ModelList& list, std::size_t first, std::size_t cap);

}  // namespace tithe::bench
