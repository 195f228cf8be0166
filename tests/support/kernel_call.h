// SPDX-License-Identifier: Apache-2.0
#pragma once
// A call of kernels as prelude_cuda_bytes.h has it; prelude_cuda_test.cc compares the two.
#include <cstdint>

#include "tithe/seam/codec.h"

namespace tithe::testing {

struct KernelCall {
  double settings[kMaxParams];
  std::uint64_t n, key, shared_key;
  const float *grad, *residual;
  float* residual_out;
  std::uint8_t* payload;
  std::uint64_t payload_bytes;
  const float* base;
  float* out;
  std::uint64_t* bytes;
  std::uint32_t* answer;
  std::uint8_t* scratch;
  const std::uint32_t* agreed[32];
  std::uint32_t agreed_ranks, field_bits;
  void* within[12];
};

}  // namespace tithe::testing
