// SPDX-License-Identifier: Apache-2.0
// The affinity mask of the thread, limited by the CPU quotas of its control groups (versions 1 and 2).
#include "base/usable_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <thread>

namespace tithe {
namespace {

constexpr const char* kGroups = "/sys/fs/cgroup";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The machine has more cores than the set can hold.
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_ZERO(&set);
  return set;
}

// The cores that one group grants, 0 for no limit. Version 2 has "200000 100000" or "max 100000"; version 1 has two
// files, in which -1 means no limit.
double grant_of(const std::string& group) {
  double quota = 0, period = 0;
  std::ifstream both(group + "/cpu.max");
  if (!(both >> quota >> period)) {
    quota = period = 0;
    std::ifstream(group + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(group + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The minimum of a group and its ancestors.
double min_grant(const std::string& root, std::string path) {
  double least = 0;
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    if (const double grant = grant_of(root + path); grant > 0 && (least == 0 || grant < least)) least = grant;
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

}  // namespace

double granted_cores(const std::string& root, std::string_view own) {
  double least = 0;
  while (!own.empty()) {  // lines of "number:controllers:/path"; version 2 has no controllers
    const std::string_view line = own.substr(0, own.find('\n'));
    own.remove_prefix(std::min(own.size(), line.size() + 1));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers(line.substr(first + 1, second - first - 1));
    const bool cpu = fmt::format(",{},", controllers).find(",cpu,") != std::string::npos;
    if (!controllers.empty() && !cpu) continue;
    const double grant = min_grant(controllers.empty() ? root : fmt::format("{}/{}", root, controllers),
                                   std::string(line.substr(second + 1)));
    if (grant > 0 && (least == 0 || grant < least)) least = grant;
  }
  return least;
}

int usable_cores() {
  const cpu_set_t set = allowed();
  const int there =
      CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  const double granted = granted_cores(kGroups, text_of("/proc/self/cgroup"));
  return std::max(1, granted > 0 && granted < there ? static_cast<int>(granted) : there);
}

std::string which_cores() {
  const cpu_set_t set = allowed();
  std::string out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) out += fmt::format("{},", cpu);
  // Two containers may share cores but have separate limits. Then their groups differ, or their cgroup namespaces.
  if (const std::string own = text_of("/proc/self/cgroup"); granted_cores(kGroups, own) > 0) {
    struct stat space {};
    out += own;
    if (stat("/proc/self/ns/cgroup", &space) == 0) out += fmt::format("/{}", space.st_ino);
  }
  return out;
}

}  // namespace tithe
