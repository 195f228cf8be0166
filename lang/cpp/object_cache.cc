// SPDX-License-Identifier: Apache-2.0
#include "lang/cpp/object_cache.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/unique_fd.h"
#include "lang/cpp/compiled.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/store/private_folder.h"
#include "lang/store/seal.h"

namespace tithe::lang {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSymbol = "tithe_program";

// Loads the object of this name permanently; nullptr without an error if there is none. The file that was checked is
// the file that is loaded: both go through the same descriptor.
Result<const Object*> load(int folder, const std::string& name, std::uint64_t key) {
  OpenFile file(::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok()) return static_cast<const Object*>(nullptr);
  TITHE_TRY(check_private(file.get(), name, S_IFREG));
  if (const Status whole = check_seal(file.get()); !whole.ok())
    return Status(whole.code(), fmt::format("{} in the cache is damaged: {}", name, whole.what()));
  void* library = ::dlopen(fmt::format("/proc/self/fd/{}", file.get()).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Code::kIo, fmt::format("{} cannot be loaded: {}", name, ::dlerror()));
  ::futimens(file.get(), nullptr);  // marks the file as used for trim_cache
  file.release();                   // the loader identifies the library by this descriptor's path
  const auto* object = static_cast<const Object*>(::dlsym(library, kSymbol));
  if (object == nullptr || object->interface != kObjectInterface || object->key != key)
    return Status(Code::kMismatch,
                  fmt::format("{} belongs to another build of tithe or another program", name));
  return object;
}

std::string level_name(Level level) {
  constexpr const char* kNames[] = {"this kind of processor", "avx2", "avx3"};
  return kNames[static_cast<int>(level)];
}

const Object* find_built_in(std::uint64_t key, Level level) {
  for (const BuiltIn& b : built_in())
    if (b.level == level)
      for (const Object* o = b.objects; o->key != 0; ++o)
        if (o->key == key && o->interface == kObjectInterface) return o;
  return nullptr;
}

// Compiles to a temporary file in the folder, and renames it to `name` after verification.
Result<const Object*> make(int folder, const std::string& path, const std::string& name, const CppBody& body,
                           Level level, const Compiler& compiler, const Verify& verify) {
  const Result<std::string> made =
      compile_cpp(compiler, cpp_file(std::span(&body, 1), kSymbol), flag_of(level), path);
  if (!made.ok()) return made.status();
  const std::string& fresh = *made;
  Result<const Object*> object = load(folder, fresh, body.key);
  if (object.ok() && *object == nullptr) object = Status(Code::kIo, "the compiled file is missing");
  if (object.ok() && !verify(**object, kAllKinds))
    object = Status(Code::kUnsupported,
                    fmt::format("the results of {} differ from the interpreter's", compiler.path));
  if (object.ok() && ::renameat(folder, fresh.c_str(), folder, name.c_str()) == 0) return object;
  ::unlinkat(folder, fresh.c_str(), 0);
  return object;
}

}  // namespace

const char* flag_of(Level level) {
  constexpr const char* kFlags[] = {"", "-march=x86-64-v3", "-march=x86-64-v4"};
  return kFlags[static_cast<int>(level)];
}

void trim_cache(const std::string& path, std::size_t most) {
  keep_newest(path, ".so", most);
  std::error_code none;
  const auto yesterday = fs::file_time_type::clock::now() - std::chrono::hours(24);
  for (const auto& entry : fs::directory_iterator(path, none)) {
    const fs::path& at = entry.path();
    if (entry.last_write_time(none) < yesterday &&
        (at.extension() == ".new" || at.filename().string().starts_with("making-")))
      fs::remove_all(at, none);
  }
}

std::string compiled_with_tithe(Level level) {
  return fmt::format("compiled for {}, with tithe itself", level_name(level));
}

Found find_object(const CppBody& body, Level level, const Verify& verify) {
  const std::string compiled = fmt::format("compiled for {}", level_name(level));
  const auto interpreted = [](const std::string& why) { return Found{nullptr, "interpreted: " + why}; };
  if (const Object* own = find_built_in(body.key, level)) return {own, compiled_with_tithe(level)};
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) return interpreted(compiler.status().what());
  const Result<std::string> path = cache_folder();
  if (!path.ok()) return interpreted(path.status().what());
  Result<OpenFile> folder = open_folder(*path);
  if (!folder.ok()) return interpreted(folder.status().what());
  const std::string name =
      fmt::format("{:016x}-{}-{:016x}.so", body.key, static_cast<int>(level), compiler->key);
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const auto known_in = [&] {
    return fmt::format("{}, from the cache, in {:.1f} ms", compiled, 1e3 * seconds());
  };
  std::string damage;  // of the cached file
  const auto from_cache = [&]() -> const Object* {
    const Result<const Object*> known = load(folder->get(), name, body.key);
    damage = !known.ok() && known.status().code() == Code::kCorrupt ? "; " + known.status().what() : "";
    return known.ok() && *known != nullptr && verify(**known, 1) ? *known : nullptr;
  };
  if (const Object* known = from_cache()) return {known, known_in()};
  // Processes that compile the same text wait for the first one. The lock only saves work: correctness does not need
  // it.
  const UniqueFd lock = UniqueFd::from([&] {  // a child process must not inherit the lock
    return ::openat(folder->get(), (name + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  });
  if (lock.is_open()) ::flock(lock.get(), LOCK_EX);
  if (const Object* known = from_cache()) return {known, known_in()};
  const Result<const Object*> made = make(folder->get(), *path, name, body, level, *compiler, verify);
  if (!made.ok()) return interpreted(made.status().what() + damage);
  trim_cache(*path, kMaxObjects);
  return {*made, fmt::format("{}, in {:.1f} s{}", compiled, seconds(), damage)};
}

}  // namespace tithe::lang
