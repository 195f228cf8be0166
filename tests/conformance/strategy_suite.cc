// SPDX-License-Identifier: Apache-2.0
// Every contract of graph.h and of the head of each strategy's file, for all strategies and 1 to 16 ranks. First with
// symbolic frames, then with every codec under each of its laws.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "conformance/plain_actors.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::Chooser;
using testing::GraphRun;
using testing::Mail;
using testing::Outcome;
using testing::Payload;
using testing::run_all;
using testing::run_graph;
using testing::Sizes;
using testing::whole_numbers;
using testing::Worker;

// ---- The suite

struct World {
  int ranks;
  std::string hosts;  // empty: each rank has its own
  int servers = 0;    // for strategies that use servers
};

// Every number of ranks; and where hosts are shared: evenly, unevenly, in turns, by all.
std::vector<World> worlds() {
  std::vector<World> all;
  for (int ranks = 1; ranks <= 16; ++ranks) all.push_back({ranks, ""});
  for (const auto& [ranks, hosts] : {std::pair{4, "2x2"}, std::pair{4, "3+1"}, std::pair{4, "0,1,1,0"},
                                     std::pair{3, "1x3"}, std::pair{5, "1+3+1"}, std::pair{6, "0,1,2,1,0,1"},
                                     std::pair{6, "3x2"}, std::pair{9, "4+2+3"}, std::pair{12, "3x4"}})
    all.push_back({ranks, hosts});
  for (const auto& [ranks, servers] : {std::pair{2, 1}, std::pair{5, 1}, std::pair{5, 2}, std::pair{7, 4}})
    all.push_back({ranks, "", servers});
  return all;
}

class StrategySuite : public ::testing::TestWithParam<std::tuple<const Strategy*, World>> {
 protected:
  const Strategy& strategy() const { return *std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()).ranks; }
  const Hosts& hosts() const { return hosts_; }
  int servers() const { return strategy().serves ? std::get<1>(GetParam()).servers : 0; }
  Place place(Rank r = 0) const { return {r, world(), &hosts_, servers()}; }

 private:
  const Hosts hosts_ = *Hosts::parse(std::get<1>(GetParam()).hosts, world());
};

TEST_P(StrategySuite, Pure) {
  for (Rank r = 0; r < world(); ++r) {
    const Graph a = strategy().draw(place(r));
    const Graph b = strategy().draw(place(r));
    EXPECT_EQ(a.chunks(), strategy().chunks(place()));
    ASSERT_EQ(a.nodes().size(), b.nodes().size());
    for (std::size_t k = 0; k < a.nodes().size(); ++k) {
      EXPECT_EQ(a.nodes()[k].op, b.nodes()[k].op);
      EXPECT_EQ(a.nodes()[k].stage, b.nodes()[k].stage);
      EXPECT_EQ(a.nodes()[k].arg, b.nodes()[k].arg);
      EXPECT_EQ(a.nodes()[k].frames, b.nodes()[k].frames);
      EXPECT_EQ(a.nodes()[k].after, b.nodes()[k].after);
    }
  }
}

TEST_P(StrategySuite, Ordered) {  // the nodes are listed in an order in which they can run
  for (Rank r = 0; r < world(); ++r) {
    const Graph g = strategy().draw(place(r));
    for (std::size_t k = 0; k < g.nodes().size(); ++k) {
      const Node& node = g.nodes()[k];
      for (const int a : node.after) EXPECT_LT(a, static_cast<int>(k));
      for (const int f : node.frames)
        EXPECT_TRUE(std::find(node.after.begin(), node.after.end(), f) != node.after.end());
    }
  }
}

TEST_P(StrategySuite, Once) {  // each rank encodes each chunk exactly once
  for (Rank r = 0; r < world(); ++r) {
    const Graph g = strategy().draw(place(r));
    std::vector<int> encodes(static_cast<std::size_t>(g.chunks()));
    for (const Node& node : g.nodes())
      if (node.op == Op::kEncode) ++encodes[static_cast<std::size_t>(node.arg)];
    if (place(r).works())
      EXPECT_EQ(encodes, std::vector<int>(encodes.size(), 1)) << "rank " << r;
    else  // the frame it sums
      EXPECT_EQ(std::accumulate(encodes.begin(), encodes.end(), 0), 1) << "rank " << r;
  }
}

TEST_P(StrategySuite, MatchedSumsIdentical) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const GraphRun s = run_graph(strategy().draw, world(), seed, place());
    EXPECT_TRUE(s.outcome.finished) << "seed " << seed;
    EXPECT_TRUE(s.outcome.matched) << "seed " << seed;
    EXPECT_TRUE(s.sums) << "seed " << seed;
    EXPECT_TRUE(s.identical) << "seed " << seed;
  }
}

