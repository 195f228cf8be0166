// SPDX-License-Identifier: Apache-2.0
// Gradients in device memory: copies to the host and back, one after the other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "advisor/sim/world.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

constexpr std::size_t kValues = 1'000'000;
constexpr Seconds kCopy = 4e-3, kLatency = 1e-4;  // of a bucket, at 1 GB/s

Cluster hosts(std::string_view device, int ranks = 1) {
  const Result<Cluster> c = Cluster::parse(
      fmt::format(
          "name = \"t\"\n[[hosts]]\ncount = 4\nranks = {}\ncores = 64\nrate = \"10GB/s\"\nlatency = \"1us\"\n"
          "inside = \"10GB/s\"\n{}",
          ranks, device),
      "t.toml");
  EXPECT_TRUE(c.ok()) << c.status().what();
  return *c;
}
constexpr std::string_view kDevice = "device = \"1GB/s\"\ndevice_latency = \"100us\"\n";

Seconds step(const Cluster& cluster, std::initializer_list<Seconds> ready, Extent extent = Extent::kNeeded) {
  const Choices choices = Choices::of({.spec = *parse_spec("fp32"),
                                       .strategy = find_strategy("server"),
                                       .world = cluster.world(),
                                       .hosts = cluster.shared()});
  const PlanTensor tensor{"w", kValues, kValues};
  Workload work;
  for (const Seconds r : ready)
    work.buckets.push_back({.ready = r, .plan = make_plan({&tensor, 1}, choices)});
  Costs costs = default_costs();
  costs.step = costs.post = costs.complete = costs.wake = costs.turn = costs.bucket = 0;
  for (auto& [name, c] : costs.codecs) c = {};
  const Result<Outcome> out = run(cluster, costs, work, false, extent);
  EXPECT_TRUE(out.ok()) << out.status().what();
  return out->step;
}

TEST(WorldDevices, BucketIsCopiedToTheHostAndBack) {
  const Seconds without = step(hosts(""), {0}), with = step(hosts(kDevice), {0});
  EXPECT_NEAR(with - without, 2 * (kLatency + kCopy), 1e-9);
}

TEST(WorldDevices, CopiesOfADeviceAreSequential) {
  const Seconds one = step(hosts(kDevice), {0});
  // The link is fast, so the stream of four copies determines the step.
  EXPECT_NEAR(step(hosts(kDevice), {0, 0}), one + 2 * (kLatency + kCopy), 0.1 * one);
  // A tensor that is ready much later does not wait.
  EXPECT_NEAR(step(hosts(kDevice), {0, 1.0}), 1.0 + one, 1e-9);
}

TEST(WorldDevices, EachRankHasADeviceAndFewRepresentAll) {
  const Cluster shared = hosts(kDevice, 2);
  EXPECT_NEAR(step(shared, {0, 0}, Extent::kFew), step(shared, {0, 0}, Extent::kAll),
              0.02 * step(shared, {0, 0}, Extent::kAll));
}

TEST(WorldDevices, NetworkLibraryAvoidsHostCopies) {
  const Cluster with = hosts("device = \"1GB/s\"\ndevice_inside = \"100GB/s\"\n", 2);
  EXPECT_TRUE(with.has_devices());
  const Cluster on = with.on_devices();
  EXPECT_FALSE(on.has_devices());
  EXPECT_DOUBLE_EQ(on.rates()[2], 100e9) << "the rate between devices of one host";
  EXPECT_DOUBLE_EQ(with.rates()[2], 10e9);
  EXPECT_LT(step(on, {0}), step(with, {0}));
  EXPECT_EQ(hosts("").on_devices().rates()[2], hosts("").rates()[2]);
}

TEST(WorldDevices, RefusesAPartialDescription) {
  const Status s =
      Cluster::parse("name = \"t\"\n[[hosts]]\nrate = \"1GB/s\"\ndevice_inside = \"1GB/s\"\n", "t.toml")
          .status();
  EXPECT_EQ(s.code(), Code::kInvalid);
  EXPECT_NE(s.what().find("t.toml:2"), std::string::npos) << s.what();
  EXPECT_NE(s.what().find("such as 12GB/s"), std::string::npos) << s.what();
}

}  // namespace
}  // namespace tithe::sim
