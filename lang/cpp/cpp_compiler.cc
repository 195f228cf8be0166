// SPDX-License-Identifier: Apache-2.0
// Reads environment variables for compiled programs, as lang/store/private_folder.cc does
// (docs/reference/environment.md has the table).
#include "lang/cpp/cpp_compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "lang/store/private_folder.h"
#include "lang/store/seal.h"

namespace tithe::lang {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds kMaxTime{60};

// The generated text is vectorised already; -O3 only adds compile time.
constexpr const char* kFlags[] = {"-std=c++17",
                                  "-O2",
                                  "-ffp-contract=off",
                                  "-fno-math-errno",
                                  "-fno-trapping-math",
                                  "-fwrapv",
                                  "-fno-strict-aliasing",
                                  "-w",
                                  "-fPIC",
                                  "-shared",
                                  "-fvisibility=hidden",
                                  "-fno-exceptions",
                                  "-fno-rtti",
                                  "-fno-asynchronous-unwind-tables",
                                  "-g0",
                                  "-Wl,-z,now,-z,relro,-z,noexecstack,--build-id=none"};

// Variables that change a compiler's result, or let another user choose a part of it.
constexpr const char* kNotPassed[] = {
    "CPATH=",           "C_INCLUDE_PATH=", "CPLUS_INCLUDE_PATH=", "LIBRARY_PATH=", "COMPILER_PATH=",
    "GCC_EXEC_PREFIX=", "LD_PRELOAD=",     "LD_LIBRARY_PATH=",    "CXXFLAGS=",     "TMPDIR=",
    "LC_ALL="};

std::string in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return ::access(program.c_str(), X_OK) == 0 ? program : "";
  const std::string path = environment("PATH");
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find(':', at), path.size());
    const std::string candidate = path.substr(at, end - at) + "/" + program;
    if (end > at && ::access(candidate.c_str(), X_OK) == 0) return candidate;
    at = end + 1;
  }
  return "";
}

std::uint64_t key_of(const std::string& path) {
  std::string all = path;
  for (const char* flag : kFlags) all += std::string(" ") + flag;
  struct stat is {};
  if (::stat(path.c_str(), &is) == 0)
    all += fmt::format(" {} {} {}", is.st_size, is.st_mtim.tv_sec, is.st_mtim.tv_nsec);
  return XXH3_64bits(all.data(), all.size());
}

// Waits for the child, and kills it after kMaxTime.
bool wait_for(pid_t child) {
  const auto until = std::chrono::steady_clock::now() + kMaxTime;
  for (;;) {
    int status = 0;
    const pid_t done = ::waitpid(child, &status, WNOHANG);
    if (done == child) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    // The child was reaped elsewhere: the output file shows whether it succeeded.
    if (done < 0 && errno != EINTR) return errno == ECHILD;
    if (std::chrono::steady_clock::now() > until) {
      ::kill(-child, SIGKILL);
      ::waitpid(child, &status, 0);
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool run(const std::vector<std::string>& args, const std::string& folder) {
  std::vector<char*> argv, environ_of;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  for (char** e = ::environ; *e != nullptr; ++e) {
    bool passed = true;
    for (const char* excluded : kNotPassed)
      passed = passed && std::strncmp(*e, excluded, std::strlen(excluded)) != 0;
    if (passed) environ_of.push_back(*e);
  }
  std::string temporary = "TMPDIR=" + folder, locale = "LC_ALL=C";
  environ_of.insert(environ_of.end(), {temporary.data(), locale.data(), nullptr});
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  ::posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, 2, "log", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, argv[0], &files, &attributes, argv.data(), environ_of.data());
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  return failed == 0 && wait_for(child);
}

// The first line of the compiler's output that mentions an error.
std::string first_error(const std::string& folder) {
  std::ifstream log(folder + "/log");
  std::string first, text;
  while (std::getline(log, text)) {
    if (first.empty()) first = text;
    if (text.find("error") != std::string::npos) return text;
  }
  return first.empty() ? "it failed without a message" : first;
}

}  // namespace

Result<Compiler> find_compiler() {
  const std::string requested = environment("TITHE_CXX");
  if (requested == "none") return Status(Code::kUnsupported, "TITHE_CXX=none");
  if (!requested.empty()) {
    const std::string path = in_path(requested);
    if (path.empty())
      return Status(Code::kUnsupported, fmt::format("TITHE_CXX: '{}' does not exist", requested));
    return Compiler{path, key_of(path)};
  }
  for (const char* name : {"c++", "g++", "clang++"})
    if (const std::string path = in_path(name); !path.empty()) return Compiler{path, key_of(path)};
  return Status(Code::kUnsupported, "no C++ compiler found (c++, g++, clang++)");
}

Result<std::string> compile_cpp(const Compiler& compiler, const std::string& text,
                                const std::string& target_flag, const std::string& folder) {
  const auto cannot = [&](const std::string& why) {
    return Status(Code::kIo, fmt::format("cannot write to {}: {}", folder, why));
  };
  std::string own = folder + "/making-XXXXXX";
  if (::mkdtemp(own.data()) == nullptr) return cannot(std::strerror(errno));
  const std::string object = own + "/program.so", fresh = own + ".new";
  std::ofstream file(own + "/program.cc");
  file << text;
  file.close();
  Status done = file ? Status() : cannot("no room");
  std::vector<std::string> args = {compiler.path};
  args.insert(args.end(), std::begin(kFlags), std::end(kFlags));
  if (!target_flag.empty()) args.push_back(target_flag);
  args.insert(args.end(), {"-o", "program.so", "program.cc", "-lm"});
  if (done.ok() && !run(args, own))
    done = {Code::kUnsupported, fmt::format("{} refuses it: {}", compiler.path, first_error(own))};
  std::error_code failed;
  if (done.ok()) {
    fs::permissions(object, fs::perms::owner_read | fs::perms::owner_write, failed);
    const Status sealed = seal(object);
    if (sealed.ok() && !failed) fs::rename(object, fresh, failed);
    if (!sealed.ok()) done = cannot(sealed.what());
    if (done.ok() && failed) done = cannot(failed.message());
  }
  std::error_code none;
  fs::remove_all(own, none);
  if (!done.ok()) return done;
  return fs::path(fresh).filename().string();
}

}  // namespace tithe::lang
