// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arguments of kernels, and a launch plan, with the layout of prelude_cuda_bytes.h; prelude_cuda_test.cc compares
// the two.
#include <cstdint>

#include "device/device.h"
#include "tithe/seam/codec.h"

namespace tithe::lang {

inline constexpr std::size_t kScratchPointers = 12;

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
  void* within[kScratchPointers];
};

// The argument of a launch: the calls of several tensors, in GPU memory.
struct KernelBatch {
  device::Address calls;  // KernelCall: a row of `row` calls for each tensor
  device::Address ends;   // std::uint64_t: by tensor, the thread blocks of this and all earlier tensors
  std::uint32_t tensors, row, rounds, unused;
};

inline constexpr unsigned kKernelThreads = 128;              // per thread block
inline constexpr unsigned kEachValues = 8 * kKernelThreads;  // per thread block of prelude_cuda_values.h
inline constexpr std::size_t kMaxLaunches = 64, kMaxKernelName = 56;

struct KernelLaunch {
  std::uint64_t blocks;
  char kernel[kMaxKernelName];
};
struct KernelPlan {
  void* within[kScratchPointers];  // of the call
  std::uint64_t scratch, launches;
  KernelLaunch launch[kMaxLaunches];
};

template <typename T>
T* pointer_of(device::Address at) {
  return reinterpret_cast<T*>(at);  // NOLINT(performance-no-int-to-ptr): a device's addresses are numbers
}

}  // namespace tithe::lang
