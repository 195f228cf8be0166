// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/code_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdio>

#include "lang/store/private_folder.h"
#include "lang/store/seal.h"

namespace tithe::lang {
namespace {

constexpr std::size_t kMaxFiles = 256;  // one takes about 100 KB

std::string name_of(const device::Compiler& compiler, const std::string& text, int sm) {
  const std::string all = fmt::format("{}\n{}\n{}", compiler.identity(), sm, text);
  const XXH128_hash_t key = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}.cubin", key.high64, key.low64);
}

// Empty if there is no usable file.
std::string read(const std::string& folder, const std::string& name) {
  const Result<OpenFile> open = open_folder(folder);
  if (!open.ok()) return {};
  const OpenFile file(::openat(open->get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat is {};
  if (!file.ok() || !check_private(file.get(), name, S_IFREG).ok() || !check_seal(file.get()).ok() ||
      ::fstat(file.get(), &is) != 0)
    return {};
  std::string code(static_cast<std::size_t>(is.st_size) - kSealBytes, '\0');
  if (::pread(file.get(), code.data(), code.size(), 0) != static_cast<::ssize_t>(code.size())) return {};
  ::futimens(file.get(), nullptr);  // marks the file as used
  return code;
}

void write(const std::string& folder, const std::string& name, const std::string& code) {
  static std::atomic<unsigned> turn{0};
  const std::string fresh = fmt::format("{}/{}.{}.{}.new", folder, name, ::getpid(), turn++);
  {
    const OpenFile file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.ok()) return;
    if (!write_all(file.get(), std::string_view(code))) {
      ::unlink(fresh.c_str());
      return;
    }
  }
  if (!seal(fresh).ok() || std::rename(fresh.c_str(), (folder + "/" + name).c_str()) != 0)
    ::unlink(fresh.c_str());
}

}  // namespace

Result<std::string> cached_code(const device::Compiler& compiler, const std::string& text, int sm) {
  const Result<std::string> folder = cache_folder();
  const std::string name = name_of(compiler, text, sm);
  if (!folder.ok() || compiler.identity().empty()) return compiler.code(text, sm);
  if (std::string known = read(*folder, name); !known.empty()) return known;
  Result<std::string> made = compiler.code(text, sm);
  if (made.ok() && open_folder(*folder).ok()) {
    write(*folder, name, *made);
    keep_newest(*folder, ".cubin", kMaxFiles);
  }
  return made;
}

}  // namespace tithe::lang
