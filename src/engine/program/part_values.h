// SPDX-License-Identifier: Apache-2.0
#pragma once
// Provides the values of each part as one contiguous range of fp32. If a part's tensors are fp32 and contiguous, that
// is the caller's own memory; otherwise load() copies the values in and unload() copies them out. Parts that are not
// active at the same time share the memory for copies (program.h, "Window"). If the bucket is on a GPU, the mirror of
// its tensors replaces the caller's memory: fetch() copies values from the GPU, and unload() copies them back.
#include <span>
#include <vector>

#include "base/large.h"
#include "engine/device/device_parts.h"
#include "engine/program/bucket.h"
#include "engine/program/convert.h"
#include "engine/program/program.h"
#include "tithe/seam/plan.h"

namespace tithe::engine {

// By part: true if codecs may be unable to use the tensors' own memory in some round.
std::vector<bool> may_be_copied(std::span<const TensorLayout> tensors, const Plan& plan);

class PartValues {
 public:
  // by: the conversions for other types.
  PartValues(std::span<const TensorLayout> tensors, const Plan& plan, const Program& program,
             const Conversions& by);

  // Sets this round's tensors, in the caller's order. gpu: the bucket is on a GPU, which takes some parts, and these
  // tensors are its mirror.
  void begin(std::span<const Tensor> bucket, DeviceParts* gpu = nullptr);
  const std::vector<Tensor>& bucket() const { return bucket_; }  // as in the last begin()
  // Values [first, first + n) of the part.
  Status fetch(int lane, int part, std::size_t first, std::size_t n) {
    return gpu_ == nullptr ? Status{} : gpu_->bring(lane, part, first, n);
  }
  Status load(int part, std::size_t first, std::size_t n);
  Status unload(int lane, int part, std::size_t first, std::size_t n);
  std::span<float> values(int part) const { return at(part).values; }
  void fill_with_nan();  // all of the caller's tensors
  void lend() { tithe::mark_discardable(staged_.data(), sizeof(float) * staged_.size()); }  // between rounds

 private:
  struct Run {
    std::vector<PartShare> shares;
    std::size_t staged_at = 0;  // offset of its copies
    bool may_be_in_place = true;
    bool in_place = true;  // in this round
    std::span<float> values = {};
  };
  const Run& at(int part) const { return runs_[static_cast<std::size_t>(part)]; }

  const Conversions& convert_;
  DeviceParts* gpu_ = nullptr;
  std::vector<Tensor> bucket_;  // in the caller's order
  std::vector<Run> runs_;       // by part
  const std::size_t staged_values_;
  LargeFloats staged_;  // empty until a round needs copies
};

}  // namespace tithe::engine
