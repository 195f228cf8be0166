// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whether all threads of this process but some sleep, as the kernel tells (Linux).
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

namespace tithe::chaos {

class Threads {
 public:
  Threads() {
    for (const long id : ids()) others_.insert(id);
  }
  // The calling thread is not asked.
  void leave_out_this() { others_.insert(gettid()); }

  // True if no thread ran between two looks: then none can wake another.
  bool asleep() const {
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
  // How often each thread ran; empty where one is awake.
  std::string look() const {
    std::string all = "threads";
    for (const long id : ids()) {
      if (others_.contains(id)) continue;
      const std::string path = "/proc/self/task/" + std::to_string(id);
      const std::string stat = read_all(path + "/stat");
      const auto name_end = stat.rfind(')');
      if (name_end == std::string::npos) continue;  // it has ended
      if (stat[name_end + 2] != 'S') return {};
      all += std::to_string(id) + " " + read_all(path + "/schedstat");
    }
    return all;
  }
  std::set<long> others_;
};

}  // namespace tithe::chaos
