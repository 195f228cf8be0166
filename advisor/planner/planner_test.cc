// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "advisor/planner/why.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

// A model with tensors of all sizes in the order of a backward pass: small tensors between large ones.
PlanQuery query(double bits_per_second, int hosts = 4, Seconds compute = 50e-3) {
  PlanQuery q;
  q.cluster = sim::Cluster::flat(hosts, bits_per_second / 8, 50e-6, 8);
  q.costs = sim::default_costs();
  q.job.compute = compute;
  const std::size_t sizes[] = {1'000'000, 1000, 2'000'000, 2000, 500'000, 64, 250'000, 512, 4'000'000, 4096};
  for (std::size_t t = 0; t < std::size(sizes); ++t) {
    const Seconds ready = compute * (0.4 + 0.6 * static_cast<double>(t + 1) / std::size(sizes));
    q.job.tensors.push_back(
        {"layer" + std::to_string(t) + (sizes[t] > 5000 ? ".weight" : ".bias"), sizes[t], sizes[t], ready});
    if (t % 2 == 1) q.job.bucket_ends.push_back(t + 1);
  }
  return q;
}

void allow(PlanQuery& q, std::initializer_list<const char*> texts) {
  for (const char* text : texts) q.allowed.push_back(*parse_allowance(text));
}

const char* kPolicies[] = {"timeline", "secopa", "dragonn", "threshold:1MB", "bf16", "fp32"};

TEST(Planner, EveryPolicyIsTested) {
  std::vector<std::string_view> names;
  for (const char* p : kPolicies)
    names.push_back(std::string_view(p).substr(0, std::string_view(p).find(':')));
  for (const Policy* p : all_policies())
    EXPECT_NE(std::find(names.begin(), names.end(), p->name), names.end()) << p->name;
}

TEST(Planner, PoliciesUseOnlyAllowedCodecs) {
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    PlanQuery q = query(1e8);
    const Result<Planned> without = plan(q, policy);
    ASSERT_TRUE(without.ok()) << without.status().what();
    for (const Rule& r : without->rules) EXPECT_TRUE(always_allowed(*r.codec)) << to_string(*r.codec);

    allow(q, {"onebit", "layer8.*: fp32", "layer2.weight: fp8"});
    const Result<Planned> with = plan(q, policy);
    ASSERT_TRUE(with.ok()) << with.status().what();
    const Choices choices =
        *Choices::make(with->rules, {.spec = *parse_spec("fp32"), .strategy = find_strategy("server")});
    for (const JobTensor& t : q.job.tensors) {
      const std::string codec = to_string(choices.choice(t.key, t.n).spec);
      if (t.key.starts_with("layer8."))
        EXPECT_TRUE(codec == "fp32" || codec == "zip") << t.key << " " << codec;
      else if (t.key == "layer2.weight")
        EXPECT_TRUE(codec == "fp32" || codec == "zip" || codec == "fp8") << codec;
      else
        EXPECT_TRUE(codec == "fp32" || codec == "bf16" || codec == "zip" || codec == "onebit") << codec;
    }
  }
}

TEST(Planner, RulesStateTheDecisionForEveryTensor) {
  PlanQuery q = query(1e8);
  q.job.tensors[3].key = "odd*key?";
  q.job.tensors[4].key = "=first";
  allow(q, {"onebit", "dgc:ratio=0.01"});
  Result<PlanSearch> made = PlanSearch::make(q);
  PlanSearch& search = *made;
  // Each tensor has another decision, so sizes decide nothing.
  Assignment assignment;
  for (std::size_t t = 0; t < q.job.tensors.size(); ++t)
    assignment.push_back(
        {static_cast<int>(t % search.options().size()), std::size_t{1} << (18 + t % 3), false});
  q.job.tensors[6].n = q.job.tensors[4].n;
  const std::vector<Rule> rules = search.rules(assignment);
  const Result<Choices> choices =
      Choices::make(rules, {.spec = *parse_spec("fp32"), .strategy = find_strategy("server"), .world = 4});
  ASSERT_TRUE(choices.ok()) << choices.status().what();
  for (std::size_t t = 0; t < q.job.tensors.size(); ++t) {
    const Choice& c = choices->choice(q.job.tensors[t].key, q.job.tensors[t].n);
    EXPECT_EQ(c.spec, search.option(assignment[t].option).spec) << q.job.tensors[t].key;
    EXPECT_EQ(c.strategy, search.option(assignment[t].option).strategy);
    EXPECT_EQ(c.part_values, assignment[t].part_values);
  }
}

