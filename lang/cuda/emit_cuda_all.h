// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels for reductions over all blocks (Stage::kAll): one kernel computes a number per block, and a single thread
// block reduces these numbers in the order of lang/run/reduce.h.
#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

class AllText : public CudaText {
 public:
  using CudaText::CudaText;

 protected:
  bool looks() const { return !schedule_.looked.reduce.empty(); }
  void numbers_of_all();
  // Opens a phase in which all results that encode needs before sending are defined; `also` is an additional
  // parameter.
  void open_sending(const std::string& name, const char* also);

 private:
  void add_numbers();
  void end_numbers();
  // The stride between the numbers of consecutive blocks, each of which has eight bytes.
  unsigned numbers_in_8(int k) const {
    return node(k).type == Type::kF64 ? 1 : node(k).type == Type::kBool ? 8 : 2;
  }
};

}  // namespace tithe::lang
