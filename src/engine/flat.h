// SPDX-License-Identifier: Apache-2.0
#pragma once
// A bucket's values as its parts need them: those of a part in one run of fp32. Where a part's tensors are fp32 and lie
// back to back, that is the caller's own memory; elsewhere load() copies them in and unload() out again.
#include <span>
#include <vector>

#include "engine/bucket.h"
#include "engine/convert.h"
#include "tithe/plan.h"

namespace tithe::engine {

class Flat {
 public:
  // by: what converts tensors of other types.
  Flat(std::span<const TensorLayout> tensors, const Plan& plan, const Conversions& by);

  // Where this round's tensors lie, in the caller's order.
  void begin(std::span<const Tensor> bucket);
  void load(int part);
  void unload(int part);
  std::span<float> values(int part) const { return at(part).values; }
  void fill_with_nan();  // all of the caller's tensors

 private:
  struct Share {  // the values [from, to) of the bucket: the run's and the tensor's
    std::size_t tensor = 0, from = 0, to = 0;
  };
  struct Run {
    carry::Slice slice;  // of the bucket
    std::vector<Share> shares;
    std::span<float> values;
    std::vector<float> staged;  // memory of its own, since the first round that needed it
    bool in_place = true;       // this round
  };
  const Run& at(int part) const { return runs_[static_cast<std::size_t>(part)]; }
  const std::span<const TensorLayout> tensors_;
  const Conversions& convert_;
  std::vector<Tensor> bucket_;  // in the order of tensors_
  std::vector<Run> runs_;       // by part
};

}  // namespace tithe::engine
