// SPDX-License-Identifier: Apache-2.0
#pragma once
// Provides the values of each part as one contiguous range of fp32. If a part's tensors are fp32 and contiguous, that
// is the caller's own memory; otherwise load() copies the values in and unload() copies them out. Parts that are not
// active at the same time share the memory for copies (program.h, "Window").
#include <span>
#include <vector>

#include "base/large.h"
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

  // Sets this round's tensors, in the caller's order. `elsewhere`, by part: values are not in host memory.
  void begin(std::span<const Tensor> bucket, const std::vector<bool>& elsewhere = {});
  std::vector<Tensor> bucket() const;  // as in the last begin()
  // Values [first, first + n) of the part.
  void load(int part, std::size_t first, std::size_t n);
  void unload(int part, std::size_t first, std::size_t n);
  std::span<float> values(int part) const { return at(part).values; }
  void fill_with_nan();  // all of the caller's tensors
  void lend() { tithe::mark_discardable(staged_.data(), sizeof(float) * staged_.size()); }  // between rounds

 private:
  struct Share {  // the values [from, to) of the bucket, which belong to the run and to the tensor
    std::size_t tensor = 0, from = 0, to = 0;
  };
  struct Run {
    feedback::ValueRange slice;  // of the bucket
    std::vector<Share> shares;
    std::span<float> values;
    std::size_t staged_at = 0;  // offset of its copies
    bool may_be_in_place = true;
    bool in_place = true;  // in this round
  };
  const Run& at(int part) const { return runs_[static_cast<std::size_t>(part)]; }
  template <typename Body>
  void each_share(const Run& run, std::size_t first, std::size_t n, Body body) const;
  const std::span<const TensorLayout> tensors_;
  const Conversions& convert_;
  std::vector<Tensor> bucket_;  // in the order of tensors_
  std::vector<Run> runs_;       // by part
  const std::size_t staged_values_;
  LargeFloats staged_;  // empty until a round needs copies
};

}  // namespace tithe::engine
