// SPDX-License-Identifier: Apache-2.0
#pragma once
// The compiled kernels of a codec, and their launches for several tensors at once. A launch reads a table in GPU memory
// (Batch in prelude_cuda_bytes.h): the calls of each tensor, and the number of its thread blocks.
//
//   planned   a kernel in the generated text lists the launches for a tensor. Its result depends on the tensor's size
//             and settings, not on addresses; it is computed once for all new shapes of a batch, and cached
//   together  tensors whose plans list the same kernels share launches
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lang/cuda/device_lane.h"
#include "lang/cuda/kernel_call.h"

namespace tithe::lang {

// The calls of a batch: `row` calls for each tensor, which run one after the other.
struct BatchCalls {
  std::vector<KernelCall> calls = {};
  std::vector<std::size_t> bounds = {};  // by tensor: the most bytes of a payload that is decoded
  std::size_t row = 1;
  std::size_t tensors() const { return calls.size() / row; }
  std::span<KernelCall> of(std::size_t tensor) { return std::span(calls).subspan(tensor * row, row); }
};

class DeviceKernels {
 public:
  explicit DeviceKernels(device::Module module) : module_(std::move(module)) {}

  // Queues the kernels that `planner` lists for each tensor. finishes: then tithe_finish on the last call of each row.
  Status launch(DeviceLane& lane, const char* planner, BatchCalls& batch, bool finishes = false);
  // Queues one launch of a kernel of prelude_cuda_values.h.
  Status launch_each(DeviceLane& lane, const char* kernel, const BatchCalls& batch);
  static std::size_t each_bytes(std::size_t tensors);  // of the lane's room that launch_each() takes

  struct Memory {  // of a lane
    std::size_t room = 0, scratch = 0;
  };
  // The memory that launch() takes.
  Result<Memory> memory(DeviceLane& lane, const char* planner, BatchCalls& batch);

 private:
  struct Plan {
    struct Launch {
      device::Kernel kernel;
      std::uint64_t blocks = 0;
    };
    std::size_t scratch = 0;
    std::array<std::uint64_t, kScratchPointers> within = {};  // relative to nominal addresses
    std::vector<Launch> launches = {};
    bool runs_kernels_of(const Plan& other) const;
  };
  using Plans = std::vector<std::shared_ptr<const Plan>>;

  Result<device::Kernel> kernel(const device::Device& on, const std::string& name);
  Result<Plans> plans(DeviceLane& lane, const char* planner, BatchCalls& batch);
  Status compute(DeviceLane& lane, const char* planner, const std::map<std::string, KernelCall>& calls);
  Result<Plan> read(const device::Device& on, const KernelPlan& made);
  Status launch_alike(DeviceLane& lane, BatchCalls& batch, const Plans& plans,
                      std::span<const std::size_t> tensors, bool finishes);
  static Status launch(const DeviceLane& lane, device::Kernel kernel, std::uint64_t blocks,
                       const KernelBatch& batch);

  const device::Module module_;
  std::mutex mutex_;  // guards the members below
  std::map<std::string, device::Kernel> kernels_;
  std::map<std::string, std::shared_ptr<const Plan>> plans_;  // by planner and shape
};

}  // namespace tithe::lang
