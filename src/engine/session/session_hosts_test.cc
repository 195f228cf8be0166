// SPDX-License-Identifier: Apache-2.0
// Sessions with strategies that treat hosts separately.
#include <gtest/gtest.h>

#include <atomic>

#include "support/forwarding_transport.h"
#include "support/law_cases.h"
#include "support/ledger.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using testing::at;
using testing::Data;
using testing::ForwardingTransport;
using testing::gradients;
using testing::has;
using testing::imbalance;
using testing::Ranks;
using testing::residuals;
using testing::same_bits;
using testing::synchronise;
using testing::text;
using testing::Values;

constexpr std::size_t kSizes[] = {5, 4097, 30'000};
constexpr int kWorld = 4;

struct Rounds {
  std::vector<Values> grads, result, left;  // of the last round
  std::string plan;
  bool identical = true;
};

Rounds run(Ranks& ranks, int rounds) {
  Rounds out;
  const auto world = at(ranks.world());
  out.grads.resize(world);
  out.result.resize(world);
  out.left.resize(world);
  ranks.each([&](Rank r) {
    for (int round = 0; round < rounds; ++round) {
      out.grads[at(r)] = gradients(kSizes, Data::kGaussian, r, round);
      out.result[at(r)] = out.grads[at(r)];
      const Status s = synchronise(ranks[r], kSizes, out.result[at(r)]);
      ASSERT_TRUE(s.ok()) << text(s);
    }
    out.left[at(r)] = residuals(ranks[r], kSizes);
  });
  for (const Values& v : out.result) out.identical = out.identical && same_bits(v, out.result[0]);
  out.plan = ranks[0].plan_text();
  return out;
}

SessionOptions with(const char* codec, const char* strategy, const char* hosts) {
  return {.codec = codec,
          .strategy = strategy,
          .hosts = hosts,
          .lanes = 0,
          .average = false,
          .min_values = 0,
          .seed = 3};
}

Rounds run(const SessionOptions& options, int rounds = 3) {
  Ranks ranks(open_loop(kWorld), options);
  return run(ranks, rounds);
}

TEST(SessionHosts, HostsOfOneRankEqualTheStrategyBetweenHosts) {
  for (const char* codec : {"onebit", "topk", "thc", "scalecom"})
    for (const auto& [apart, flat] : {std::pair{"hosts", "server"}, std::pair{"hosts_gather", "gather"},
                                      std::pair{"hosts_ring", "ring"}}) {
      const Rounds a = run(with(codec, apart, "4x1")), b = run(with(codec, flat, ""));
      EXPECT_TRUE(same_bits(a.result[0], b.result[0])) << codec;
      for (Rank r = 0; r < kWorld; ++r) EXPECT_TRUE(same_bits(a.left[at(r)], b.left[at(r)])) << codec;
      EXPECT_TRUE(has(a.plan, std::string(" by ") + flat + " (default; each rank has its own host)"))
          << a.plan;
    }
}

TEST(SessionHosts, OneHostUsesOnlyTheCodecInside) {
  const Rounds a = run(with("onebit", "hosts", "1x4")), b = run(with("fp32", "server", ""));
  EXPECT_TRUE(same_bits(a.result[0], b.result[0]));
  EXPECT_TRUE(has(a.plan, "fp32 by server (default; all ranks share a host)")) << a.plan;
}

// Two codecs and two sets of laws in one part: the loss of either codec is in the residual of the encoding rank.
TEST(SessionHosts, TheLedgerHoldsForBothCodecs) {
  for (const char* strategy : {"hosts", "hosts_gather", "hosts_ring"})
    for (const char* inside : {"fp32", "bf16", "fp8"})
      for (const char* codec :
           {"fp32", "bf16", "onebit", "topk:ratio=0.02", "thc", "scalecom", "powersgd:rank=1"})
        for (const char* hosts : {"2x2", "3+1", "0,1,1,0", "1+2+1"}) {
          const std::string rules =
              std::string(R"({"*": {"codec": ")") + codec + R"(", "inside": ")" + inside + "\"}}";
          SessionOptions o = with(codec, strategy, hosts);
          o.choices = rules;
          Ranks ranks(open_loop(kWorld), o);
          SCOPED_TRACE(std::string(strategy) + " " + codec + ", " + inside + " inside, hosts " + hosts);
          const Traits traits = parse_spec(codec)->codec->traits;
          std::vector<Values> before(kWorld);
          for (Rank r = 0; r < kWorld; ++r) before[at(r)] = residuals(ranks[r], kSizes);
          for (int round = 0; round < 2; ++round) {
            const Rounds got = run(ranks, 1);
            EXPECT_TRUE(got.identical);
            const testing::Imbalance off =
                imbalance(got.grads, before, got.result[0], got.left, traits, false);
            ASSERT_LE(off.times, 1) << off << ", round " << round;
            before = got.left;
          }
        }
}

class Counting : public ForwardingTransport {
 public:
  Counting(std::unique_ptr<Transport> inner, std::vector<std::atomic<std::uint64_t>>& to_others)
      : ForwardingTransport(std::move(inner)), to_others_(to_others) {}
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override {
    if (channel != 0 && peer / 2 != rank() / 2) to_others_[at(rank())] += bytes.size();
    return ForwardingTransport::send(peer, channel, bytes, op);
  }

 private:
  std::vector<std::atomic<std::uint64_t>>& to_others_;
};

// Each byte crosses once per host, and all ranks of a host send equally many bytes to other hosts.
TEST(SessionHosts, EachByteLeavesAHostOnce) {
  const auto bytes_between = [](const char* strategy) {
    std::vector<std::atomic<std::uint64_t>> sent(kWorld);
    auto transports = open_loop(kWorld);
    for (auto& t : transports) t = std::make_unique<Counting>(std::move(t), sent);
    Ranks ranks(std::move(transports), with("onebit", strategy, "2x2"));
    EXPECT_TRUE(run(ranks, 1).identical);
    for (const auto& s : sent)
      EXPECT_NEAR(static_cast<double>(s), static_cast<double>(sent[0]), 200) << strategy;
    return static_cast<double>(sent[0]);
  };
  EXPECT_NEAR(bytes_between("server") / bytes_between("hosts"), 2, 0.2);
  EXPECT_NEAR(bytes_between("gather") / bytes_between("hosts_gather"), 4, 0.4);
}

TEST(SessionHosts, ARankWithOtherHostsIsNamed) {
  Ranks ranks(open_loop(kWorld), with("onebit", "hosts", "2x2"), [](Rank r, SessionOptions& o) {
    if (r == 2) o.hosts = "3+1";
  });
  ranks.each([&](Rank r) {
    Values v = gradients(kSizes, Data::kGaussian, r, 0);
    const Status s = synchronise(ranks[r], kSizes, v);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 2) << text(s);
    EXPECT_TRUE(has(s.what(), "strategy hosts on hosts 3+1 instead of hosts on hosts 2x2")) << text(s);
  });
}

