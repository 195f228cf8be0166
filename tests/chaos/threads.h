// SPDX-License-Identifier: Apache-2.0
#pragma once
// Determines whether all threads of this process except the caller sleep, from the kernel's statistics (Linux). All
// threads count, even unrelated ones: a thread that joins threads sometimes holds a lock of the C library for which
// others wait, asleep.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace tithe::chaos {

class Threads {
 public:
  // True if no thread ran between two samples: then none can wake another.
  static bool asleep() {
    const std::string first = look();
    return !first.empty() && first == look();
  }

 private:
  static std::vector<long> ids() {
    std::vector<long> all;
    DIR* folder = opendir("/proc/self/task");
    if (folder == nullptr) return all;
    while (const dirent* entry = readdir(folder))
      if (const long id = std::atol(entry->d_name); id != 0) all.push_back(id);
    closedir(folder);
    return all;
  }
  static std::string read_all(const std::string& path) {
    char text[512];
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {};
    const ssize_t n = ::read(file, text, sizeof text);
    ::close(file);
    return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : std::string();
  }
  static std::size_t count() {
    struct stat folder {};
    return ::stat("/proc/self/task", &folder) == 0 ? folder.st_nlink - 2 : 0;
  }
  // The run count of each thread; empty if one is running, or if the list may be incomplete: it ends early when a
  // thread exits while it is read.
  static std::string look() {
    const std::size_t before = count();
    std::size_t found = 1;
    std::string all = "threads";
    for (const long id : ids()) {
      if (id == gettid()) continue;
      const std::string path = "/proc/self/task/" + std::to_string(id);
      const std::string stat = read_all(path + "/stat");
      const auto name_end = stat.rfind(')');
      if (name_end == std::string::npos) return {};  // it has ended
      if (stat[name_end + 2] != 'S') return {};
      all += std::to_string(id) + " " + read_all(path + "/schedstat");
      ++found;
    }
    return found == before && found == count() ? all : std::string();
  }
};

}  // namespace tithe::chaos
