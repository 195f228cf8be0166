// SPDX-License-Identifier: Apache-2.0
// Reads files with a limit, and writes them atomically: a new file in the same folder is renamed to its target, so a
// reader never reads half a file, also after an interrupt.
#include "file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/open_file.h"
#include "interrupt.h"
#include "output.h"
#include "tithe/limits.h"

namespace tithe::cli {
namespace {

constexpr int kMaxLinks = 40;  // the kernel's limit

Status io(const fs::path& path, std::string_view what, int error) {
  return {Code::kIo, fmt::format("{}: {}: {}", path.string(), what, std::strerror(error))};
}

Status write_into(const fs::path& path, std::string_view text) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed reader is an ordinary error
  // Standard output is not opened by name: a redirected file would be overwritten from its start, and a socket cannot
  // be opened.
  OpenFile out(is_standard_output(path) ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
                                        : open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
  if (out.get() < 0) return io(path, "cannot open", errno);
  if (!write_all(out.get(), text)) return io(path, "cannot write", errno);
  if (out.close_now() != 0) return io(path, "cannot write", errno);
  return {};
}

// The file that a chain of links names, whether it exists or not.
Result<fs::path> end_of_links(const fs::path& path) {
  fs::path at = path;
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(at, error))) return at;
    const fs::path next = fs::read_symlink(at, error);
    if (error) return io(path, "cannot follow", error.value());
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  return io(path, "cannot follow", ELOOP);
}

// Writes a new file and renames it to `path`. `old`: the existing file, or nullptr.
Status replace(const fs::path& path, const struct stat* old, std::string_view text) {
  std::string other = path.string() + ".XXXXXX";
  // Interrupts are blocked until the file is registered for removal; otherwise an interrupt in between would leave it.
  std::optional<HeldInterrupts> held(std::in_place);
  OpenFile out(mkostemp(other.data(), O_CLOEXEC));
  if (out.get() < 0) return io(path, "cannot write a file in the same folder", errno);
  const RemovedIfInterrupted removed(other.c_str());
  held.reset();
  const auto give_up = [&](std::string_view what) {
    const Status s = io(path, what, errno);
    unlink(other.c_str());
    return s;
  };
  if (!write_all(out.get(), text)) return give_up("cannot write");
  const mode_t mask = umask(0);
  umask(mask);
  // Only root may change the owner. For other users the new file is their own, as if they had removed the old one.
  if (old != nullptr && fchown(out.get(), old->st_uid, old->st_gid) != 0 && geteuid() == 0)
    return give_up("cannot keep its owner");
  if (fchmod(out.get(), old != nullptr ? old->st_mode & 07777 : 0666 & ~mask) != 0)
    return give_up("cannot set its mode");
  if (fsync(out.get()) != 0 || out.close_now() != 0) return give_up("cannot write");
  if (rename(other.c_str(), path.c_str()) != 0) return give_up("cannot rename to it");
  return {};
}

}  // namespace

Result<std::vector<std::uint8_t>> read_file(const fs::path& path, std::size_t max_values) {
  const std::size_t most = kReadPerValue * std::min(max_values, kMaxValues) + kReadBeside;
  const auto too_long = [&] {
    return Status(Code::kUnsupported, fmt::format("{}: larger than {} bytes, the limit for --max-values {}",
                                                  path.string(), most, max_values));
  };
  if (path.empty()) return Status(Code::kInvalid, "the name of the input is empty");
  const OpenFile in(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (in.get() < 0) return io(path, "cannot open", errno);
  struct stat file {};
  if (fstat(in.get(), &file) != 0) return io(path, "cannot read", errno);
  if (S_ISDIR(file.st_mode)) return io(path, "cannot read", EISDIR);
  if (S_ISREG(file.st_mode) && static_cast<std::size_t>(file.st_size) > most) return too_long();
  std::vector<std::uint8_t> bytes;
  std::size_t have = 0;
  for (;;) {
    // One byte more than allowed, to detect a longer input.
    if (have == bytes.size()) bytes.resize(std::min(most + 1, have + (std::size_t{1} << 20) + have / 2));
    const ssize_t n = read(in.get(), bytes.data() + have, bytes.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io(path, "cannot read", errno);
    if (n == 0) break;
    have += static_cast<std::size_t>(n);
    if (have > most) return too_long();
  }
  bytes.resize(have);
  return bytes;
}

Status write_file(const fs::path& path, std::string_view text) {
  if (path.empty()) return {Code::kInvalid, "the name of the output is empty"};
  if (is_standard_output(path)) return write_into(path, text);
  struct stat old {};
  const bool there = stat(path.c_str(), &old) == 0;
  if (!there && errno != ENOENT) return io(path, "cannot write", errno);
  if (there && S_ISDIR(old.st_mode)) return io(path, "cannot write", EISDIR);
  if (there && !S_ISREG(old.st_mode)) return write_into(path, text);
  Result<fs::path> end = end_of_links(path);
  if (!end.ok()) return end.status();
  return replace(*end, there ? &old : nullptr, text);
}

Status check_folders(std::span<const std::string> files) {
  for (const std::string& file : files) {
    std::error_code none;
    const fs::path folder = fs::absolute(file, none).parent_path();
    if (!file.empty() && !fs::is_directory(folder, none))
      return {Code::kIo,
              fmt::format("{}: cannot be written; the folder {} does not exist", file, folder.string())};
  }
  return {};
}

}  // namespace tithe::cli
