// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bucket's values as its parts need them: those of a part in one run of fp32. Where a part's tensors are fp32 and lie
// back to back, that is the caller's own memory; elsewhere load() copies them in and unload() out again. Parts that are
// not under way together share memory for these copies (Program, "Window").
#include <span>
#include <vector>

#include "base/large.h"
#include "engine/program/bucket.h"
#include "engine/program/convert.h"
#include "engine/program/program.h"
#include "tithe/seam/plan.h"

namespace tithe::engine {

// By part: whether its tensors may lie where codecs cannot use them, in some round.
std::vector<bool> may_be_copied(std::span<const TensorLayout> tensors, const Plan& plan);

class PartValues {
 public:
  // by: what converts tensors of other types.
  PartValues(std::span<const TensorLayout> tensors, const Plan& plan, const Program& program,
             const Conversions& by);

  // Where this round's tensors lie, in the caller's order. `elsewhere`, by part: its values are no matter of this.
  void begin(std::span<const Tensor> bucket, const std::vector<bool>& elsewhere = {});
  std::vector<Tensor> bucket() const;  // as the last begin() had it
  // Values [first, first + n) of the part.
  void load(int part, std::size_t first, std::size_t n);
  void unload(int part, std::size_t first, std::size_t n);
  std::span<float> values(int part) const { return at(part).values; }
  void fill_with_nan();                                                         // all of the caller's tensors
  void lend() { tithe::lend(staged_.data(), sizeof(float) * staged_.size()); }  // between rounds

 private:
  struct Share {  // the values [from, to) of the bucket: the run's and the tensor's
    std::size_t tensor = 0, from = 0, to = 0;
  };
  struct Run {
    feedback::ValueRange slice;  // of the bucket
    std::vector<Share> shares;
    std::span<float> values;
    std::size_t staged_at = 0;  // where its copies go
    bool may_be_in_place = true;
    bool in_place = true;  // this round
  };
  const Run& at(int part) const { return runs_[static_cast<std::size_t>(part)]; }
  template <typename Body>
  void each_share(const Run& run, std::size_t first, std::size_t n, Body body) const;
  const std::span<const TensorLayout> tensors_;
  const Conversions& convert_;
  std::vector<Tensor> bucket_;  // in the order of tensors_
  std::vector<Run> runs_;       // by part
  const std::size_t staged_values_;
  LargeFloats staged_;  // empty until a round copies
};

}  // namespace tithe::engine
