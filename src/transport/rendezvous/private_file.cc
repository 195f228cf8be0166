// SPDX-License-Identifier: Apache-2.0
// O_EXCL and O_NOFOLLOW keep other users from preparing the file; the reader checks owner and mode on the open
// descriptor.
#include "transport/rendezvous/private_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/open_file.h"

namespace tithe::rendezvous {

namespace fs = std::filesystem;

Status write_private(const fs::path& path, ByteView bytes, uid_t* owner) {
  const OpenFile out(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat s {};
  if (!out.ok() || !write_all(out.get(), bytes) || fstat(out.get(), &s) != 0)
    return {Code::kIo, fmt::format("cannot write {}: {}", path.string(), std::strerror(errno))};
  if (owner != nullptr) *owner = s.st_uid;
  return {};
}

Result<std::optional<Blob>> read_private(const fs::path& path, std::size_t most, uid_t owner) {
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat s {};
  if (!file.ok() || fstat(file.get(), &s) != 0) return std::optional<Blob>();
  if (!S_ISREG(s.st_mode) || s.st_uid != owner || (s.st_mode & 077) != 0)
    return Status(Code::kIo, fmt::format("{} is accessible to other users (owner {}, mode {:o}): remove it, "
                                         "and use a folder that only this user can write to",
                                         path.string(), s.st_uid, s.st_mode & 0777));
  const auto size = static_cast<std::size_t>(s.st_size);
  if (size > most) return std::optional<Blob>();
  Blob bytes(size);
  std::size_t n = 0;
  for (ssize_t some = 1; n < size && some > 0; n += static_cast<std::size_t>(std::max<ssize_t>(some, 0)))
    some = read(file.get(), bytes.data() + n, size - n);
  bytes.resize(n);
  return std::optional<Blob>(std::move(bytes));
}

}  // namespace tithe::rendezvous
