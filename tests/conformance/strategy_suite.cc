// SPDX-License-Identifier: Apache-2.0
// Every promise of graph.h and of the head of each strategy's file, for all strategies and 1 to 16 ranks.
// First with frames that spell out what is in them, then with every codec under every law it knows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <tuple>

#include "conformance/speller.h"

namespace tithe {
namespace {

using testing::Actor;
using testing::Mail;
using testing::Outcome;
using testing::Payload;
using testing::run_all;
using testing::spell;
using testing::Spelled;

// ---- Numbers, under each law

struct Sizes {
  std::size_t n;
  int chunks;
  std::size_t first(Chunk c) const {
    return n * static_cast<std::size_t>(c) / static_cast<std::size_t>(chunks);
  }
  std::size_t of(Chunk c) const { return first(c + 1) - first(c); }
};

// What the engine does for a codec of one phase, written plainly.
class Worker : public Actor {
 public:
  Worker(const Codec& codec, Law law, Sizes sizes, Rank me, std::vector<float> grad)
      : codec_(codec),
        law_(law),
        sizes_(sizes),
        me_(me),
        work_(std::move(grad)),
        left_(sizes.n),
        result_(sizes.n),
        own_(static_cast<std::size_t>(sizes.chunks)) {
    call_.settings = defaults(codec);
    call_.seed = static_cast<std::uint64_t>(me);
  }

  Mail encode(Chunk c) override {
    if (law_ == Law::kDecode) return {encode_values(c)};
    return own(c);
  }

  void merge(Chunk c, const std::vector<const Mail*>& frames) override {
    if (law_ == Law::kDecode) {
      const auto out = slice(work_, c);
      EXPECT_TRUE(decode(c, frames, {.base = out.data()}, out).ok());
      return;
    }
    for (const Mail* f : frames) join(c, own(c), *f, slice(left_, c).data());
  }

  void store(Chunk c, const std::vector<const Mail*>& frames) override {
    if (law_ == Law::kSum) {  // one rank keeps the rounding of a sum that all ranks make alike
      Mail sum = *frames[0];
      for (std::size_t i = 1; i < frames.size(); ++i)
        join(c, sum, *frames[i], me_ == 0 ? slice(left_, c).data() : nullptr);
      EXPECT_TRUE(decode(c, {&sum}, {}, slice(result_, c)).ok());
      return;
    }
    EXPECT_TRUE(decode(c, frames, {}, slice(result_, c)).ok());
  }

  const std::vector<float>& left() const { return left_; }
  const std::vector<float>& result() const { return result_; }

 private:
  std::span<float> slice(std::vector<float>& v, Chunk c) {
    return {v.data() + sizes_.first(c), sizes_.of(c)};
  }

  Payload encode_values(Chunk c) {
    const std::size_t n = sizes_.of(c);
    Call call = call_;
    call.chunk = static_cast<std::uint16_t>(c);
    call.scratch = scratch(n);
    Payload out(codec_.phases[0].bound(call.settings, n));
    const Carry carry{slice(work_, c).data(), nullptr, slice(left_, c).data(), n};
    const auto done = codec_.reference().encode(call, carry, out);
    EXPECT_TRUE(done.ok()) << done.status().what();
    out.resize(done.ok() ? (*done).bytes : 0);
    return out;
  }

  Mail& own(Chunk c) {
    Mail& mail = own_[static_cast<std::size_t>(c)];
    if (mail.empty()) mail.push_back(encode_values(c));
    return mail;
  }

  void join(Chunk c, Mail& into, const Mail& frame, float* left) {
    if (law_ == Law::kConcat) {
      into.insert(into.end(), frame.begin(), frame.end());
      return;
    }
    EXPECT_TRUE(codec_.best(this_machine()).combine(call_, sizes_.of(c), into[0], frame[0], left).ok());
  }

  Status decode(Chunk c, const std::vector<const Mail*>& frames, const Merge& merge, std::span<float> out) {
    Call call = call_;
    call.chunk = static_cast<std::uint16_t>(c);
    call.scratch = scratch(sizes_.of(c));
    std::vector<ByteView> payloads;
    for (const Mail* f : frames) payloads.insert(payloads.end(), f->begin(), f->end());
    return codec_.reference().decode(call, payloads, merge, out);
  }

