// SPDX-License-Identifier: Apache-2.0
#include "lang/store/private_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace tithe::lang {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> cache_folder() {
  if (const std::string own = environment("TITHE_CACHE"); !own.empty()) return fs::absolute(own).string();
  if (const std::string all = environment("XDG_CACHE_HOME"); !all.empty()) return all + "/tithe";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/tithe";
  return Status(Code::kUnsupported, "no folder for compiled programs: set TITHE_CACHE to a folder");
}

Status check_private(int fd, const std::string& path, mode_t kind) {
  struct stat is {};
  if (::fstat(fd, &is) != 0 || (is.st_mode & S_IFMT) != kind)
    return {Code::kInvalid, fmt::format("{} has the wrong type", path)};
  if (is.st_uid != ::geteuid())
    return {Code::kInvalid,
            fmt::format("{} belongs to another user: set TITHE_CACHE to your own folder", path)};
  if ((is.st_mode & 022U) != 0)
    return {Code::kInvalid, fmt::format("other users can write to {} (mode {:o}): run chmod go-w {}", path,
                                        is.st_mode & 0777U, path)};
  return {};
}

Result<OpenFile> open_folder(const std::string& path) {
  std::error_code none;
  fs::create_directories(fs::path(path).parent_path(), none);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return Status(Code::kIo, fmt::format("{} cannot be created", path));
  OpenFile folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!folder.ok()) return Status(Code::kIo, fmt::format("{} cannot be opened as a folder", path));
  TITHE_TRY(check_private(folder.get(), path, S_IFDIR));
  return folder;
}

void keep_newest(const std::string& folder, const char* ending, std::size_t most) {
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ending) files.emplace_back(entry.last_write_time(none), entry.path());
  if (files.size() <= most) return;
  std::sort(files.begin(), files.end());
  files.resize(files.size() - most);
  for (const auto& [when, path] : files) {
    fs::remove(path, none);
    fs::remove(path.string() + ".lock", none);
  }
}

}  // namespace tithe::lang
