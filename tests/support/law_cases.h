// SPDX-License-Identifier: Apache-2.0
#pragma once
// The cases of the law suites: every codec in its settings that matter, every strategy, worlds and sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>

#include "support/draws.h"
#include "support/pairs.h"
#include "support/phase_codecs.h"
#include "support/ranks.h"
#include "support/transport_world.h"
#include "support/values.h"
#include "tithe/seam/catalogue.h"

namespace tithe::testing {

inline constexpr int kWorlds[] = {1, 2, 3, 4, 5, 8, 16};

struct LawCase {
  std::string label;
  Spec spec;
  std::vector<Rule> rules = {};  // of tensors that have another codec
  Traits traits() const {        // the traits that hold for all of them
    Traits t = spec.codec->traits;
    for (const Rule& r : rules)
      if (r.codec) {
        t.exact_ledger = t.exact_ledger && r.codec->codec->traits.exact_ledger;
        t.adds_transformed = t.adds_transformed || r.codec->codec->traits.adds_transformed;
      }
    return t;
  }
};

// Several codecs in one bucket: selected by the last letter of the keys (key_of() and others), and by size.
inline LawCase mixed_case() {
  const Result<std::vector<Rule>> rules = parse_rules(R"({
    "*9": "fp32", "*1": {"codec": "onebit", "priority": 2}, "*2": "scalecom:ratio=0.1",
    "*7": "topk:ratio=0.05", "*5": {"codec": "bf16", "strategy": "gather"},
    "> 3000": {"codec": "qsgd_shared", "part_values": 3000, "priority": -1}, "*3": "powersgd:rank=1"})");
  return {"mixed", *parse_spec("fp8"), *rules};
}

inline std::vector<LawCase> law_cases() {
  std::vector<LawCase> cases;
  for (const Codec* codec : all_codecs()) {
    const Result<Spec> spec = parse_spec(codec->name);
    cases.push_back({std::string(codec->name), *spec});
  }
  // Rounded values and coded indices change no law.
  cases.push_back({"topk_packed", *parse_spec("topk:values=8bit,indices=auto")});
  cases.push_back({"topk_blocks", *parse_spec("topk:ratio=0.05,values=2bit,indices=delta,block=64")});
  cases.push_back({"scalecom_packed", *parse_spec("scalecom:values=8bit,indices=auto")});
  for (const Codec* codec : {&shared_step_codec, &led_indices_codec, &kept_step_codec})
    cases.push_back({std::string(codec->name), {codec, {}, {.kind = Feedback::kResidual}}});
  cases.push_back(mixed_case());
  return cases;
}

struct Combination {
  LawCase law;
  const Strategy* strategy;
  std::string transport;  // a name in transports.def
  int world;
  bool between_processes = false;  // ranks as threads run faster
  std::string hosts = {};          // which ranks share one
  bool gpus = false;               // some ranks' buckets are on a GPU
};

// Transports for the suites: threads in worlds of any size; between processes, where a world is slow to open, worlds
// of two.
struct Site {
  std::string transport;
  int world;
  bool between_processes;
  std::string hosts = {};  // strategies that treat them apart share them; others have no use for them
};
inline std::string hosts_of(int world) {
  const std::map<int, std::string> kShared = {
      {3, "2+1"}, {4, "2x2"}, {5, "0,1,1,0,1"}, {8, "3+1+4"}, {16, "4x4"}};
  const auto found = kShared.find(world);
  return found == kShared.end() ? std::string() : found->second;
}
inline std::vector<Site> sites() {
  std::vector<Site> all;
  for (const TransportKind* kind : all_transports())
    for (const int world : kWorlds)
      if (kind->usable().ok() && (kind->open == nullptr || world == 2 || world == 4))
        all.push_back({std::string(kind->name), world, kind->open != nullptr, hosts_of(world)});
  return all;
}

using Choose = std::vector<harness::Row> (*)(const std::vector<std::size_t>& sizes);
inline std::vector<Combination> combinations_by(Choose choose) {
  const auto laws = law_cases();
  const auto strategies = all_strategies();
  const auto where = sites();
  std::vector<Combination> all;
  for (const harness::Row& row : choose({laws.size(), strategies.size(), where.size()})) {
    const Site& place = where[row[2]];
    all.push_back({laws[row[0]], strategies[row[1]], place.transport, place.world, place.between_processes,
                   place.hosts});
  }
  return all;
}
inline std::vector<Combination> all_combinations() { return combinations_by(harness::product); }
// Every pair of a codec, a strategy and a place; all of them where TITHE_TEST_FULL=1.
inline std::vector<Combination> combinations() { return combinations_by(harness::pairs_or_product); }

