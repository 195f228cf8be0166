// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels that find numbers of all blocks (Stage::kAll): one that computes a number of each block, and one block of
// threads that goes through them, in the shape of lang/run/reduce.h.
#include "lang/cuda/emit_cuda_text.h"

namespace tithe::lang {

class AllText : public CudaText {
 public:
  using CudaText::CudaText;

 protected:
  bool looks() const { return !schedule_.looked.reduce.empty(); }
  void numbers_of_all();
  // A phase in which all that encode finds before it sends is known, with one more argument.
  void open_sending(const std::string& name, const char* also);

 private:
  void add_numbers();
  void end_numbers();
  // Places between the numbers of blocks, each of which has room of eight bytes.
  unsigned numbers_in_8(int k) const {
    return node(k).type == Type::kF64 ? 1 : node(k).type == Type::kBool ? 8 : 2;
  }
};

}  // namespace tithe::lang
