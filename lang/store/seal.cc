// SPDX-License-Identifier: Apache-2.0
#include "lang/store/seal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "base/open_file.h"

namespace tithe::lang {

namespace {

constexpr char kMagic[16] = "tithe object 1\n";
using Seal = std::array<std::uint8_t, kSealBytes>;

Seal seal_of(const std::uint8_t* bytes, std::size_t count) {
  Seal end{};
  const XXH128_hash_t sum = XXH3_128bits(bytes, count);
  std::memcpy(end.data(), kMagic, sizeof kMagic);
  wire::put(&end[16], std::uint64_t{count});
  wire::put(&end[24], sum.low64);
  wire::put(&end[32], sum.high64);
  std::memcpy(&end[40], kMagic, 8);  // at the end: a truncated file does not end with it
  return end;
}

Status unreadable() { return {Code::kIo, fmt::format("it cannot be read: {}", std::strerror(errno))}; }

Result<std::vector<std::uint8_t>> read_all(int fd) {
  struct stat is {};
  if (::fstat(fd, &is) != 0) return unreadable();
  if (is.st_size > static_cast<off_t>(kMaxSealed)) return Status(Code::kCorrupt, "it is too large");
  std::vector<std::uint8_t> all(static_cast<std::size_t>(is.st_size));
  for (std::size_t at = 0; at < all.size();) {
    const ssize_t got = ::pread(fd, &all[at], all.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable();
    if (got == 0) return Status(Code::kCorrupt, "it was truncated while it was read");
    at += static_cast<std::size_t>(got);
  }
  return all;
}

}  // namespace

Status seal(const std::string& path) {
  OpenFile file(::open(path.c_str(), O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok()) return {Code::kIo, fmt::format("it cannot be opened: {}", std::strerror(errno))};
  const Result<std::vector<std::uint8_t>> all = read_all(file.get());
  if (!all.ok()) return all.status();
  // Some systems report write errors on close.
  if (write_all(file.get(), seal_of(all->data(), all->size())) && file.close_now() == 0) return {};
  return {Code::kIo, fmt::format("it cannot be written to: {}", std::strerror(errno))};
}

Status check_seal(int fd) {
  const Result<std::vector<std::uint8_t>> all = read_all(fd);
  if (!all.ok()) return all.status();
  if (all->empty()) return {Code::kCorrupt, "it is empty"};
  const std::size_t body = all->size() - std::min(all->size(), kSealBytes);
  const std::uint8_t* end = all->data() + body;
  if (all->size() < kSealBytes || std::memcmp(end + 40, kMagic, 8) != 0)
    return {Code::kCorrupt, "it was truncated, or has no checksum"};
  const Seal want = seal_of(all->data(), body);
  if (!std::equal(want.begin(), want.end(), end)) return {Code::kCorrupt, "its checksum does not match"};
  return {};
}

}  // namespace tithe::lang
