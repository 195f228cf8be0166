// SPDX-License-Identifier: Apache-2.0
#pragma once
// fp32 values on the GPU of a test, and the way there and back.
#include "lang/cuda/device_program.h"
#include "support/gpu/gpu_here.h"

namespace tithe::testing {

struct OnGpu {
  OnGpu(lang::DeviceLane& of, std::size_t n)
      : lane(&of), memory(there(of.on().memory(4 * n))), pinned(there(of.on().pinned(4 * n))) {}
  OnGpu(lang::DeviceLane& of, std::span<const float> values) : OnGpu(of, values.size()) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(pinned.data()));
    EXPECT_TRUE(of.on().copy_up(of.stream(), memory.at(), pinned.data(), memory.bytes()).ok());
    EXPECT_TRUE(of.on().wait(of.stream()).ok());
  }
  std::vector<float> read() const {
    std::vector<float> values(memory.bytes() / 4);
    EXPECT_TRUE(lane->on().copy_down(lane->stream(), pinned.data(), memory.at(), memory.bytes()).ok());
    EXPECT_TRUE(lane->on().wait(lane->stream()).ok());
    const auto* all = reinterpret_cast<const float*>(pinned.data());
    std::copy(all, all + values.size(), values.begin());
    return values;
  }
  lang::DeviceLane* lane;
  device::Memory memory;
  device::Pinned pinned;
};

}  // namespace tithe::testing
