// SPDX-License-Identifier: Apache-2.0
// For the same plan, the simulator's steps must be those of the engine's trace. Timing may differ: the order of
// messages from different ranks, and the choice of a lane. Everything else is equal on every rank: the set of steps,
// the order of the steps of a chunk, and no step begins before its predecessors have ended.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "advisor/sim/world.h"
#include "engine/peers/session_config.h"
#include "engine/program/laws.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

namespace tithe::sim {
namespace {

using engine::StepKind;
using ::tithe::testing::Ranks;
using ::tithe::testing::text;

// The sizes of each bucket's tensors: with one part, with several parts, and small.
constexpr std::size_t kBuckets[2][2] = {{50'000, 700}, {9'000, 20'001}};
constexpr std::size_t kPart = 20'000;

struct Happening {
  std::string_view op;
  int part = 0, chunk = 0, phase = 0, peer = -1;
  double begin = 0, end = 0;
  double order = 0;  // among steps with the same name
  std::string line() const {
    return std::string(op) + " " + std::to_string(part) + "." + std::to_string(chunk) + " phase " +
           std::to_string(phase) + " peer " + std::to_string(peer);
  }
};
using Happenings = std::vector<Happening>;  // of one rank, in the order of their ends

std::string_view name_of(StepKind kind) {
  constexpr std::string_view kNames[] = {"load", "own", "encode", "send", "recv", "check", "merge", "store"};
  return kNames[static_cast<std::size_t>(kind)];
}

void in_order(Happenings& all) {
  std::stable_sort(all.begin(), all.end(), [](const Happening& a, const Happening& b) {
    return std::tie(a.end, a.begin) < std::tie(b.end, b.begin);
  });
}

std::vector<Happenings> traced(const SessionOptions& options, int world, DType dtype) {
  std::vector<Happenings> out(static_cast<std::size_t>(world));
  Ranks ranks(open_loop(world), options);
  ranks.each([&](Rank r) {
    Session& session = ranks[r];
    session.trace(true);
    std::vector<std::vector<float>> values;
    std::vector<std::vector<Tensor>> buckets(std::size(kBuckets));
    for (std::size_t b = 0; b < std::size(kBuckets); ++b)
      for (std::size_t t = 0; t < 2; ++t) {
        std::vector<float>& v = values.emplace_back(kBuckets[b][t]);
        if (dtype == DType::kF32)
          for (std::size_t i = 0; i < v.size(); ++i)
            v[i] = std::sin(static_cast<float>(i + t) + static_cast<float>(r));
        constexpr std::string_view kKeys[2][2] = {{"a", "b"}, {"c", "d"}};
        buckets[b].push_back(
            {.key = kKeys[b][t], .data = v.data(), .n = v.size(), .dtype = dtype, .row = v.size()});
      }
    std::vector<Ticket> tickets;
    for (const auto& bucket : buckets) {
      const Result<Ticket> ticket = session.sync(bucket);
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      tickets.push_back(*ticket);
    }
    for (const Ticket t : tickets) {
      const Status waited = session.wait(t);
      ASSERT_TRUE(waited.ok()) << text(waited);
    }
    ASSERT_TRUE(session.commit().ok());
    for (const TraceEvent& e : session.take_trace())
      if (e.lane >= 0)
        out[static_cast<std::size_t>(r)].push_back(
            {e.op, static_cast<int>(e.part), e.chunk, e.phase, e.peer, static_cast<double>(e.begin_ns),
             static_cast<double>(e.end_ns), static_cast<double>(e.op == "send" ? e.begin_ns : e.end_ns)});
  });
  for (Happenings& h : out) in_order(h);
  return out;
}

// The same for the simulator; with each rank's dependencies as pairs of indices in its list.
struct Simulated {
  std::vector<Happenings> ranks;
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> waits;
};

Simulated simulated(const SessionOptions& options, const Cluster& cluster, bool copies) {
  const Result<Choices> choices = engine::choices_of(options, cluster.world(), cluster.shared());
  EXPECT_TRUE(choices.ok()) << choices.status().what();
  Workload work;
  std::vector<int> first_part;
  int parts = 0;
  for (const auto& sizes : kBuckets) {
    constexpr std::string_view kKeys[2][2] = {{"a", "b"}, {"c", "d"}};
    std::vector<PlanTensor> tensors;
    for (std::size_t t = 0; t < 2; ++t)
      tensors.push_back({kKeys[work.buckets.size()][t], sizes[t], sizes[t]});
    work.buckets.push_back({.plan = make_plan(tensors, *choices), .copies = copies});
    first_part.push_back(parts);
    parts += static_cast<int>(work.buckets.back().plan.parts.size());
  }
  const Result<Outcome> out = run(cluster, default_costs(), work, true, Extent::kAll);
  EXPECT_TRUE(out.ok()) << out.status().what();
  Simulated all;
  all.ranks.resize(static_cast<std::size_t>(cluster.world()));
  all.waits.resize(all.ranks.size());
  std::vector<std::map<std::tuple<int, int, int>, std::size_t>> number(all.ranks.size());
  for (const Event& e : out->events) {
    const engine::Step& s = out->step_of(e);
    const auto r = static_cast<std::size_t>(e.rank);
    number[r][{e.bucket, e.part, e.step}] = all.ranks[r].size();
    all.ranks[r].push_back({name_of(s.kind), first_part[static_cast<std::size_t>(e.bucket)] + e.part, s.chunk,
                            s.phase, s.peer, e.begin, e.end, static_cast<double>(e.step)});
  }
  for (const Event& e : out->events) {
    const engine::Program& p = out->program(e.rank, e.bucket, e.part);
    const engine::Step& s = out->step_of(e);
    const auto r = static_cast<std::size_t>(e.rank);
    for (std::uint32_t k = 0; k < s.next.count; ++k)
      all.waits[r].emplace_back(number[r].at({e.bucket, e.part, e.step}),
                                number[r].at({e.bucket, e.part, p.indices[s.next.first + k]}));
  }
  return all;
}

// The steps of each chunk, whose order does not depend on timing. Messages are left out: long ones wait for their
// receiver and short ones do not, so the order of their ends depends on timing. expect_same() checks the order of
// posting by dependencies.
std::map<std::string, std::vector<std::string>> orders(const Happenings& all) {
  std::map<std::string, std::vector<std::string>> out;
  for (const Happening& h : all) {
    const bool with_peer = h.op == "check" || h.op == "recv" || h.op == "send";
    out[with_peer ? h.line() : "chunk " + std::to_string(h.part) + "." + std::to_string(h.chunk)].push_back(
        h.line());
  }
  return out;
}

// For each step of the simulator, the index in the trace. Among steps with the same name, the k-th matches the k-th.
std::vector<std::size_t> matched(const Happenings& from, const Happenings& in) {
  const auto by_name = [](const Happenings& all) {
    std::map<std::string, std::vector<std::size_t>> out;
    for (std::size_t k = 0; k < all.size(); ++k) out[all[k].line()].push_back(k);
    for (auto& [line, list] : out)
      std::stable_sort(list.begin(), list.end(),
                       [&](std::size_t a, std::size_t b) { return all[a].order < all[b].order; });
    return out;
  };
  const auto here = by_name(from), there = by_name(in);
  std::vector<std::size_t> out(from.size());
  for (const auto& [line, list] : here)
    for (std::size_t k = 0; k < list.size(); ++k) out[list[k]] = there.at(line)[k];
  return out;
}

void expect_same(const SessionOptions& options, const Cluster& cluster, DType dtype = DType::kF32) {
  const std::vector<Happenings> engine = traced(options, cluster.world(), dtype);
  const Simulated sim = simulated(options, cluster, dtype != DType::kF32);
  for (std::size_t r = 0; r < engine.size(); ++r) {
    SCOPED_TRACE(::testing::Message() << "rank " << r);
    ASSERT_GE(engine[r].size(), 6U);
    ASSERT_EQ(orders(engine[r]), orders(sim.ranks[r]));  // implies equal sets of steps
    const std::vector<std::size_t> at = matched(sim.ranks[r], engine[r]);
    for (const auto& [before, after] : sim.waits[r]) {
      const Happening &a = engine[r][at[before]], &b = engine[r][at[after]];
      if (b.op == "recv") continue;  // posted long before
      // A step after a send only depends on its posting.
      EXPECT_LE(a.op == "send" ? a.begin : a.end, b.begin) << a.line() << ", then " << b.line();
    }
  }
}

Cluster hosts_of(int hosts, int ranks) {
  const Result<Cluster> out =
      Cluster::parse("[[hosts]]\ncount = " + std::to_string(hosts) + "\nranks = " + std::to_string(ranks) +
                         "\ncores = 2\nrate = \"1Gb/s\"\nlatency = \"50us\"\ninside = "
                         "\"10GB/s\"\ninside_latency = \"2us\"\n",
                     "test.toml");
  EXPECT_TRUE(out.ok()) << out.status().what();
  return *out;
}

SessionOptions options_of(const char* codec, const char* strategy, const char* hosts = "") {
  return {.codec = codec, .strategy = strategy, .hosts = hosts, .min_values = 0, .part_values = kPart};
}

constexpr const char* kCodecs[] = {
    "fp32", "bf16", "onebit", "topk:ratio=0.01", "qsgd_shared", "scalecom:ratio=0.01"};

bool share_a_law(const char* codec, const char* strategy) {
  return engine::choose_laws(*parse_spec(codec), *find_strategy(strategy)).ok();
}

TEST(TraceLaw, FlatStrategiesOnSeveralRanks) {
  for (const char* strategy : {"ring", "server", "gather", "tree", "aggregator"})
    for (const char* codec : kCodecs)
      for (const int world : {2, 3, 4}) {
        if (!share_a_law(codec, strategy)) continue;
        SCOPED_TRACE(::testing::Message() << codec << " by " << strategy << " on " << world);
        expect_same(options_of(codec, strategy), hosts_of(world, 1));
      }
}

TEST(TraceLaw, HostStrategies) {
  for (const char* strategy : {"hosts", "hosts_gather", "hosts_ring"})
    for (const char* codec : kCodecs) {
      if (!share_a_law(codec, strategy)) continue;
      SCOPED_TRACE(::testing::Message() << codec << " by " << strategy);
      expect_same(options_of(codec, strategy, "2x2"), hosts_of(2, 2));
      expect_same(options_of(codec, strategy, "3x1"), hosts_of(3, 1));
    }
}

TEST(TraceLaw, CopiedValues) {
  for (const char* strategy : {"ring", "server", "gather"})
    expect_same(options_of("bf16", strategy), hosts_of(3, 1), DType::kBF16);
}

}  // namespace
}  // namespace tithe::sim