TEST_P(StrategySuite, Counted) {
  const StrategyCost cost = strategy().cost(place());
  const GraphRun s = run_graph(strategy().draw, world(), 1, place());
  int sent = 0;
  int encodes = 0;
  for (const auto& c : s.outcome.counts) {
    sent = std::max(sent, c.sent);
    encodes = std::max(encodes, c.encodes);
  }
  EXPECT_EQ(s.outcome.steps, cost.steps);
  EXPECT_EQ(sent, cost.frames_sent);
  EXPECT_EQ(encodes, cost.encodes);
  int senders = 0;
  for (Rank r = 0; r < world(); ++r) {
    std::set<Rank> heard;
    const Graph g = strategy().draw(place(r));
    for (const Node& node : g.nodes())
      if (node.op == Op::kRecv && place().host_of(node.arg) != place().host_of(r)) heard.insert(node.arg);
    senders = std::max(senders, static_cast<int>(heard.size()));
  }
  // In hierarchical strategies a rank may send several shares, each with other ranks of the same hosts.
  if (strategy().between == nullptr) {
    EXPECT_EQ(senders, cost.senders);
  } else {
    EXPECT_GE(senders, cost.senders);
  }
}

TEST_P(StrategySuite, CountedBytes) {
  const StrategyCost cost = strategy().cost(place());
  const int chunks = strategy().chunks(place());
  const Sizes sizes{16U * 5U * static_cast<std::size_t>(world() * chunks), chunks};
  for (const auto& [law, shares, results] :
       {std::tuple{Law::kDecode, cost.wire_shares, cost.result_shares},
        std::tuple{Law::kSum, cost.wire_shares, cost.result_shares},
        std::tuple{Law::kConcat, cost.concat_shares, cost.concat_result_shares}}) {
    std::vector<std::unique_ptr<Worker>> actors;
    for (Rank r = 0; r < world(); ++r)
      actors.push_back(
          std::make_unique<Worker>(*find_codec("fp32"), law, sizes, r, whole_numbers(place(r), sizes.n)));
    const Outcome outcome = run_all(strategy().draw, actors, 1, place());
    std::size_t out = 0, inside = 0, back = 0;
    std::map<int, std::size_t> leaves;  // by host
    for (Rank r = 0; r < world(); ++r) {
      std::size_t to_others = 0, to_host = 0, result = 0;
      for (const auto& [to, bytes] : outcome.counts[static_cast<std::size_t>(r)].bytes) {
        if (place().host_of(to.second) != place().host_of(r)) leaves[place().host_of(r)] += bytes;
        const bool stays = strategy().between != nullptr && place().host_of(to.second) == place().host_of(r);
        (!stays ? to_others : to.first == Stage::kInside ? to_host : result) += bytes;
        EXPECT_TRUE(to.first == Stage::kBetween || stays) << "traffic inside a host stays there";
      }
      out = std::max(out, to_others);
      inside = std::max(inside, to_host);
      back = std::max(back, result);
    }
    const double payload = 4.0 * static_cast<double>(sizes.n);
    EXPECT_NEAR(static_cast<double>(out), shares * payload, 1e-6) << name(law);
    std::size_t link = 0;
    for (const auto& [host, bytes] : leaves) link = std::max(link, bytes);
    EXPECT_NEAR(static_cast<double>(link),
                (law == Law::kConcat ? cost.concat_link_shares : cost.link_shares) * payload, 1e-6)
        << name(law);
    EXPECT_NEAR(static_cast<double>(inside), cost.inside_shares * payload, 1e-6) << name(law);
    EXPECT_NEAR(static_cast<double>(back), results * payload, 1e-6) << name(law);
  }
}

// Every codec with each law it supports. fp32 also runs under concat, although it would never choose it: the law
// alone determines the sum.
TEST_P(StrategySuite, EveryCodecUnderEveryLaw) {
  for (const Codec* codec : all_codecs()) {
    if (codec->phases.size() != 1) continue;  // the engine's law suite runs those
    std::set<Law> laws(codec->phases[0].laws.begin(), codec->phases[0].laws.end());
    if (codec->traits.lossless) laws.insert(Law::kConcat);
    for (const Law law : laws) {
      if (law == Law::kMax || law == Law::kLeader) continue;
      for (const std::size_t n : {std::size_t{0}, std::size_t{3}, std::size_t{257}}) {
        SCOPED_TRACE(::testing::Message() << codec->name << " " << name(law) << " n=" << n);
        const Sizes sizes{n, strategy().chunks(place())};
        std::vector<std::unique_ptr<Worker>> actors;
        std::vector<double> gradients(n);
        for (Rank r = 0; r < world(); ++r) {
          const std::vector<float> grad = whole_numbers(place(r), n);
          for (std::size_t i = 0; i < n; ++i) gradients[i] += grad[i];
          actors.push_back(std::make_unique<Worker>(*codec, law, sizes, r, grad));
        }
        const Outcome outcome = run_all(strategy().draw, actors, 7, place());
        EXPECT_TRUE(outcome.finished && outcome.matched);
        for (const auto& a : actors)
          EXPECT_TRUE(n == 0 || std::memcmp(a->result().data(), actors[0]->result().data(), 4 * n) == 0);
        std::vector<double> after(actors[0]->result().begin(), actors[0]->result().end());
        for (const auto& a : actors)
          for (std::size_t i = 0; i < n; ++i) after[i] += a->left()[i];
        // Integers up to 16*8: a codec without an exact ledger rounds at most once per encode and once per merge,
        // each by at most one ulp of 2^8.
        const double slack = codec->traits.exact_ledger ? 0.0 : 3.0 * world() * std::ldexp(256.0, -23);
        for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(gradients[i], after[i], slack) << "value " << i;
      }
    }
  }
}

