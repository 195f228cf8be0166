// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of short-lived use: unlike a UniqueFd, an OpenFile stays open in a child of fork().
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tithe/byte_view.h"

namespace tithe {

// Owns the descriptor of an open file or folder.
class OpenFile {
 public:
  explicit OpenFile(int fd = -1) : fd_(fd) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  OpenFile(OpenFile&& other) noexcept : fd_(other.release()) {}
  OpenFile& operator=(OpenFile&& other) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  // As close(). Some errors of writing are reported here alone.
  int close_now() { return ::close(release()); }

 private:
  int fd_;
};

// Writes all bytes at the file's position. False: an error, with errno.
inline bool write_all(int fd, ByteView bytes) {
  while (!bytes.empty()) {
    const ::ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}
inline bool write_all(int fd, std::string_view text) {
  return write_all(fd, ByteView(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

// Reads from the descriptor's position to the end of a pipe or file. An error ends it too.
inline std::string read_all(int fd) {
  std::string text;
  char some[4096];
  for (::ssize_t n = 0; (n = ::read(fd, some, sizeof some)) > 0 || (n < 0 && errno == EINTR);)
    if (n > 0) text.append(some, static_cast<std::size_t>(n));
  return text;
}

}  // namespace tithe
