// SPDX-License-Identifier: Apache-2.0
// Compares strategy "auto" with every strategy that it may choose, in the simulator: clusters x models x codecs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "advisor/planner/plan_query.h"
#include "plan/strategy_options.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

struct Net {
  int hosts, ranks;
  double gbit;
  double latency = 25e-6;
  std::string text() const {
    return fmt::format("{}x{} at {} Gbit/s, {} us", hosts, ranks, gbit, latency * 1e6);
  }
};

std::vector<Net> nets(std::initializer_list<double> rates) {
  std::vector<Net> out;
  for (const auto& [hosts, ranks] : {std::pair{2, 1}, {3, 1}, {4, 1}, {16, 1}, {2, 2}, {4, 8}})
    for (const double gbit : rates) out.push_back({hosts, ranks, gbit});
  return out;
}

struct Model {
  const char* name;
  std::vector<std::size_t> sizes;
};

// A model with few large tensors, one with transformer blocks, and one with many small tensors, as in a convnet.
std::vector<Model> models() {
  Model mlp{"mlp", {4'000'000, 2000, 4'000'000, 2000, 20'000, 10}};
  Model blocks{"blocks", {}}, convnet{"convnet", {}};
  for (int k = 0; k < 6; ++k)
    for (const std::size_t n : {2'400'000U, 3072U, 2'400'000U, 768U, 600'000U, 768U, 1'800'000U, 2304U, 768U})
      blocks.sizes.push_back(n);
  for (int k = 0; k < 24; ++k)
    for (const std::size_t n : {65'536U, 256U, 256U, 147'456U, 64U}) convnet.sizes.push_back(n);
  return {mlp, blocks, convnet};
}

constexpr std::size_t kBucketValues = 6'250'000;

// A step without computation, with all tensors ready at once, so that only the strategies differ.
Result<Seconds> step(const Net& net, const Model& model, const char* codec, std::string_view strategy,
                     bool link, int lanes) {
  const double rate = net.gbit * 1e9 / 8;
  const sim::Cluster cluster = sim::Cluster::flat(net.hosts, sim::Cluster::Inside{.ranks = net.ranks}, rate,
                                                  net.latency, 8 * net.ranks);
  ChoiceDefaults defaults{.spec = *parse_spec(codec),
                          .strategy = find_strategy(strategy),
                          .world = cluster.world(),
                          .hosts = cluster.shared()};
  if (link) defaults.link = {rate, net.latency + 25e-6};  // plus the ranks' work for a frame
  const Choices choices = Choices::of(defaults);
  sim::Workload work;
  work.lanes = lanes;
  std::vector<PlanTensor> bucket;
  std::size_t values = 0, number = 0;
  std::vector<std::string> keys;
  for (std::size_t t = 0; t < model.sizes.size(); ++t) keys.push_back(std::to_string(t));
  for (const std::size_t n : model.sizes) {
    bucket.push_back({keys[number++], n, 0});
    values += n;
    if (values < kBucketValues && number < model.sizes.size()) continue;
    work.buckets.push_back({0, make_plan(bucket, choices)});
    bucket.clear();
    values = 0;
  }
  const Result<sim::Outcome> out = sim::run(cluster, sim::assumed_costs(), work, false, sim::Extent::kFew);
  if (!out.ok()) return out.status();
  return out->step;
}

// The step of "auto" relative to the best strategy that it may choose, for each cell of the grid, in order.
std::vector<double> ratios(std::span<const Net> nets, bool link, int lanes = 1) {
  std::vector<double> out;
  for (const char* codec : {"fp32", "fp8", "onebit", "topk:ratio=0.01"})
    for (const Net& net : nets)
      for (const Model& model : models()) {
        const sim::Cluster cluster =
            sim::Cluster::flat(net.hosts, sim::Cluster::Inside{.ranks = net.ranks}, 1e9, 0, 8);
        const ChoiceDefaults defaults{
            .spec = *parse_spec(codec), .world = cluster.world(), .hosts = cluster.shared()};
        const Seconds own = *step(net, model, codec, "auto", link, lanes);
        Seconds best = own;
        std::string_view by = "auto";
        for (const StrategyOption& option : plan::strategy_options_of(defaults.spec, {}, defaults))
          if (const Seconds other = *step(net, model, codec, option.strategy->name, link, lanes);
              other < best) {
            best = other;
            by = option.strategy->name;
          }
        out.push_back(own / best);
        if (own > 1.1 * best)
          fmt::print("{:.2f}: {} {} {}, {} lanes: {:.2f} ms, {} {:.2f}\n", own / best, net.text(), model.name,
                     codec, lanes, own * 1e3, by, best * 1e3);
      }
  std::ranges::sort(out);
  return out;
}

double share_within(const std::vector<double>& sorted, double bound) {
  return static_cast<double>(std::ranges::upper_bound(sorted, bound) - sorted.begin()) /
         static_cast<double>(sorted.size());
}

TEST(AutoStrategy, Fp8RingsEndAtTheDocumentedLoss) {
  const auto rings = [](std::string_view codec, int world) {
    const ChoiceDefaults defaults{.spec = *parse_spec(codec), .world = world};
    return std::ranges::any_of(plan::strategy_options_of(defaults.spec, {}, defaults),
                               [](const StrategyOption& option) { return option.strategy->name == "ring"; });
  };
  EXPECT_TRUE(rings("fp8", 15));  // docs/reference/strategies.md
  EXPECT_FALSE(rings("fp8", 16));
  EXPECT_TRUE(rings("fp8:format=e5m2", 3));
  EXPECT_FALSE(rings("fp8:format=e5m2", 4));
}

// In a tree of four to seven ranks, sums are rounded three times; `server` rounds twice, `gather` once.
TEST(AutoStrategy, NoTreeRoundsLowBitSumsThreeTimes) {
  for (const char* codec : {"onebit", "eden:bits=2", "topk:ratio=0.01"})
    for (const int world : {4, 5, 6, 7}) {
      const ChoiceDefaults defaults{.spec = *parse_spec(codec), .world = world};
      for (const StrategyOption& option : plan::strategy_options_of(defaults.spec, {}, defaults))
        EXPECT_LE(option.strategy->cost(defaults.place()).roundings, 2)
            << codec << " " << option.strategy->name;
    }
  const ChoiceDefaults uncompressed{.spec = *parse_spec("fp32"), .world = 4};
  EXPECT_TRUE(
      std::ranges::any_of(plan::strategy_options_of(uncompressed.spec, {}, uncompressed),
                          [](const StrategyOption& option) { return option.strategy->name == "tree"; }));
}

TEST(AutoStrategy, EqualTimesPreferSummationInRankOrder) {
  const CodecCost cost{.wire = 1e-9, .frames = 10e-6, .delay = 100e-6},
      deeper{.wire = 1e-9, .frames = 10e-6, .delay = 150e-6};
  const std::vector<StrategyOption> options{
      {find_strategy("tree"), cost}, {find_strategy("server"), deeper}, {find_strategy("gather"), cost}};
  EXPECT_EQ(plan::best_option(options, 1'000'000).strategy->name, "gather");
  EXPECT_EQ(plan::best_option(std::span(options).first(2), 1'000'000).strategy->name, "server");
  EXPECT_EQ(plan::best_option(std::span(options).first(1), 1'000'000).strategy->name, "tree");
}

// Part sizes must suit the strategy that is chosen: a tree has few frames per part, `server` many.
TEST(AutoStrategy, TensorsHaveOwnFramesIfTheStrategyPaysForThem) {
  const Choices choices = Choices::of({.spec = *parse_spec("fp32"), .world = 16, .link = {3.125e9, 50e-6}});
  EXPECT_GT(choices.min_values(), 100'000U);
}

TEST(AutoStrategy, IsNearTheBestOnStatedLinks) {
  EXPECT_LE(ratios(nets({0.1, 1, 10, 25}), true).back(), 1.1);
}

// The number of lanes is not given, so one lane is assumed, as in a session without the option. With fp32 inside hosts
// of eight ranks, `hosts` would take twice as long as a ring of fp8 over all ranks.
TEST(AutoStrategy, CompressesInsideHostsOnSlowLocalLinks) {
  const auto inside = [](std::string_view codec, std::string_view link) {
    const Choices choices = Choices::of({.spec = *parse_spec(codec),
                                         .world = 32,
                                         .hosts = *Hosts::parse("4x8", 32),
                                         .link = *parse_link(link)});
    const PlanTensor bucket[] = {{"w", 4'000'000}};
    const Part part = make_plan(bucket, choices).parts[0];
    return part.inside ? to_string(*part.inside) : "none";
  };
  constexpr std::string_view kSlow = "25Gb/s+30us, inside 10GB/s+9us",
                             kFast = "1Gb/s+30us, inside 120GB/s+9us";
  EXPECT_EQ(inside("fp8", kSlow), "fp8");
  EXPECT_EQ(inside("eden:bits=3", kSlow), "fp8");
  EXPECT_EQ(inside("bf16", kSlow), "none") << "the strategy has one level";
  EXPECT_EQ(inside("fp32", kSlow), "none");
  EXPECT_EQ(inside("fp8:feedback=none", kSlow), "fp32") << "loss inside a host needs a residual";
  EXPECT_EQ(inside("fp8", kFast), "fp32") << "no loss without a gain";
}

TEST(AutoStrategy, IsNearTheBestWithUnknownExtraLanes) {
  const std::vector<double> all = ratios(nets({0.1, 1, 10, 25}), true, 2);
  EXPECT_LE(all.back(), 1.15);
  EXPECT_GE(share_within(all, 1.1), 0.99);
}

TEST(AutoStrategy, IsNearTheBestOnHighLatencyLinks) {
  const Net far[] = {{2, 1, 1, 5e-3},  {2, 2, 1, 5e-3},   {4, 1, 1, 5e-3},  {16, 1, 1, 5e-3},
                     {4, 8, 1, 5e-3},  {2, 1, 1, 40e-3},  {4, 1, 1, 40e-3}, {16, 1, 1, 40e-3},
                     {4, 1, 10, 1e-3}, {16, 1, 10, 1e-3}, {4, 8, 10, 1e-3}};
  const std::vector<double> all = ratios(far, true);
  EXPECT_LE(all.back(), 1.25);
  EXPECT_GE(share_within(all, 1.1), 0.9);
}

// The link is unknown: links of 1 Gbit/s and of a tenth of it are assumed.
TEST(AutoStrategy, IsNearTheBestOnUnstatedSlowLinks) {
  const std::vector<double> slow = ratios(nets({0.1, 0.3, 1}), false);
  EXPECT_LE(slow.back(), 1.2);
  EXPECT_GE(share_within(slow, 1.1), 0.99);
}

}  // namespace
}  // namespace tithe::planner