  Bytes scratch(std::size_t n) {
    constexpr std::size_t kAlign = 64;
    scratch_.resize(codec_.scratch(call_.settings, n) + kAlign);
    const auto at = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return Bytes(scratch_).subspan((kAlign - at % kAlign) % kAlign, scratch_.size() - kAlign);
  }

  const Codec& codec_;
  const Law law_;
  const Sizes sizes_;
  const Rank me_;
  Call call_;
  std::vector<float> work_, left_, result_;
  std::vector<Mail> own_;
  Payload scratch_;
};

// Small whole numbers: every sum of them is exact, in bf16 and fp16 too.
std::vector<float> whole_numbers(Rank rank, std::size_t n) {
  std::mt19937 rng(100U + static_cast<unsigned>(rank));
  std::uniform_int_distribution<int> d(-8, 8);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(d(rng));
  return v;
}

// Max and leader carry one byte per chunk: the largest of the ranks' bytes, or the leader's.
class Chooser : public Actor {
 public:
  Chooser(Law law, Rank leader, Rank me, int chunks)
      : law_(law), holds_(static_cast<std::size_t>(chunks)), result_(holds_.size()) {
    for (Mail& m : holds_)
      if (law == Law::kMax || me == leader) m.push_back({byte_of(me)});
  }
  static std::uint8_t byte_of(Rank r) { return static_cast<std::uint8_t>((r * 7 + 3) % 17); }
  Mail encode(Chunk c) override { return holds_[static_cast<std::size_t>(c)]; }
  void merge(Chunk c, const std::vector<const Mail*>& f) override {
    take(holds_[static_cast<std::size_t>(c)], f);
  }
  void store(Chunk c, const std::vector<const Mail*>& f) override {
    take(result_[static_cast<std::size_t>(c)], f);
  }
  const std::vector<Mail>& result() const { return result_; }

 private:
  void take(Mail& into, const std::vector<const Mail*>& frames) const {
    for (const Mail* f : frames)
      for (const Payload& p : *f) {
        if (into.empty())
          into.push_back(p);
        else if (law_ == Law::kMax)
          into[0][0] = std::max(into[0][0], p[0]);
        else
          into.push_back(p);  // a second leader: the test sees two payloads
      }
  }
  Law law_;
  std::vector<Mail> holds_, result_;
};

// ---- The suite

class StrategySuite : public ::testing::TestWithParam<std::tuple<const Strategy*, int>> {
 protected:
  const Strategy& strategy() const { return *std::get<0>(GetParam()); }
  int world() const { return std::get<1>(GetParam()); }
};

TEST_P(StrategySuite, Pure) {
  for (Rank r = 0; r < world(); ++r) {
    const Graph a = strategy().draw({r, world()});
    const Graph b = strategy().draw({r, world()});
    EXPECT_EQ(a.chunks(), strategy().chunks(world()));
    ASSERT_EQ(a.nodes().size(), b.nodes().size());
    for (std::size_t k = 0; k < a.nodes().size(); ++k) {
      EXPECT_EQ(a.nodes()[k].op, b.nodes()[k].op);
      EXPECT_EQ(a.nodes()[k].arg, b.nodes()[k].arg);
      EXPECT_EQ(a.nodes()[k].frames, b.nodes()[k].frames);
      EXPECT_EQ(a.nodes()[k].after, b.nodes()[k].after);
    }
  }
}

TEST_P(StrategySuite, Ordered) {  // nodes stand in an order in which they can run
  for (Rank r = 0; r < world(); ++r) {
    const Graph g = strategy().draw({r, world()});
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
    const Graph g = strategy().draw({r, world()});
    std::vector<int> encodes(static_cast<std::size_t>(g.chunks()));
    for (const Node& node : g.nodes())
      if (node.op == Op::kEncode) ++encodes[static_cast<std::size_t>(node.arg)];
    EXPECT_EQ(encodes, std::vector<int>(encodes.size(), 1)) << "rank " << r;
  }
}

TEST_P(StrategySuite, MatchedSumsIdentical) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    const Spelled s = spell(strategy().draw, world(), seed);
    EXPECT_TRUE(s.outcome.finished) << "seed " << seed;
    EXPECT_TRUE(s.outcome.matched) << "seed " << seed;
    EXPECT_TRUE(s.sums) << "seed " << seed;
    EXPECT_TRUE(s.identical) << "seed " << seed;
  }
}

