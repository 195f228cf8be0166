// SPDX-License-Identifier: Apache-2.0
#pragma once
// The user's cache: a folder, and files in it, that no other user can write to. Any other folder is refused with the
// cure.
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tithe/status.h"

namespace tithe::lang {

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

// TITHE_CACHE, or else tithe in $XDG_CACHE_HOME or ~/.cache. kUnsupported: none of these is set.
Result<std::string> cache_folder();
// Ok if it belongs to the user, is of this kind, and is not writable by others.
Status check_private(int fd, const std::string& path, mode_t kind);
// Creates the folder if it does not exist.
Result<OpenFile> open_folder(const std::string& path);

}  // namespace tithe::lang