TEST(Planner, SameQueryGivesTheSamePlan) {
  PlanQuery q = query(1e9);
  allow(q, {"onebit", "fp8"});
  const Planned a = *plan(q, "timeline"), b = *plan(q, "timeline");
  EXPECT_EQ(a.rules, b.rules);
  EXPECT_EQ(a.judged, b.judged);
  EXPECT_EQ(a.outcome.step, b.outcome.step);
}

TEST(Planner, NoPolicyBeatsTimeline) {
  for (const double rate : {1e8, 1e9, 1e10})
    for (const int hosts : {2, 4, 8}) {
      PlanQuery q = query(rate, hosts);
      allow(q, {"onebit", "dgc:ratio=0.01", "fp8"});
      const Seconds timeline = plan(q, "timeline")->outcome.step;
      for (const char* other : kPolicies)
        EXPECT_LE(timeline, 1.02 * plan(q, other)->outcome.step)
            << other << " at " << rate << ", " << hosts << " hosts";
    }
}

// Hosts with several ranks: large worlds are represented by a few ranks, and two-level strategies are among the
// options.
TEST(Planner, HostsWithSeveralRanksArePlanned) {
  for (const int hosts : {2, 6}) {
    PlanQuery q = query(1e9);
    const std::string text =
        "name = \"t\"\n[[hosts]]\ncount = " + std::to_string(hosts) +
        "\nranks = 4\ncores = 16\nrate = \"1Gb/s\"\nlatency = \"50us\"\ninside = \"10GB/s\"\n"
        "inside_latency = \"2us\"\n";
    Result<sim::Cluster> cluster = sim::Cluster::parse(text, "t.toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status().what();
    q.cluster = *cluster;
    allow(q, {"onebit"});
    const Result<Planned> p = plan(q, "timeline");
    ASSERT_TRUE(p.ok()) << p.status().what();
    EXPECT_LT(p->outcome.step, p->bf16.step);
  }
}

// If the links inside a host are slow, bf16 is used there; a tensor that must stay fp32 stays fp32 there too.
TEST(Planner, SlowLocalLinksUseBf16) {
  for (const bool exception : {false, true}) {
    PlanQuery q = query(1e9);
    Result<sim::Cluster> cluster = sim::Cluster::parse(
        "name = \"t\"\n[[hosts]]\ncount = 2\nranks = 2\ncores = 16\nrate = \"100Mb/s\"\nlatency = \"50us\"\n"
        "inside = \"300Mb/s\"\ninside_latency = \"20us\"\n",
        "t.toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status().what();
    q.cluster = *cluster;
    if (exception) allow(q, {"*: fp32"});
    const Result<Planned> p = plan(q, "timeline");
    ASSERT_TRUE(p.ok()) << p.status().what();
    const bool inside = std::any_of(p->rules.begin(), p->rules.end(), [](const Rule& r) {
      return r.inside && r.inside->codec->name == "bf16";
    });
    EXPECT_EQ(inside, !exception);
  }
}

// judge() with a limit may return a lower bound above the limit, and must be exact below it.
TEST(Planner, TimeLimitHidesOnlyTheLengthOfLongerSteps) {
  PlanQuery q = query(1e8, 8);
  allow(q, {"onebit"});
  Result<PlanSearch> search = PlanSearch::make(q);
  ASSERT_TRUE(search.ok()) << search.status().what();
  std::size_t cut = 0;
  for (std::size_t o = 0; o < search->options().size(); ++o)
    for (const std::size_t part : {std::size_t{1} << 18, std::size_t{1} << 22}) {
      const Assignment all = search->uniform(static_cast<int>(o), part);
      const Seconds step = search->judge(all);
      for (const double factor : {1.0, 1.1, 5.0}) EXPECT_EQ(search->judge(all, factor * step), step);
      for (const double factor : {0.2, 0.9, 0.999})
        EXPECT_GT(search->judge(all, factor * step), factor * step);
      if (search->judge(all, 0.5 * step) < step) ++cut;
    }
  EXPECT_GT(cut, 0U);
}

TEST(Planner, VeryManyTensorsAreEstimated) {
  PlanQuery q = query(1e9);
  const std::vector<JobTensor> few = q.job.tensors;
  q.job.tensors.clear();
  q.job.bucket_ends.clear();
  for (std::size_t t = 0; t <= kMaxConfirmed; ++t) {
    q.job.tensors.push_back(few[t % few.size()]);
    q.job.tensors.back().key = "t" + std::to_string(t);
    if (t % 10 == 9 || t == kMaxConfirmed) q.job.bucket_ends.push_back(t + 1);
  }
  allow(q, {"onebit"});
  const Planned p = *plan(q, "timeline");
  EXPECT_TRUE(p.estimated);
  EXPECT_NE(p.verdict.find("estimated"), std::string::npos) << p.verdict;
  EXPECT_LT(p.outcome.step, 0.5 * p.bf16.step);
  EXPECT_EQ(p.rules, plan(q, "timeline")->rules);
}

TEST(Planner, FastLinksUseNoCompression) {
  PlanQuery q = query(1e12);
  allow(q, {"onebit", "dgc:ratio=0.01"});
  const Planned p = *plan(q, "timeline");
  for (const Rule& r : p.rules) EXPECT_TRUE(always_allowed(*r.codec)) << to_string(*r.codec);
  EXPECT_GT(p.outcome.step, 0.95 * p.bf16.step) << p.verdict;
}

TEST(Planner, SlowLinksUseAllowedCodecs) {
  PlanQuery q = query(1e8);
  allow(q, {"onebit"});
  const Planned p = *plan(q, "timeline");
  EXPECT_LT(p.outcome.step, 0.3 * p.bf16.step);
  EXPECT_TRUE(std::any_of(p.rules.begin(), p.rules.end(),
                          [](const Rule& r) { return r.codec->codec->name == "onebit"; }));
}

// A first bucket whose exchange ends long before the last one begins gains nothing from compression, and stays
// uncompressed.
TEST(Planner, HiddenCommunicationIsNotCompressed) {
  PlanQuery q = query(1e9, 4, 500e-3);
  allow(q, {"onebit"});
  for (JobTensor& t : q.job.tensors)
    t.ready = t.key.starts_with("layer8") || t.key.starts_with("layer9") ? 0.5 : 0.05;
  const Planned p = *plan(q, "timeline");
  const Choices choices =
      *Choices::make(p.rules, {.spec = *parse_spec("fp32"), .strategy = find_strategy("server")});
  EXPECT_TRUE(always_allowed(choices.choice("layer0.weight", 1'000'000).spec));
  EXPECT_EQ(choices.choice("layer8.weight", 4'000'000).spec.codec->name, "onebit");
}

TEST(Planner, ThresholdCompressesTensorsOfItsSizeAndAbove) {
  PlanQuery q = query(1e9);
  allow(q, {"onebit"});
  const Planned p = *plan(q, "threshold:4MB");
  const Choices choices =
      *Choices::make(p.rules, {.spec = *parse_spec("fp32"), .strategy = find_strategy("server")});
  for (const JobTensor& t : q.job.tensors)
    EXPECT_EQ(choices.choice(t.key, t.n).spec.codec->name == "onebit", 4 * t.n >= 4'000'000) << t.key;
}

// Without latency and compute costs, DRAGONN's rule compresses a tensor if its payload by gather is smaller than 2 / K
// of the tensor.
TEST(Planner, DragonnComparesTwoOverKWithThePayload) {
  for (const int hosts : {2, 8}) {
    PlanQuery q = query(1e9, hosts);
    q.cluster = sim::Cluster::flat(hosts, 1e9 / 8, 0, 8);
    q.costs.post = q.costs.complete = 0;
    for (auto& [name, c] : q.costs.codecs) c = {};
    allow(q, {"fp8"});  // half the size of bf16
    const Planned p = *plan(q, "dragonn");
    const bool compresses = std::any_of(p.rules.begin(), p.rules.end(),
                                        [](const Rule& r) { return r.codec->codec->name == "fp8"; });
    EXPECT_EQ(compresses, hosts == 2);  // 1/2 < 2/2, but not < 2/8
  }
}

TEST(Planner, ImprovingTheBottleneckShortensTheStep) {
  const PlanQuery slow = query(1e8);
  EXPECT_EQ(bounds_of(slow, *plan(slow, "fp32"))->by, "uplink");
  const PlanQuery hidden = query(1e11, 4, 5.0);
  EXPECT_EQ(bounds_of(hidden, *plan(hidden, "fp32"))->by, "compute");
}

// An alternative is the plan with one change, simulated as if a file had its rules. No alternative may be much shorter
// than the plan.
TEST(Planner, ReasonsComeFromFullSimulations) {
  for (const double rate : {1e8, 1e9, 1e10}) {
    PlanQuery q = query(rate);
    allow(q, {"onebit"});
    const Planned p = *plan(q, "timeline");
    const Reasons reasons = *reasons_of(q, p);
    Result<PlanSearch> search = PlanSearch::make(q);
    std::size_t tensors = reasons.left_out;
    ASSERT_FALSE(reasons.rows.empty());
    for (const Reason& r : reasons.rows) {
      tensors += r.tensors.size();
      EXPECT_FALSE(r.alternatives.empty());
      EXPECT_TRUE(std::ranges::is_sorted(r.alternatives, {}, &Alternative::step));
      for (const Alternative& a : r.alternatives) {
        EXPECT_GT(a.step, 0.98 * p.outcome.step) << a.option << " at " << rate;
        if (a.step < sim::kNever) {
          EXPECT_EQ(a.step, simulate(q, search->rules(a.assignment))->step) << a.option;
        }
        for (std::size_t t = 0; t < a.assignment.size(); ++t)
          EXPECT_TRUE(a.assignment[t] == p.assignment[t] ||
                      std::ranges::find(r.tensors, t) != r.tensors.end());
      }
    }
    EXPECT_EQ(tensors, q.job.tensors.size());
    // The largest tensor is in the first row, and its alternatives include compressing it or not.
    EXPECT_NE(std::ranges::find(reasons.rows[0].tensors, 8U), reasons.rows[0].tensors.end());
    const auto lossy = [&](const Assignment& all) { return search->option(all[8].option).lossy; };
    EXPECT_TRUE(std::ranges::any_of(reasons.rows[0].alternatives, [&](const Alternative& a) {
      return lossy(a.assignment) != lossy(p.assignment);
    }));
  }
}

TEST(Planner, EqualTensorsShareAReason) {
  PlanQuery q = query(1e9);
  for (JobTensor& t : q.job.tensors)
    if (t.n > 5000) t.n = t.row = 1'000'000;
  const Planned p = *plan(q, "fp32");
  EXPECT_EQ(reasons_of(q, p)->rows[0].tensors.size(), 5U);
}

sim::Cluster cluster_of(const std::string& hosts) {
  const Result<sim::Cluster> cluster = sim::Cluster::parse("name = \"t\"\n" + hosts, "t.toml");
  EXPECT_TRUE(cluster.ok()) << cluster.status().what();
  return *cluster;
}

// The shortest simulated step over all strategies, of a session that has the link's rate and no plan.
Seconds min_step_of(const PlanQuery& q, const std::string& codec) {
  Seconds least = sim::kNever;
  const Link link = *parse_link(q.cluster.link_text(q.costs));
  for (const Strategy* s : all_strategies())
    for (const bool inside : {false, true}) {
      if (inside && (s->between == nullptr || codec == "fp32")) continue;
      const Choices session = Choices::of({.spec = *parse_spec(codec),
                                           .strategy = s,
                                           .world = q.cluster.world(),
                                           .hosts = q.cluster.shared(),
                                           .link = link});
      const std::size_t from = inside ? kDefaultMinValues : session.min_values();
      std::vector<Rule> rules;
      if (from > 1) rules.push_back({.most = from - 1, .codec = *parse_spec("fp32"), .group = "small"});
      rules.push_back({.codec = *parse_spec(codec), .strategy = std::string(s->name)});
      if (inside) rules.back().inside = *parse_spec("bf16");
      if (const Result<sim::Outcome> out = simulate(q, rules); out.ok()) least = std::min(least, out->step);
    }
  return least;
}

TEST(Planner, BaselinesUseTheBestStrategy) {
  for (const char* hosts : {"[[hosts]]\ncount = 4\nrate = \"1Gb/s\"\nlatency = \"50us\"\n",
                            "[[hosts]]\ncount = 9\nrate = \"100Gb/s\"\nlatency = \"1ms\"\n",
                            "[[hosts]]\ncount = 4\nranks = 4\ncores = 16\nrate = \"10Gb/s\"\nlatency = "
                            "\"50us\"\ninside = \"10GB/s\"\n"
                            "inside_latency = \"2us\"\n",
                            "[[hosts]]\ncount = 2\nranks = 4\ncores = 16\nrate = \"10Gb/s\"\nlatency = "
                            "\"5us\"\ninside = \"1GB/s\"\n"
                            "inside_latency = \"2us\"\n"}) {
    SCOPED_TRACE(hosts);
    PlanQuery q = query(1e9);
    q.cluster = cluster_of(hosts);
    q.costs = sim::assumed_costs();
    allow(q, {"fp8"});
    const Planned p = *plan(q, "timeline");
    const auto near = [](Seconds is, Seconds should) { EXPECT_NEAR(is, should, 1e-3 * should); };
    near(p.fp32.step, min_step_of(q, "fp32"));
    near(p.bf16.step, min_step_of(q, "bf16"));
    near(p.single.step, std::min({p.fp32.step, p.bf16.step, min_step_of(q, "fp8")}));
    EXPECT_TRUE(p.bf16.name.starts_with("bf16@")) << p.bf16.name;
    EXPECT_NEAR(simulate(q, p.bf16.rules)->step, p.bf16.step, 1e-9);
    EXPECT_LE(p.outcome.step, p.lossless);
    EXPECT_LE(p.lossless, p.bf16.step);
    if (p.compresses) {
      EXPECT_NE(p.verdict.find("times as fast as " + p.bf16.name + ", the best bf16"), std::string::npos);
    }
    const Seconds policy = plan(q, "bf16", &p)->outcome.step;  // the policy sends small tensors as bf16 too
    EXPECT_LE(policy, p.bf16.step);
    EXPECT_GT(policy, 0.98 * p.bf16.step);
  }
}

// Without permission for loss, the plan must not claim a gain over itself.
TEST(Planner, LosslessPlanHasNoSpeedupOverItself) {
  for (const double rate : {1e8, 1e9, 1e10}) {
    const Planned p = *plan(query(rate), "timeline");
    EXPECT_FALSE(p.compresses);
    EXPECT_EQ(p.gain(), 1.0);
    EXPECT_EQ(p.lossless, p.outcome.step);
    EXPECT_EQ(p.verdict.find("times as fast"), std::string::npos) << p.verdict;
  }
}

TEST(Planner, GainsBelowFivePercentDoNotJustifyLoss) {
  bool hidden = false, some = false;
  for (double rate = 1e8; rate < 1e12; rate *= 1.5) {
    PlanQuery q = query(rate);
    allow(q, {"fp8"});
    const Planned p = *plan(q, "timeline");
    EXPECT_EQ(p.compresses, p.outcome.step <= kWorthLosing * p.lossless) << p.verdict;
    EXPECT_EQ(p.compresses, !p.verdict.starts_with("do not compress")) << p.verdict;
    hidden = hidden || !p.compresses;
    some = some || p.compresses;
  }
  EXPECT_TRUE(hidden && some);
}

void refused(const Result<Planned>& result, std::string_view word) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), Code::kInvalid);
  EXPECT_NE(result.status().what().find(word), std::string::npos) << result.status().what();
}

TEST(Planner, RefusesUnanswerableQueries) {
  PlanQuery q = query(1e9);
  refused(plan(q, "timelime"), "timeline");
  refused(plan(q, "threshold"), "bytes");
  refused(plan(q, "threshold:many"), "give bytes");
  refused(plan(q, "fp32:1"), "takes no value");
  allow(q, {"encoder.*: onebit"});
  refused(plan(q, "timeline"), "no tensor of the model has such a key");
  q.allowed.clear();
  q.costs.codecs.erase("onebit");
  allow(q, {"onebit"});
  refused(plan(q, "timeline"), "no costs of onebit");
  q.allowed.clear();
  q.job.tensors.clear();
  refused(plan(q, "timeline"), "no tensors");
  EXPECT_FALSE(parse_allowance("onebitt").ok());
  EXPECT_FALSE(parse_allowance(": onebit").ok());
}

}  // namespace
}  // namespace tithe::planner
