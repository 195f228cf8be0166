// SPDX-License-Identifier: Apache-2.0
#include "device/ferry.h"

#include <algorithm>
#include <cstring>

namespace tithe::device {
namespace {

constexpr std::size_t kRoom = std::size_t{1} << 21;

}  // namespace

Result<std::shared_ptr<Ferry>> Ferry::open(const Device& on) {
  Result<Stream> stream = on.stream();
  if (!stream.ok()) return stream.status();
  Result<Pinned> room = on.pinned(kRoom);
  if (!room.ok()) return room.status();
  return std::shared_ptr<Ferry>(new Ferry(on, std::move(*stream), std::move(*room)));
}

Status Ferry::up(Address to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (std::size_t at = 0; at < bytes; at += kRoom) {
    const std::size_t piece = std::min(kRoom, bytes - at);
    std::memcpy(room_.data(), static_cast<const std::uint8_t*>(from) + at, piece);
    TITHE_TRY(on_.copy_up(stream_, to + at, room_.data(), piece));
    TITHE_TRY(on_.wait(stream_));
  }
  return {};
}

Status Ferry::down(void* to, Address from, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (std::size_t at = 0; at < bytes; at += kRoom) {
    const std::size_t piece = std::min(kRoom, bytes - at);
    TITHE_TRY(on_.copy_down(stream_, room_.data(), from + at, piece));
    TITHE_TRY(on_.wait(stream_));
    std::memcpy(static_cast<std::uint8_t*>(to) + at, room_.data(), piece);
  }
  return {};
}

Status Ferry::fill_16(Address at, std::uint16_t word, std::size_t words) {
  const std::lock_guard lock(mutex_);
  TITHE_TRY(on_.fill_16(stream_, at, word, words));
  return on_.wait(stream_);
}

Status Ferry::fill_32(Address at, std::uint32_t word, std::size_t words) {
  const std::lock_guard lock(mutex_);
  TITHE_TRY(on_.fill_32(stream_, at, word, words));
  return on_.wait(stream_);
}

Status Ferry::wait_for(const Event& event) {
  const std::lock_guard lock(mutex_);
  return on_.wait_for(stream_, event);
}

}  // namespace tithe::device
