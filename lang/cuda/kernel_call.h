// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arguments of kernels, and a launch plan, with the layout of prelude_cuda_bytes.h; prelude_cuda_test.cc compares
// the two.
#include <cstdint>

#include "tithe/seam/codec.h"

namespace tithe::lang {

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
  double divide;
  void* plan;
  void* within[12];
};

inline constexpr unsigned kKernelThreads = 128;              // per thread block
inline constexpr unsigned kEachValues = 8 * kKernelThreads;  // per thread block of prelude_cuda_values.h
inline constexpr std::size_t kMaxLaunches = 64, kMaxKernelName = 56;

struct KernelLaunch {
  std::uint64_t blocks;
  char kernel[kMaxKernelName];
};
struct KernelPlan {
  KernelCall call;
  std::uint64_t scratch, launches;
  KernelLaunch launch[kMaxLaunches];
};

}  // namespace tithe::lang
