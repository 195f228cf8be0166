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

// The value of an environment variable; empty if it is unset, or if the process has more rights than its user.
std::string environment(const char* name);

// TITHE_CACHE, or else tithe in $XDG_CACHE_HOME or ~/.cache. kUnsupported: none of these is set.
Result<std::string> cache_folder();
// Ok if it belongs to the user, is of this kind, and is not writable by others.
Status check_private(int fd, const std::string& path, mode_t kind);
// Creates the folder if it does not exist.
Result<OpenFile> open_folder(const std::string& path);
// Removes all but the `most` most recently used files with this ending, and their locks: FILE.lock.
void keep_newest(const std::string& folder, const char* ending, std::size_t most);

}  // namespace tithe::lang
