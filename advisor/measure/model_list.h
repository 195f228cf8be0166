// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tensors of a model, read from a file of data/models/ (data/models/README.md).
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
  std::size_t row = 0;  // values per row of its matrix
  double ready_ms = 0;  // since the start of backward
};

struct ModelList {
  std::string model;
  double forward_ms = 0;
  std::vector<ModelTensor> tensors;  // in the order in which they become ready
  std::size_t values() const;
  double backward_ms() const { return tensors.empty() ? 0 : tensors.back().ready_ms; }
};

std::vector<std::string_view> model_names();  // of data/models/, in alphabetical order

// Opens "bert_base", an embedded file of data/models/, or a path, which contains a '/' or ends in .json. A suffix
// ":scale=0.1" gives every tensor that fraction of its values, at least one, as a vector; times do not change. kInvalid
// for an unknown name, with the nearest one; for a scale outside (0, 1]; for a file that is no model list, is not in
// order of readiness, or is larger than 16 MiB. kIo if it cannot be read.
Result<ModelList> open_model(std::string_view text);

using TensorSpan = std::span<const ModelTensor>;
// The buckets of DistributedDataParallel, with four bytes per value: a bucket is closed by the tensor that brings it to
// `cap` bytes, the first one by the tensor that brings it to `first` bytes.
std::vector<TensorSpan> buckets_of(const ModelList& list, std::size_t first, std::size_t cap);
// Likewise, with `cap_mb` MiB, and at most 1 MiB for the first bucket.
std::vector<TensorSpan> buckets_of(const ModelList& list, double cap_mb);

}  // namespace tithe::bench
