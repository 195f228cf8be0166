// SPDX-License-Identifier: Apache-2.0
#include "support/gpu/fake_memory.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace tithe::fake {

namespace {

// Reserves inaccessible addresses. `at`: at this address, replacing the mapping there.
std::uint8_t* nothing(std::uint8_t* at, std::size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at == nullptr ? 0 : MAP_FIXED);
  void* const made = ::mmap(at, bytes, PROT_NONE, flags, -1, 0);
  if (made == MAP_FAILED) std::abort();
  return static_cast<std::uint8_t*>(made);
}

}  // namespace

GpuMemory::GpuMemory() : given_(nothing(nullptr, kRoom)), behind_(nothing(nullptr, kRoom)) {}

GpuMemory::~GpuMemory() {
  ::munmap(given_, kRoom);
  ::munmap(behind_, kRoom);
}

std::uint64_t GpuMemory::take(std::size_t bytes, std::uint8_t poison, int owner) {
  if (pages(bytes) + kPage > kRoom - next_) return 0;
  const std::uint64_t at = base() + next_;
  next_ += pages(bytes) + kPage;
  if (::mprotect(behind(at), pages(bytes), PROT_READ | PROT_WRITE) != 0) std::abort();
  std::memset(behind(at), poison, bytes);
  std::memset(behind(at) + bytes, kBehind, pages(bytes) - bytes);
  alive_[at] = bytes;
  owner_[at] = owner;
  used_ += bytes;
  return at;
}

bool GpuMemory::give_back(std::uint64_t at, std::string& problem) {
  const auto found = alive_.find(at);
  if (found == alive_.end()) return false;
  const std::size_t bytes = found->second;
  for (std::size_t k = bytes; k < pages(bytes); ++k)
    if (behind(at)[k] != kBehind) problem = "something was written behind a piece of memory";
  nothing(behind(at), pages(bytes));
  used_ -= bytes;
  alive_.erase(found);
  return true;
}

std::size_t GpuMemory::bytes_of(std::uint64_t at) const {
  const auto found = alive_.find(at);
  return found == alive_.end() ? 0 : found->second;
}

int GpuMemory::owner_of(std::uint64_t at) const {
  const auto after = owner_.upper_bound(at);
  return after == owner_.begin() ? 0 : std::prev(after)->second;
}

bool GpuMemory::is_alive(std::uint64_t at, std::size_t bytes) const {
  const auto after = alive_.upper_bound(at);
  if (after == alive_.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return at - begin <= size && bytes <= size - (at - begin);
}

}  // namespace tithe::fake
