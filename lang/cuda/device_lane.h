// SPDX-License-Identifier: Apache-2.0
#pragma once
// A DeviceLane is the GPU resources of one batch at a time: a stream, and memory. Several programs may share a lane.
//
//   batch     begin() starts a batch and reuses the memory of the previous one, whose work must be complete: wait().
//             Memory of a batch is valid until the next begin()
//   steady    memory grows to the largest batch so far, or to a reserved size, and is then reused
#include <cstdint>
#include <vector>

#include "device/device.h"

namespace tithe::lang {

// Pinned memory, and GPU memory of the same size, between which a batch copies.
struct DeviceRoom {
  std::uint8_t* host = nullptr;
  device::Address at = 0;
  DeviceRoom part(std::size_t from) const { return {host + from, at + from}; }
};

class DeviceLane {
 public:
  static Result<DeviceLane> open(const device::Device& on);
  const device::Device& on() const { return on_; }
  const device::Stream& stream() const { return stream_; }

  void begin();
  Status wait() const { return on_.wait(stream_); }
  // Waits, also after a failure, and returns the first failure.
  Status drained(const Status& status) const;
  // Aligned to 256 bytes.
  Result<DeviceRoom> room(std::size_t bytes);
  Result<device::Address> scratch(std::size_t bytes);
  // Copies the first `bytes` bytes of a room to the GPU, or from the GPU.
  Status up(const DeviceRoom& room, std::size_t bytes) const {
    return on_.copy_up(stream_, room.at, room.host, bytes);
  }
  Status down(const DeviceRoom& room, std::size_t bytes) const {
    return on_.copy_down(stream_, room.host, room.at, bytes);
  }
  // Allocates memory for a batch that takes this many bytes. No batch may be active.
  Status reserve(std::size_t room_bytes, std::size_t scratch_bytes);
  // The size of a piece in reserve().
  static constexpr std::size_t rounded(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

 private:
  static constexpr std::size_t kAlign = 256, kMinBlock = 16384;
  // A block of memory; scratch has no pinned part.
  struct Block {
    device::Memory there;
    device::Pinned here;
  };
  // Pieces are cut from blocks. A batch that needs more than one block gets a single larger one the next time.
  struct Pool {
    bool pinned = false;
    std::vector<Block> blocks = {};
    std::size_t used = 0;   // of the last block
    std::size_t taken = 0;  // by this batch
    std::size_t most = 0;   // by any batch
  };
  explicit DeviceLane(device::Device on) : on_(std::move(on)) {}
  static void reset(Pool& pool);
  Status grow(Pool& pool, std::size_t bytes);
  Result<DeviceRoom> take(Pool& pool, std::size_t bytes);

  device::Device on_;
  device::Stream stream_;
  Pool rooms_{.pinned = true}, scratch_;
};

}  // namespace tithe::lang
