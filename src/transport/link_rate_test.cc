// SPDX-License-Identifier: Apache-2.0
// Link rates from a simulated /sys.
#include "transport/link_rate.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace tithe {
namespace {

namespace fs = std::filesystem;

class LinkRate : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/link_rate_XXXXXX";
    sys_ = mkdtemp(name);
  }
  void TearDown() override { fs::remove_all(sys_); }

  void interface(const std::string& name, const std::string& speed, bool device,
                 const std::vector<std::string>& below = {}) {
    const fs::path at = fs::path(sys_) / "class/net" / name;
    fs::create_directories(at);
    std::ofstream(at / "speed") << speed << '\n';
    if (device) fs::create_directory(at / "device");
    for (const std::string& lower : below) fs::create_directory(at / ("lower_" + lower));
  }
  void port(const std::string& card, const std::string& rate) {
    const fs::path at = fs::path(sys_) / "class/infiniband" / card / "ports/1";
    fs::create_directories(at);
    std::ofstream(at / "rate") << rate << '\n';
  }

  std::string sys_;
};

TEST_F(LinkRate, device) {
  interface("eth0", "10000", true);
  EXPECT_EQ(interface_rate("eth0", sys_), 1'250'000'000U);
  interface("veth0", "10000", false);
  EXPECT_EQ(interface_rate("veth0", sys_), 0U) << "a veth reports an invented number";
  interface("bond0", "20000", false, {"eth0", "eth1"});
  interface("vlan7", "20000", false, {"bond0"});
  EXPECT_EQ(interface_rate("vlan7", sys_), 2'500'000'000U) << "a VLAN above a bond above a device";
  interface("bridge0", "10000", false, {"veth0"});
  EXPECT_EQ(interface_rate("bridge0", sys_), 0U);
  interface("ring", "10000", false, {"ring"});
  EXPECT_EQ(interface_rate("ring", sys_), 0U) << "a cycle of interfaces terminates";
}

TEST_F(LinkRate, links_that_are_down_or_give_no_rate_are_unknown) {
  interface("down", "-1", true);
  interface("old", "4294967295", true);
  interface("strange", "fast", true);
  interface("none", "0", true);
  for (const char* name : {"down", "old", "strange", "none", "absent", "", "..", "a/b"})
    EXPECT_EQ(interface_rate(name, sys_), 0U) << name;
  EXPECT_EQ(interface_rate("lo"), 0U) << "the loopback has no rate";
}

TEST_F(LinkRate, the_fastest_ucx_device_counts) {
  interface("eth0", "1000", true);
  port("mlx5_0", "100 Gb/sec (4X EDR)");
  port("mlx4_0", "2.5 Gb/sec (1X SDR)");
  const std::vector<std::string> tcp{"posix/memory", "tcp/lo", "tcp/eth0"},
      rdma{"tcp/eth0", "rc_mlx5/mlx5_0:1"};
  EXPECT_EQ(fastest_rate(tcp, sys_), 125'000'000U);
  EXPECT_EQ(fastest_rate(rdma, sys_), 12'500'000'000U);
  EXPECT_EQ(rdma_rate("mlx4_0:1", sys_), 312'500'000U);
  EXPECT_EQ(rdma_rate("mlx4_0:2", sys_), 0U);
  EXPECT_EQ(rdma_rate("memory", sys_), 0U);
  EXPECT_EQ(fastest_rate({}, sys_), 0U);
}

}  // namespace
}  // namespace tithe
