// SPDX-License-Identifier: Apache-2.0
#include "support/gpu/fake_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tithe::fake {

GpuMemory::GpuMemory() {
  file_ = ::memfd_create("fake_gpu", MFD_CLOEXEC);
  if (file_ < 0 || ::ftruncate(file_, kRoom) != 0) std::abort();
  void* const given = ::mmap(nullptr, kRoom, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  void* const alias = ::mmap(nullptr, kRoom, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
  if (given == MAP_FAILED || alias == MAP_FAILED) std::abort();
  given_ = static_cast<std::uint8_t*>(given);
  alias_ = static_cast<std::uint8_t*>(alias);
}

GpuMemory::~GpuMemory() {
  ::munmap(given_, kRoom);
  ::munmap(alias_, kRoom);
  ::close(file_);
}

std::uint64_t GpuMemory::take(std::size_t bytes, std::uint8_t poison, int owner) {
  if (pages(bytes) + kPage > kRoom - next_) return 0;
  const std::uint64_t at = base() + next_;
  next_ += pages(bytes) + kPage;
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
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<::off_t>(at - base()),
              static_cast<::off_t>(pages(bytes)));
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

void GpuMemory::open(bool to_all) {
  for (const auto& [at, bytes] : alive_)
    if (::mprotect(reinterpret_cast<void*>(at), pages(bytes), to_all ? PROT_READ | PROT_WRITE : PROT_NONE) !=
        0)
      std::abort();
}

}  // namespace tithe::fake
