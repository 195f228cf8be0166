// SPDX-License-Identifier: Apache-2.0
#pragma once
// The residual of a StateBuffer is on the device while a GPU works on it: both copies are there, and the host has none.
// The device memory stays allocated after to_host(), for the next round.
#include <array>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/large.h"
#include "device/ferry.h"

namespace tithe::feedback {

// The committed copy and the open round's copy; empty if nothing is kept.
using DoubleBuffer = std::array<LargeFloats, 2>;

class DeviceResidual {
 public:
  bool on_device() const { return on_device_; }
  // Copies n values of both copies to the device. If it fails, they stay in `here`.
  Status to_device(DoubleBuffer& here, std::size_t n, const std::shared_ptr<device::Ferry>& by);
  // Copies them back; they are in `here` from now on, even if the copy failed.
  Status to_host(DoubleBuffer& here, std::size_t n);
  // Fills one of `here` for reading, until to_device() is called again.
  Status read_copy(DoubleBuffer& here, int which, std::size_t n) const;
  // The address of value `first` of a copy on the device.
  device::Address at(int which, std::size_t first) const { return copies_[which].at() + 4 * first; }

 private:
  std::shared_ptr<device::Ferry> by_;
  std::array<device::Memory, 2> copies_;
  bool on_device_ = false;
};

}  // namespace tithe::feedback
