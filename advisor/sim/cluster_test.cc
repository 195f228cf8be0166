// SPDX-License-Identifier: Apache-2.0
#include "advisor/sim/cluster.h"

#include <gtest/gtest.h>

namespace tithe::sim {
namespace {

constexpr std::string_view kTwoOffices = R"(
name = "two offices"
about = "4 hosts of 2 devices, 100 Mbit/s between the offices"
[[switch]]
name = "wan"
[[switch]]
name = "north"
up = "wan"
rate = "100Mb/s"
latency = "10ms"
[[switch]]
name = "south"
up = "wan"
rate = "100Mb/s"
latency = "15ms"
[[hosts]]
at = "north"
count = 3
ranks = 2
cores = 8
rate = "1Gb/s"
latency = "50us"
inside = "10GB/s"
[[hosts]]
at = "south"
rate = "1Gb/s"
)";

TEST(Cluster, PathGoesUpAndDown) {
  const Result<Cluster> c = Cluster::parse(kTwoOffices, "f");
  ASSERT_TRUE(c.ok()) << c.status().what();
  EXPECT_EQ(c->world(), 7);
  EXPECT_EQ(c->hosts().size(), 4U);
  std::vector<int> links;
  EXPECT_DOUBLE_EQ(c->route(0, 1, links), 2e-6);
  ASSERT_EQ(links.size(), 1U);
  EXPECT_DOUBLE_EQ(c->rates()[static_cast<std::size_t>(links[0])], 1e10);
  EXPECT_DOUBLE_EQ(c->route(0, 2, links), 50e-6);
  EXPECT_EQ(links.size(), 2U);
  EXPECT_DOUBLE_EQ(c->route(0, 6, links), 25e-6 + 25e-3);
  ASSERT_EQ(links.size(), 4U);
  EXPECT_EQ(c->link_name(links[0]), "host 0 up");
  EXPECT_EQ(c->link_name(links[1]), "switch 1 up");
  EXPECT_EQ(c->link_name(links[2]), "switch 2 down");
  EXPECT_EQ(c->link_name(links[3]), "host 3 down");
  EXPECT_DOUBLE_EQ(c->rates()[static_cast<std::size_t>(links[1])], 100e6 / 8);
}

TEST(Cluster, LanesDefaultToASessionsDefault) {
  const Result<Cluster> c = Cluster::parse(kTwoOffices, "f");
  ASSERT_TRUE(c.ok());
  EXPECT_EQ(c->lanes(0), 3);  // 8 cores, 2 ranks
  EXPECT_EQ(c->lanes(6), 1);  // a single core
  EXPECT_EQ(c->with_cores(4).lanes(6), 3);
  EXPECT_EQ(Cluster::flat(4, 1e9, 0, 8).lanes(3), 7);
  EXPECT_EQ(Cluster::flat(4, 1e9, 0, 4, true).lanes(3), 1);  // one machine, shared by 4 ranks
  const Result<Cluster> testbed = Cluster::parse(
      "name = \"t\"\n[[hosts]]\ncount = 2\ncores = 96\nrate = \"1Gb/s\"\n"
      "[[codec]]\nname = \"*\"\nencode = [[1000, \"1us\"]]\nstore = [[1000, \"1us\"]]\nmerge = [[1000, "
      "\"1us\"]]\n",
      "f");
  ASSERT_TRUE(testbed.ok()) << testbed.status().what();
  EXPECT_EQ(testbed->lanes(0), 1) << "the file states codec costs, so codecs run on devices";
}

TEST(Cluster, SizedTruncatesOrRepeatsHosts) {
  const Result<Cluster> c = Cluster::parse(kTwoOffices, "f");
  ASSERT_TRUE(c.ok());
  const Result<Cluster> five = c->sized(5);
  ASSERT_TRUE(five.ok());
  EXPECT_EQ(five->world(), 5);
  EXPECT_EQ(five->hosts().size(), 3U);
  const Result<Cluster> many = c->sized(100);
  ASSERT_TRUE(many.ok());
  EXPECT_EQ(many->world(), 100);
  EXPECT_FALSE(c->sized(0).ok());
}

struct Wrong {
  const char* text;
  const char* message;
};

class ClusterRefuses : public testing::TestWithParam<Wrong> {};

TEST_P(ClusterRefuses, NamesFileLineAndCure) {
  const Result<Cluster> c = Cluster::parse(GetParam().text, "my.toml");
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.status().code(), Code::kInvalid);
  EXPECT_NE(c.status().what().find(GetParam().message), std::string::npos) << c.status().what();
  EXPECT_EQ(c.status().what().rfind("my.toml:", 0), 0U) << c.status().what();
}

