// SPDX-License-Identifier: Apache-2.0
#pragma once
// While a GPU works on a StateBuffer, both copies of its residual are on the device, and the host has none. The
// device memory stays allocated after to_host(), for the next round.
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/large.h"
#include "device/ferry.h"

namespace tithe::feedback {

// The committed copy and the open round's copy; empty if nothing is stored.
using DoubleBuffer = std::array<LargeFloats, 2>;

class DeviceResidual {
 public:
  bool on_device() const { return on_device_; }
  // Copies n values of both copies to the device. If the transfer fails, they stay in `here`.
  Status to_device(DoubleBuffer& here, std::size_t n, const std::shared_ptr<device::Ferry>& by);
  // Moves both copies back to `here`. If the transfer fails, their contents are not valid.
  Status to_host(DoubleBuffer& here, std::size_t n);
  // Copies one of the two to `here` for reading; valid until the next to_device().
  Status read_copy(DoubleBuffer& here, int which, std::size_t n) const;
  // The address of value `first` of a copy on the device.
  device::Address at(int which, std::size_t first) const { return copies_[which].at() + 4 * first; }

 private:
  std::shared_ptr<device::Ferry> by_;
  std::array<device::Memory, 2> copies_;
  bool on_device_ = false;
};

}  // namespace tithe::feedback
