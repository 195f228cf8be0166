// SPDX-License-Identifier: Apache-2.0
#pragma once
// The memory of the fake GPU has two addresses: one that is handed out, which is inaccessible; and one through which
// the fake and its kernels access it while it is allocated, with an inaccessible page behind it.
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tithe::fake {

class GpuMemory {
 public:
  GpuMemory();
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // 0: the addresses are exhausted
  std::uint64_t take(std::size_t bytes, std::uint8_t poison, int owner = 0);
  // False: no block starts at `at`. Reports writes past the block's end in `problem`.
  bool give_back(std::uint64_t at, std::string& problem);
  std::size_t bytes_of(std::uint64_t at) const;              // of the block that starts there; 0: none
  int owner_of(std::uint64_t at) const;                      // the GPU that was current when it was taken
  bool is_alive(std::uint64_t at, std::size_t bytes) const;  // all of it, in one piece
  bool is_within(std::uint64_t at) const { return at >= base() && at - base() < kRoom; }
  std::uint8_t* behind(std::uint64_t at) const { return behind_ + (at - base()); }
  // Converts an address that a kernel computed from an internal address back to the handed-out one; leaves others
  // unchanged.
  std::uint64_t given(std::uint64_t at) const {
    const std::uint64_t first = reinterpret_cast<std::uint64_t>(behind_);
    return at >= first && at - first < kRoom ? base() + (at - first) : at;
  }
  std::size_t used() const { return used_; }
  std::size_t pieces() const { return alive_.size(); }

 private:
  static constexpr std::size_t kRoom = std::size_t{64} << 30, kPage = 4096;
  static constexpr std::uint8_t kBehind = 0xa5;
  static std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
  std::uint64_t base() const { return reinterpret_cast<std::uint64_t>(given_); }

  std::uint8_t *const given_, *const behind_;
  std::size_t next_ = kPage, used_ = 0;
  std::map<std::uint64_t, std::size_t> alive_;  // by address: bytes
  std::map<std::uint64_t, int> owner_;          // by address, until the next reset
};

}  // namespace tithe::fake
