// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/device_lane.h"

#include <algorithm>

namespace tithe::lang {

Result<DeviceLane> DeviceLane::open(const device::Device& on) {
  DeviceLane lane(on);
  Result<device::Stream> stream = on.stream();
  if (!stream.ok()) return stream.status();
  lane.stream_ = std::move(*stream);
  return lane;
}

void DeviceLane::begin() {
  reset(rooms_);
  reset(scratch_);
}

Status DeviceLane::drained(const Status& status) const {
  const Status waited = wait();
  if (!waited.ok()) static_cast<void>(wait());  // a failed call may not have waited
  return status.ok() ? waited : status;
}

void DeviceLane::reset(Pool& pool) {
  if (pool.blocks.size() > 1) pool.blocks.clear();
  pool.used = pool.taken = 0;
}

Result<DeviceRoom> DeviceLane::room(std::size_t bytes) { return take(rooms_, bytes); }

Result<device::Address> DeviceLane::scratch(std::size_t bytes) {
  const Result<DeviceRoom> taken = take(scratch_, bytes);
  if (!taken.ok()) return taken.status();
  return taken->at;
}

Status DeviceLane::reserve(std::size_t room_bytes, std::size_t scratch_bytes) {
  for (const auto& [pool, bytes] : {std::pair{&rooms_, room_bytes}, {&scratch_, scratch_bytes}}) {
    pool->most = std::max(pool->most, bytes);
    if (pool->most == 0 || (pool->blocks.size() == 1 && pool->blocks[0].there.bytes() >= pool->most))
      continue;
    pool->blocks.clear();
    const Status grown = grow(*pool, 0);
    if (!grown.ok()) pool->most = 0;
    TITHE_TRY(grown);
  }
  return {};
}

// The first block of a batch is as large as the largest batch so far.
Status DeviceLane::grow(Pool& pool, std::size_t bytes) {
  Block block;
  const std::size_t size = std::max({bytes, pool.blocks.empty() ? pool.most : 0, kMinBlock});
  Result<device::Memory> there = on_.memory(size);
  if (!there.ok()) return there.status();
  block.there = std::move(*there);
  if (pool.pinned) {
    Result<device::Pinned> here = on_.pinned(size);
    if (!here.ok()) return here.status();
    block.here = std::move(*here);
  }
  pool.blocks.push_back(std::move(block));
  pool.used = 0;
  return {};
}

Result<DeviceRoom> DeviceLane::take(Pool& pool, std::size_t bytes) {
  const std::size_t size = rounded(std::max<std::size_t>(bytes, 1));
  if (pool.blocks.empty() || pool.blocks.back().there.bytes() - pool.used < size) TITHE_TRY(grow(pool, size));
  const Block& block = pool.blocks.back();
  const DeviceRoom taken{pool.pinned ? block.here.data() + pool.used : nullptr, block.there.at() + pool.used};
  pool.used += size;
  pool.taken += size;
  pool.most = std::max(pool.most, pool.taken);
  return taken;
}

}  // namespace tithe::lang
