// SPDX-License-Identifier: Apache-2.0
#pragma once
// The user's cache: a folder that nobody else can write to, and files in it of which that is true as well. Another one
// is refused with the cure.
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tithe/status.h"

namespace tithe::lang {

// An open file or folder, which it closes.
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

// As TITHE_CACHE says, else tithe in $XDG_CACHE_HOME or ~/.cache. kUnsupported: there is no place.
Result<std::string> cache_folder();
// Ok if it is the user's, of this kind, and nobody else can write to it.
Status check_private(int fd, const std::string& path, mode_t kind);
// Made where it is not there.
Result<OpenFile> open_folder(const std::string& path);

}  // namespace tithe::lang