TEST_P(StrategySuite, Counted) {
  const StrategyCost cost = strategy().cost(world());
  const Spelled s = spell(strategy().draw, world(), 1);
  int sent = 0;
  int encodes = 0;
  for (const auto& c : s.outcome.counts) {
    sent = std::max(sent, c.sent);
    encodes = std::max(encodes, c.encodes);
  }
  EXPECT_EQ(s.outcome.steps, cost.steps);
  EXPECT_EQ(sent, cost.frames_sent);
  EXPECT_EQ(encodes, cost.encodes);
}

TEST_P(StrategySuite, CountedBytes) {
  const StrategyCost cost = strategy().cost(world());
  const Sizes sizes{16U * 5U * static_cast<std::size_t>(world()), strategy().chunks(world())};
  for (const auto& [law, shares] :
       {std::pair{Law::kDecode, cost.wire_shares}, std::pair{Law::kSum, cost.wire_shares},
        std::pair{Law::kConcat, cost.concat_shares}}) {
    std::vector<std::unique_ptr<Worker>> actors;
    for (Rank r = 0; r < world(); ++r)
      actors.push_back(
          std::make_unique<Worker>(*find_codec("fp32"), law, sizes, r, whole_numbers(r, sizes.n)));
    const Outcome outcome = run_all(strategy().draw, actors, 1);
    std::size_t most = 0;
    for (const auto& c : outcome.counts) most = std::max(most, c.bytes);
    EXPECT_DOUBLE_EQ(static_cast<double>(most), shares * 4.0 * static_cast<double>(sizes.n)) << name(law);
  }
}

// Over every codec and each law it knows. fp32 takes part in concat too, although it would never choose it:
// it shows that the law alone makes the sum.
TEST_P(StrategySuite, EveryCodecUnderEveryLaw) {
  for (const Codec* codec : all_codecs()) {
    if (codec->phases.size() != 1) continue;  // the engine's law suite runs those
    std::set<Law> laws(codec->phases[0].laws.begin(), codec->phases[0].laws.end());
    if (codec->traits.lossless) laws.insert(Law::kConcat);
    for (const Law law : laws) {
      if (law == Law::kMax || law == Law::kLeader) continue;
      for (const std::size_t n : {std::size_t{0}, std::size_t{3}, std::size_t{257}}) {
        SCOPED_TRACE(::testing::Message() << codec->name << " " << name(law) << " n=" << n);
        const Sizes sizes{n, strategy().chunks(world())};
        std::vector<std::unique_ptr<Worker>> actors;
        std::vector<double> gradients(n);
        for (Rank r = 0; r < world(); ++r) {
          const std::vector<float> grad = whole_numbers(r, n);
          for (std::size_t i = 0; i < n; ++i) gradients[i] += grad[i];
          actors.push_back(std::make_unique<Worker>(*codec, law, sizes, r, grad));
        }
        const Outcome outcome = run_all(strategy().draw, actors, 7);
        EXPECT_TRUE(outcome.finished && outcome.matched);
        for (const auto& a : actors)
          EXPECT_TRUE(n == 0 || std::memcmp(a->result().data(), actors[0]->result().data(), 4 * n) == 0);
        std::vector<double> after(actors[0]->result().begin(), actors[0]->result().end());
        for (const auto& a : actors)
          for (std::size_t i = 0; i < n; ++i) after[i] += a->left()[i];
        // Whole numbers up to 16*8: a codec that does not keep the ledger exactly rounds at most once per
        // encode and once per merge, each by an ulp of at most 2^8.
        const double slack = codec->traits.exact_ledger ? 0.0 : 3.0 * world() * std::ldexp(256.0, -23);
        for (std::size_t i = 0; i < n; ++i) ASSERT_NEAR(gradients[i], after[i], slack) << "value " << i;
      }
    }
  }
}

