// SPDX-License-Identifier: Apache-2.0
// Costs that a cluster's file states for its devices and its network.
#include <gtest/gtest.h>

#include "advisor/sim/cluster.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

constexpr std::string_view kHosts = "[[hosts]]\nrate = \"1Gb/s\"\n";

Result<Cluster> with(std::string_view text) {
  return Cluster::parse(std::string(text) + std::string(kHosts), "my.toml");
}

TEST(ClusterCosts, MeasuredCostsReplaceAssumedCosts) {
  const Result<Cluster> c = with(R"(
[compute]
vgg19 = "155ms"
[costs]
step = "10us"
check_byte = "0.25ns"
eager_bytes = 4096
[[codec]]
name = "*"
encode = [[1, "160us"], [1000000, "204us"]]
store = [[1000000, "100us"]]
merge = [[1000000, "50us"]]
[[codec]]
name = "topk:ratio=0.02"
encode = [[1000000, "1ms"]]
store = [[1000000, "2ms"]]
merge = [[1000000, "3ms"]]
typical = 0.5
)");
  ASSERT_TRUE(c.ok()) << c.status().what();
  EXPECT_DOUBLE_EQ(c->compute("vgg19"), 0.155);
  EXPECT_DOUBLE_EQ(c->compute("vgg16"), 0);
  EXPECT_TRUE(c->states_costs());
  const Costs before = assumed_costs(), costs = c->costs(before);
  EXPECT_DOUBLE_EQ(costs.step, 10e-6);
  EXPECT_DOUBLE_EQ(costs.checksum_byte, 0.25e-9);
  EXPECT_EQ(costs.long_messages, (LongMessages{SendProtocol::kRendezvous, 4096}));
  EXPECT_EQ(costs.post, before.post);
  for (const auto& [name, assumed] : before.codecs) {
    if (name == "topk" || name == kDeltaCosts) continue;  // topk has costs of its own, delta is not a codec
    const CodecCosts& found = **costs.of(*parse_spec(name));
    EXPECT_DOUBLE_EQ(found.encode.at(1e6), 204e-6) << name;
    EXPECT_DOUBLE_EQ(found.merge.at(1e6), 50e-6) << name;
  }
  const CodecCosts& topk = **costs.of(*parse_spec("topk:ratio=0.02"));
  EXPECT_DOUBLE_EQ(topk.store.at(1e6), 2e-3);
  EXPECT_DOUBLE_EQ(topk.typical, 0.5);
}

TEST(ClusterCosts, WithoutMeasuredCostsNothingChanges) {
  const Result<Cluster> c = with("");
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(c->states_costs());
  EXPECT_EQ(c->costs(assumed_costs()), assumed_costs());
}

TEST(ClusterCosts, RefusesInvalidCostsWithFileLineAndCure) {
  const auto error_of = [](std::string_view text) {
    const Result<Cluster> c = with(text);
    return c.ok() ? std::string("taken") : c.status().what();
  };
  EXPECT_EQ(error_of("[compute]\nvgg19 = 155\n"),
            "my.toml:2: vgg19: must be a time, such as \"50us\" or \"20ms\"");
  EXPECT_EQ(error_of("[compute]\nvgg19 = \"0ms\"\n"), "my.toml:2: vgg19: must be a time above 0");
  EXPECT_EQ(error_of("[[compute]]\nvgg19 = \"1ms\"\n"), "my.toml:1: write [compute], once");
  EXPECT_NE(error_of("[costs]\nstap = \"1us\"\n")
                .find("my.toml:2: unknown field 'stap': eager_bytes, long_messages, many_to_one, "
                      "both_ways, step"),
            std::string::npos);
  EXPECT_NE(error_of("[costs]\neager_bytes = -1\n").find("my.toml:2: eager_bytes: must be a whole number"),
            std::string::npos);
  EXPECT_NE(error_of("[[codec]]\nencode = []\n").find("my.toml:1: a codec needs a name"), std::string::npos);
  EXPECT_NE(error_of("[[codec]]\nname = \"onebitt\"\n").find("onebit"), std::string::npos);
  EXPECT_NE(error_of("[[codec]]\nname = \"onebit\"\n").find("my.toml:1: encode is missing: such as"),
            std::string::npos);
  const std::string good = "[[codec]]\nname = \"onebit\"\nstore = [[1, \"1us\"]]\nmerge = [[1, \"1us\"]]\n";
  EXPECT_NE(error_of(good + "encode = [[1, 2]]\n").find("my.toml:5: encode: must be a time"),
            std::string::npos);
  EXPECT_NE(error_of(good + "encode = [[9, \"2us\"], [8, \"3us\"]]\n").find("must ascend"),
            std::string::npos);
  EXPECT_NE(error_of(good + "encode = [[8, \"3us\"], [9, \"2us\"]]\n").find("must ascend"),
            std::string::npos);
  EXPECT_NE(error_of(good + "encode = [[1, \"1us\"]]\n" + good + "encode = [[1, \"1us\"]]\n")
                .find("two codecs 'onebit'"),
            std::string::npos);
}

}  // namespace
}  // namespace tithe::sim
