// SPDX-License-Identifier: Apache-2.0
#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace tithe {
namespace {

namespace fs = std::filesystem;

class Groups {
 public:
  Groups() { fs::remove_all(root_); }
  ~Groups() { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  double granted(std::string_view own) const { return granted_cores(root_.string(), own); }

 private:
  const fs::path root_ = fs::temp_directory_path() / ("tithe_groups_" + std::to_string(getpid()));
};

TEST(Cores, cgroup_limit_is_the_minimum_of_its_ancestors) {
  const Groups groups;
  groups.write("job/cpu.max", "350000 100000\n");
  groups.write("job/rank/cpu.max", "max 100000\n");
  EXPECT_EQ(groups.granted("0::/job/rank\n"), 3.5);
  groups.write("job/rank/cpu.max", "200000 100000\n");
  EXPECT_EQ(groups.granted("0::/job/rank\n"), 2);
  EXPECT_EQ(groups.granted("0::/other\n"), 0);
  groups.write("cpu.max", "50000 100000\n");  // as a container sees its own group
  EXPECT_EQ(groups.granted("0::/\n"), 0.5);
}

TEST(Cores, cgroup_version_1_is_read) {
  const Groups groups;
  groups.write("cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  groups.write("cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  groups.write("cpuset/job/cpu.cfs_quota_us", "50000\n");
  groups.write("cpuset/job/cpu.cfs_period_us", "50000\n");
  EXPECT_EQ(groups.granted("5:cpuset:/job\n4:cpu,cpuacct:/job\n0::/\n"), 3);
  groups.write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(groups.granted("4:cpu,cpuacct:/job\n"), 0);
  EXPECT_EQ(groups.granted("nonsense\n::\n"), 0);
}

// A thread that is bound to one core has one usable core, and shares it with threads bound to the same core.
TEST(Cores, affinity_limits_the_count) {
  const std::string here = which_cores();
  EXPECT_FALSE(here.empty());
  std::thread([&] {
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    int first = 0;
    while (!CPU_ISSET(first, &set)) ++first;
    const bool alone = CPU_COUNT(&set) == 1;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(which_cores() == here, alone);
  }).join();
}

}  // namespace
}  // namespace tithe