// By chunk: the ranks that encode it for all others, in order.
std::vector<std::vector<Rank>> encoders(const Strategy& strategy, const Place& like) {
  std::vector<std::vector<Rank>> out(static_cast<std::size_t>(strategy.chunks(like)));
  for (Rank r = 0; r < like.world; ++r) {
    const Graph g = strategy.draw({r, like.world, like.hosts, like.servers});
    for (const Node& n : g.nodes())
      if (n.op == Op::kEncode && n.stage == Stage::kBetween)
        out[static_cast<std::size_t>(n.arg)].push_back(r);
  }
  return out;
}

TEST_P(StrategySuite, MaxAndLeader) {
  const auto by_chunk = encoders(strategy(), place());
  const std::size_t want_encoders = strategy().between != nullptr ? hosts().ranks(world()).size()
                                    : servers() > 0 ? static_cast<std::size_t>(place().workers() + 1)
                                                    : static_cast<std::size_t>(world());
  for (const auto& ranks : by_chunk) EXPECT_EQ(ranks.size(), want_encoders);
  for (const Law law : {Law::kMax, Law::kLeader}) {
    for (std::size_t leader = 0; leader < by_chunk[0].size(); ++leader) {
      std::vector<std::unique_ptr<Chooser>> actors;
      for (Rank r = 0; r < world(); ++r) {
        std::vector<bool> leads;
        for (const auto& ranks : by_chunk) leads.push_back(ranks[leader] == r);
        actors.push_back(std::make_unique<Chooser>(law, leads, r));
      }
      EXPECT_TRUE(run_all(strategy().draw, actors, 3, place()).finished);
      std::vector<Mail> want;
      for (const auto& ranks : by_chunk) {
        std::uint8_t byte = Chooser::byte_of(ranks[leader]);
        for (const Rank r : ranks)
          if (law == Law::kMax) byte = std::max(byte, Chooser::byte_of(r));
        want.push_back({{byte}});
      }
      for (const auto& a : actors) EXPECT_EQ(a->result(), want);
    }
  }
}

// If each rank has a host of its own, the hierarchical strategy equals the strategy between hosts.
TEST(Strategies, OneRankPerHostEqualsNoHosts) {
  for (const Strategy* s : all_strategies()) {
    if (s->between == nullptr) continue;
    for (int world = 1; world <= 5; ++world)
      for (Rank r = 0; r < world; ++r) {
        const Graph a = s->draw({r, world});
        const Graph b = s->between->draw({r, world});
        ASSERT_EQ(a.nodes().size(), b.nodes().size());
        for (std::size_t k = 0; k < a.nodes().size(); ++k) {
          EXPECT_EQ(a.nodes()[k].op, b.nodes()[k].op);
          EXPECT_EQ(a.nodes()[k].arg, b.nodes()[k].arg);
          EXPECT_EQ(a.nodes()[k].frames, b.nodes()[k].frames);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrategySuite,
                         ::testing::Combine(::testing::ValuesIn(all_strategies().begin(),
                                                                all_strategies().end()),
                                            ::testing::ValuesIn(worlds())),
                         [](const auto& at) {
                           const World& world = std::get<1>(at.param);
                           std::string hosts = world.hosts.empty() ? "" : "_hosts" + world.hosts;
                           if (world.servers > 0) hosts = "_servers" + std::to_string(world.servers);
                           for (char& c : hosts)
                             if (c == '+' || c == ',') c = '_';
                           return std::string(std::get<0>(at.param)->name) + "_world" +
                                  std::to_string(world.ranks) + hosts;
                         });

TEST(Strategies, EachHasDocAllLawsAndItsName) {
  for (const Strategy* s : all_strategies()) {
    EXPECT_EQ(find_strategy(s->name), s);
    EXPECT_FALSE(s->doc.empty());
    EXPECT_EQ(std::set<Law>(s->laws.begin(), s->laws.end()).size(), 5U) << s->name;
  }
  EXPECT_EQ(find_strategy("no such strategy"), nullptr);
}

}  // namespace
}  // namespace tithe
