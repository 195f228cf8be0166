// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files of short-lived use: unlike a UniqueFd, an OpenFile stays open in a child of fork().
#include <unistd.h>

#include <cerrno>
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

}  // namespace tithe
