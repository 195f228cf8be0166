// SPDX-License-Identifier: Apache-2.0
#pragma once
// Copies between a GPU and host memory that is not pinned, through a pinned staging buffer. Calls are synchronous.
// Thread-safe: calls are serialised.
#include <memory>
#include <mutex>

#include "device/device.h"

namespace tithe::device {

class Ferry {
 public:
  static Result<std::shared_ptr<Ferry>> open(const Device& on);
  const Device& on() const { return on_; }

  Status up(Address to, const void* from, std::size_t bytes);
  Status down(void* to, Address from, std::size_t bytes);
  Status fill_16(Address at, std::uint16_t word, std::size_t words);
  Status fill_32(Address at, std::uint32_t word, std::size_t words);
  // Work of later calls starts after the work that the event recorded.
  Status wait_for(const Event& event);

 private:
  Ferry(Device on, Stream stream, Pinned room)
      : on_(std::move(on)), stream_(std::move(stream)), room_(std::move(room)) {}

  const Device on_;
  std::mutex mutex_;
  Stream stream_;
  Pinned room_;
};

}  // namespace tithe::device