inline std::string label_of(const Combination& c) {
  return c.law.label + "_" + std::string(c.strategy->name) + "_" + c.transport + "_" +
         std::to_string(c.world) + (c.gpus ? "_gpus" : "");
}
inline std::string label(const ::testing::TestParamInfo<Combination>& info) { return label_of(info.param); }
inline void PrintTo(const Combination& c, std::ostream* out) { *out << label_of(c); }

// Gradients of one rank in one round: one tensor per size.
using Values = std::vector<std::vector<float>>;
enum class Data {
  kDyadic,
  kGaussian,
  kBottom,
  kTop,
  kMixed,
  kLone,
  kThird
};  // from the third on: harness::extremes
inline constexpr Data kExtremeData[] = {Data::kBottom, Data::kTop, Data::kMixed, Data::kLone, Data::kThird};

inline std::optional<harness::Extreme> extreme_of(Data data) {
  using harness::Extreme;
  switch (data) {
    case Data::kBottom:
      return Extreme::kBottom;
    case Data::kTop:
      return Extreme::kTop;
    case Data::kMixed:
      return Extreme::kMixed;
    case Data::kLone:
      return Extreme::kLone;
    case Data::kThird:
      return Extreme::kThird;
    default:
      return std::nullopt;
  }
}

inline Values gradients(std::span<const std::size_t> sizes, Data data, Rank rank, int round) {
  std::mt19937 rng(static_cast<unsigned>(1 + rank + 100 * round));
  Values all;
  for (const std::size_t n : sizes) {
    std::vector<float> v(n);
    if (const auto extreme = extreme_of(data)) {
      v = harness::extremes(*extreme, n, static_cast<unsigned>(rng()));
    } else if (data == Data::kDyadic) {  // multiples of 1/4 up to 8: every sum in a test is exact in fp32
      for (float& x : v) x = static_cast<float>(static_cast<int>(rng() % 65) - 32) / 4;
    } else {
      // Products of two of 4096 deviates: drawing both anew took more of some suites' time than the tests themselves.
      static const std::vector<float> kBell = draws::bell(4096, 1e-3F);
      for (float& x : v) {
        const auto dice = static_cast<std::uint32_t>(rng());
        x = (0.01F + kBell[dice % 4096]) * (0.01F + kBell[dice >> 20]) * 1e4F - 1.0F;
      }
    }
    all.push_back(std::move(v));
  }
  return all;
}

inline std::string key_of(std::size_t n) { return "values" + std::to_string(n); }

// One round in which each tensor is its own bucket and all are in flight together; then commit.
inline Status synchronise(Session& session, std::span<const std::size_t> sizes, Values& values) {
  std::vector<Ticket> tickets;
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    const std::string key = key_of(sizes[k]);
    const Tensor t{.key = key, .data = values[k].data(), .n = sizes[k]};
    const Result<Ticket> ticket = session.sync({&t, 1});
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket t : tickets) TITHE_TRY(session.wait(t));
  return session.commit();
}

inline Values residuals(const Session& session, std::span<const std::size_t> sizes) {
  Values all;
  for (const std::size_t n : sizes) {
    std::vector<float> v(n);
    if (!session.residual(key_of(n), v).ok())
      std::fill(v.begin(), v.end(), 0.0F);  // a key new to the session has no residual
    all.push_back(std::move(v));
  }
  return all;
}

// The first difference between two results; empty if all bits are equal.
inline std::string first_difference(const Values& got, const Values& want) {
  if (got.size() != want.size()) return "another number of tensors";
  for (std::size_t k = 0; k < got.size(); ++k)
    if (const std::string at = harness::first_difference(got[k], want[k]); !at.empty())
      return "tensor of " + std::to_string(want[k].size()) + " values, " + at;
  return "";
}

inline bool same_bits(const Values& a, const Values& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    if (a[k].size() != b[k].size() ||
        (!a[k].empty() && std::memcmp(a[k].data(), b[k].data(), 4 * a[k].size()) != 0))
      return false;
  return a.size() == b.size();
}

}  // namespace tithe::testing