TEST(SessionHosts, HostsComeFromTheTransport) {
  Ranks ranks(open_loop(kWorld, {}, *Hosts::parse("2x2", kWorld)), with("onebit", "hosts", ""));
  EXPECT_TRUE(has(run(ranks, 1).plan, "onebit by hosts, fp32 inside (default)"));
}

TEST(SessionHosts, MomentumIsOfAllRanksOfAHost) {
  const char* text_of = "topk:ratio=0.01,feedback=momentum,mask=off,clip=2";
  for (const char* hosts : {"2x2", "1x4", "3+1"})
    EXPECT_TRUE(run(with(text_of, "hosts", hosts)).identical) << hosts;
}

TEST(SessionHosts, AutoUsesHostStrategiesIfFasterOrRequested) {
  const auto plan = [](const char* hosts, const char* choices) {
    SessionOptions o = with("fp8", "auto", hosts);
    o.choices = choices;
    Ranks ranks(open_loop(4), o);
    ranks.each([&](Rank r) {
      std::vector<float> values(100'000, 1.0F);
      const Tensor tensor{.key = "w", .data = values.data(), .n = values.size()};
      const Result<Ticket> ticket = ranks[r].sync({&tensor, 1});
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      EXPECT_TRUE(ranks[r].wait(*ticket).ok());
      EXPECT_TRUE(ranks[r].commit().ok());
    });
    return ranks[0].plan_text();
  };
  EXPECT_TRUE(has(plan("2x2", ""), "fp8 by hosts")) << plan("2x2", "");
  EXPECT_FALSE(has(plan("1x4", ""), "hosts")) << "no hosts strategy if there is one host";
  EXPECT_FALSE(has(plan("", ""), "hosts")) << "no hosts strategy if each host has one rank";
  EXPECT_TRUE(has(plan("1x4", R"({"w": {"inside": "bf16"}})"), "bf16 by")) << "a codec for 'inside' is set";
}

TEST(SessionHosts, RefusesUnsupportedOptions) {
  struct Case {
    const char *codec, *strategy, *inside, *says;
  };
  for (const Case& c :
       {Case{"onebit", "server", "bf16",
             "rule 1 ('*'): 'inside' is the codec between ranks of one host, and strategy server"},
        {"onebit", "hosts", "thc", "'inside' is thc"},
        {"onebit", "hosts", "powersgd", "'inside' is powersgd"},
        {"onebit", "hosts", "bf16:feedback=momentum", "feedback"},
        {"topk:feedback=momentum", "hosts", "fp32", "set mask=off"}}) {
    SessionOptions o = with("fp32", "server", "2x2");
    o.choices = std::string(R"({"*": {"codec": ")") + c.codec + R"(", "strategy": ")" + c.strategy +
                R"(", "inside": ")" + c.inside + "\"}}";
    const Status s = Session::open(std::move(open_loop(kWorld)[0]), o).status();
    EXPECT_FALSE(s.ok()) << c.codec;
    EXPECT_TRUE(has(s.what(), c.says)) << text(s);
  }
}

}  // namespace
}  // namespace tithe
