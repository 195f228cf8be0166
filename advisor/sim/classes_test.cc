// SPDX-License-Identifier: Apache-2.0
#include "advisor/sim/classes.h"

#include <gtest/gtest.h>

#include <string>

namespace tithe::sim {
namespace {

Cluster hosts_of(int hosts, int ranks) {
  const Result<Cluster> out =
      Cluster::parse("[[hosts]]\ncount = " + std::to_string(hosts) + "\nranks = " + std::to_string(ranks) +
                         "\nrate = \"1Gb/s\"\ninside = \"10GB/s\"\n",
                     "test.toml");
  EXPECT_TRUE(out.ok()) << out.status().what();
  return *out;
}

int simulated(const Cluster& cluster, std::initializer_list<const char*> names) {
  std::vector<const Strategy*> strategies;
  for (const char* name : names) strategies.push_back(find_strategy(name));
  return Classes::of(cluster, strategies).simulated();
}

TEST(Classes, OneRankRepresentsAllIfEachHasAHost) {
  for (const char* strategy : {"ring", "server", "gather", "hosts", "hosts_gather", "hosts_ring"})
    EXPECT_EQ(simulated(hosts_of(16, 1), {strategy}), 1) << strategy;
  EXPECT_EQ(simulated(hosts_of(16, 1), {"ring", "server", "gather"}), 1);
}

TEST(Classes, OneRankRepresentsAllUnderHostStrategies) {
  for (const char* strategy : {"server", "gather", "hosts", "hosts_gather", "hosts_ring"})
    EXPECT_EQ(simulated(hosts_of(16, 4), {strategy}), 1) << strategy;
}

// Only the last rank of a host sends to the next host.
TEST(Classes, RanksOfOneHostRepresentARing) {
  EXPECT_EQ(simulated(hosts_of(16, 4), {"ring"}), 4);
  EXPECT_EQ(simulated(hosts_of(16, 4), {"server", "ring"}), 4);
}

TEST(Classes, DifferingRanksAreNotMerged) {
  for (const char* strategy : {"aggregator", "tree"})
    EXPECT_EQ(simulated(hosts_of(8, 1), {strategy}), 8) << strategy;
  EXPECT_EQ(simulated(hosts_of(4, 2), {"server", "tree"}), 8);
  const Result<Cluster> uneven =
      Cluster::parse("[[hosts]]\ncount = 2\nrate = \"1Gb/s\"\n[[hosts]]\nrate = \"2Gb/s\"\n", "test.toml");
  ASSERT_TRUE(uneven.ok());
  EXPECT_EQ(simulated(*uneven, {"server"}), 3);
  const Result<Cluster> cut = hosts_of(4, 4).sized(14);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(simulated(*cut, {"server"}), 14) << "no symmetry: the last host has two ranks";
}

// Each message to a simulated rank mirrors a message of a simulated rank.
TEST(Classes, ReceivedMessagesMatchSentMessages) {
  const Cluster cluster = hosts_of(4, 2);
  const Strategy &server = *find_strategy("server"), &hosts = *find_strategy("hosts"),
                 &ring = *find_strategy("ring");
  const auto path_of = [&](const Strategy& s, Rank from, int to) {
    const Strategy* all[] = {&s};
    const Classes::MessagePath path = Classes::of(cluster, all).path_of(from, to, s);
    return std::pair(path.rank, path.to);
  };
  EXPECT_EQ(path_of(server, 3, 0), std::pair(0, 5));
  EXPECT_EQ(path_of(hosts, 3, 0), std::pair(0, 7)) << "host 1 to host 0, position 1 to position 0";
  EXPECT_EQ(path_of(hosts, 1, 0), std::pair(0, 1));
  EXPECT_EQ(path_of(ring, 7, 0), std::pair(1, 2))
      << "from the last rank of host 3 to the first rank of host 0";
  EXPECT_EQ(path_of(ring, 0, 1), std::pair(0, 1));
}

}  // namespace
}  // namespace tithe::sim