INSTANTIATE_TEST_SUITE_P(
    All, ClusterRefuses,
    testing::Values(
        Wrong{"name = ", "my.toml:1"}, Wrong{"name = \"x\"", "no hosts"},
        Wrong{"[[hosts]]\ncount = 2", "rate is missing"},
        Wrong{"[[hosts]]\nrate = \"0Gb/s\"", "my.toml:2: rate: must be a rate above 0"},
        Wrong{"[[hosts]]\nrate = \"1e400Gb/s\"", "my.toml:2: rate: must be a rate above 0"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nranks = 2\ninside = \"0GB/s\"",
              "my.toml:4: inside: must be a rate above 0"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nlatency = \"1e400s\"", "my.toml:3: latency: must be a time"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nlatency = \"-1us\"", "my.toml:3: latency: must be a time"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\ncount = 9223372036854775808", "my.toml:3"},
        Wrong{"speed = 0\n[[hosts]]\nrate = \"1Gb/s\"", "my.toml:1: speed: must be a number above 0"},
        Wrong{"speed = inf\n[[hosts]]\nrate = \"1Gb/s\"", "my.toml:1: speed: must be a number above 0"},
        Wrong{"[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\nup = \"a\"\nrate = \"0Mb/s\"",
              "my.toml:6: rate: must be a rate above 0"},
        Wrong{"[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\nup = \"a\"", "my.toml:3: rate is missing"},
        Wrong{"[[switch]]\nname = \"a\"\nup = \"a\"\nrate = \"1Gb/s\"",
              "my.toml:1: this switch is above itself"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s+5us\"", "a rate above 0"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nranks = 2", "inside is missing"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nlatency = \"5\"", "must be a time"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\ncount = 0", "must be a whole number from 1"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\ncount = 1048577", "must be a whole number from 1"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\ncount = 1048576\nranks = 2\ninside = \"1GB/s\"",
              "ranks: at most"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nrank = 2", "unknown field 'rank'"},
        Wrong{"[[hosts]]\nrate = \"1Gb/s\"\nat = \"x\"", "my.toml:3: at = 'x': unknown switch"},
        Wrong{
            "[[hosts]]\nrate = \"1Gb/s\"\n[[codec]]\nname = \"fp32\"\nencode = [[1, \"1us\"]]\nstore = [[1, "
            "\"1us\"]]\nmerge = [[1, \"1us\"]]\ntypical = 1.5",
            "my.toml:8: typical: must be a fraction"},
        Wrong{"[hosts]\nrate = \"1Gb/s\"", "write [[hosts]]"},
        Wrong{"[[switch]]\nname = \"a\"\nup = \"b\"\nrate = \"1Gb/s\"",
              "my.toml:3: up = 'b': unknown switch"},
        Wrong{"[[switch]]\nname = \"a\"\nup = \"b\"\nrate = \"1Gb/s\"\n[[switch]]\nname = \"b\"\nup = "
              "\"a\"\nrate = \"1Gb/s\"",
              "form a cycle"},
        Wrong{"[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"", "not connected to the first one"},
        Wrong{"[[switch]]\nname = \"a\"\n[[switch]]\nname = \"a\"", "two switches 'a'"},
        Wrong{"[[switch]]\nname = \"a\"\n[[switch]]\nname = \"b\"\nup = \"a\"\nrate = "
              "\"1Gb/s\"\n[[hosts]]\nrate = \"1Gb/s\"",
              "`at` is missing"}));

TEST(Cluster, GivesTheSessionsLinkOption) {
  Costs costs;
  costs.post = costs.complete = costs.turn = costs.wake = 5e-6;
  const Result<Link> link = parse_link(Cluster::flat(4, 1.25e9, 30e-6, 8).link_text(costs));
  ASSERT_TRUE(link.ok()) << link.status().what();
  EXPECT_DOUBLE_EQ(link->bytes_per_second, 1.25e9);
  EXPECT_NEAR(link->seconds_per_frame, 50e-6, 1e-9) << "the latency and the work of both ranks";
  EXPECT_EQ(Cluster::flat(1, 1.25e9, 30e-6, 8).link_text(costs), "")
      << "with one host there is no link between hosts";
  const Link shared =
      *parse_link(Cluster::flat(4, {.ranks = 8, .bytes_per_second = 5e9, .latency = 4e-6}, 1.25e9, 30e-6, 8)
                      .link_text(costs));
  EXPECT_DOUBLE_EQ(shared.inside_bytes_per_second, 5e9);
  EXPECT_LT(shared.inside_seconds_per_frame, shared.seconds_per_frame);
  EXPECT_GT(shared.inside_seconds_per_frame, 4e-6);
  const Result<Cluster> slow =
      Cluster::parse("name = \"t\"\n[[hosts]]\nrate = \"10Gb/s\"\n[[hosts]]\nrate = \"1Gb/s\"\n", "t.toml");
  EXPECT_DOUBLE_EQ(parse_link(slow->link_text(costs))->bytes_per_second, 1.25e8)
      << "the rate of the slowest host";
  const Result<Cluster> several = Cluster::parse(
      "name = \"t\"\n[[switch]]\nname = \"top\"\n[[switch]]\nname = \"a\"\nup = \"top\"\nrate = \"1Gb/s\"\n"
      "[[hosts]]\nat = \"a\"\nrate = \"1Gb/s\"\n[[hosts]]\nat = \"top\"\nrate = \"1Gb/s\"\n",
      "t.toml");
  ASSERT_TRUE(several.ok()) << several.status().what();
  EXPECT_EQ(several->link_text(costs), "") << "hosts are on several switches";
}

}  // namespace
}  // namespace tithe::sim