TEST_P(StrategySuite, MaxAndLeader) {
  const int chunks = strategy().chunks(world());
  std::uint8_t largest = 0;
  for (Rank r = 0; r < world(); ++r) largest = std::max(largest, Chooser::byte_of(r));
  for (const Law law : {Law::kMax, Law::kLeader}) {
    for (Rank leader = 0; leader < world(); ++leader) {
      std::vector<std::unique_ptr<Chooser>> actors;
      for (Rank r = 0; r < world(); ++r) actors.push_back(std::make_unique<Chooser>(law, leader, r, chunks));
      EXPECT_TRUE(run_all(strategy().draw, actors, 3).finished);
      const Mail want{{law == Law::kMax ? largest : Chooser::byte_of(leader)}};
      for (const auto& a : actors) EXPECT_EQ(a->result(), std::vector<Mail>(a->result().size(), want));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrategySuite,
                         ::testing::Combine(::testing::ValuesIn(all_strategies().begin(),
                                                                all_strategies().end()),
                                            ::testing::Range(1, 17)),
                         [](const auto& at) {
                           return std::string(std::get<0>(at.param)->name) + "_world" +
                                  std::to_string(std::get<1>(at.param));
                         });

TEST(Strategies, EachHasDocAllLawsAndItsName) {
  for (const Strategy* s : all_strategies()) {
    EXPECT_EQ(find_strategy(s->name), s);
    EXPECT_FALSE(s->doc.empty());
    EXPECT_EQ(std::set<Law>(s->laws.begin(), s->laws.end()).size(), 5U) << s->name;
  }
  EXPECT_EQ(find_strategy("no such strategy"), nullptr);
}

// ---- The suite can fail: rings with the known mistakes

// `first` is the chunk, relative to this rank, that it shares first; `owner_stores` whether it decodes its
// own frame.
template <int first, bool owner_stores>
Graph wrong_ring(const Place& p) {
  Graph g(p.world);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), g.encode(p.wrap(p.me - s)));
    g.merge(p.wrap(p.me - s - 1), g.recv(p.left(), p.wrap(p.me - s - 1)));
  }
  Chunk c = p.wrap(p.me + first);
  Graph::Frame f = g.encode(c);
  if (owner_stores) g.store(c, f);
  for (int s = 0; s < p.world - 1; ++s) {
    g.send(p.right(), f);
    c = p.wrap(p.me + first - 1 - s);
    f = g.recv(p.left(), c);
    g.store(c, f);
  }
  return g;
}

TEST(StrategySuiteCatches, RingThatSharesTheWrongChunk) {  // the indices as printed in the paper
  EXPECT_TRUE(spell(wrong_ring<1, true>, 4, 0).sums);
  EXPECT_FALSE(spell(wrong_ring<2, true>, 4, 0).sums);
}

TEST(StrategySuiteCatches, OwnerThatKeepsItsOwnSum) {  // published ring and server code
  EXPECT_FALSE(spell(wrong_ring<1, false>, 4, 0).identical);
}

Graph crossed(const Place& p) {  // rank 0 sends chunk 0 then 1, rank 1 expects 1 then 0
  Graph g(2);
  for (int i = 0; i < 2; ++i) {
    const Graph::Frame f = g.encode(i);
    g.send(1 - p.me, f);
  }
  for (int i = 0; i < 2; ++i) g.store(i, g.recv(1 - p.me, p.me == 0 ? i : 1 - i));
  return g;
}

TEST(StrategySuiteCatches, CrossedMail) { EXPECT_FALSE(spell(crossed, 2, 0).outcome.matched); }

Graph waiting(const Place& p) {  // each waits for the other's frame before it encodes
  Graph g(1);
  g.merge(0, g.recv(1 - p.me, 0));
  const Graph::Frame f = g.encode(0);
  g.send(1 - p.me, f);
  g.store(0, f);
  return g;
}

TEST(StrategySuiteCatches, Deadlock) { EXPECT_FALSE(spell(waiting, 2, 0).outcome.finished); }

}  // namespace
}  // namespace tithe
