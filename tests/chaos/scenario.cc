// SPDX-License-Identifier: Apache-2.0
#include "chaos/scenario.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/rng.h"
#include "chaos/random.h"
#include "tithe/seam/plan.h"

namespace tithe::chaos {
namespace {

using testing::Data;

std::string_view name(Point p) {
  constexpr std::string_view kNames[] = {"sends", "control sends", "receives", "polls", "arrivals"};
  return kNames[static_cast<std::size_t>(p)];
}
constexpr std::string_view kStepNames[] = {"before sync", "between syncs", "before wait", "before commit",
                                           "after commit"};
constexpr std::string_view kDamageNames[] = {"flip", "cut", "lengthen", "replay", "noise"};

void draw_fault(Random& random, Scenario& p) {
  Fault& f = p.fault;
  using enum FaultKind;
  f.kind = random.any({kNone,   kNone,   kNone, kNone, kKill,  kKill, kKill,   kVanish, kVanish, kFreeze,
                       kFreeze, kFreeze, kLose, kLose, kApart, kSlow, kDamage, kDamage, kForge,  kClose});
  f.who = static_cast<Rank>(random.of(static_cast<std::uint64_t>(p.world)));
  f.other = (f.who + 1 + static_cast<Rank>(random.of(static_cast<std::uint64_t>(p.world - 1)))) % p.world;
  f.point = static_cast<Point>(random.of(kPoints));
  f.draw = random.word();
  p.place = random.fraction();
  // Much shorter than the timeout, or much longer.
  f.lasts = kTimeout * random.any({1, 3, 6, 14, 20, 60}) / 10;
  f.control = random.one_in(3);
  const bool at_step = random.one_in(3) || f.kind == kClose;
  const int round = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
  const int step = static_cast<int>(random.of(kSteps));
  if (at_step) {
    f.round = round;
    f.step = step;
  }
  f.damage = random.any({Damage::kFlip, Damage::kFlip, Damage::kCut, Damage::kLengthen});
  if (f.kind == kForge) f.damage = random.any({Damage::kReplay, Damage::kGarbage});
  if (f.kind == kSlow) {
    std::size_t values = 0;
    for (const Shape& t : p.tensors) values += t.n;
    const double seconds =
        random.any({0.05, 1.0, 10.0, 30.0}) * std::chrono::duration<double>(kTimeout).count();
    // At least the rate that the control channel's small messages need within a fraction of the timeout.
    f.rate = std::max(4000.0, 4.0 * static_cast<double>(values) / seconds);
  }
}

// Each program is compiled separately for the fake GPU, so few of them run there. Tensors of other codecs take the host
// path.
void draw_gpus(Random& random, Scenario& p) {
  constexpr std::string_view kThere[] = {"fp8", "onebit", "qsgd", "topk"};
  const bool runs = std::ranges::find(kThere, p.law.label) != std::end(kThere);
  if (!random.one_in(runs ? 2 : 12)) return;
  if (runs) p.device = "on,min_values=1";
  p.on_gpu = static_cast<std::uint32_t>(1 + random.of((1U << p.world) - 1));
  if (p.fault.kind != FaultKind::kNone || random.one_in(3)) return;
  Fault& f = p.fault;
  f.kind = FaultKind::kDriver;
  f.round = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
  f.step = kBeforeSync;
  p.on_gpu = 1U << f.who;
  p.driver = {.call = random.any({"*", "*", "cuMemAlloc", "cuMemHostAlloc", "kernel", "copy"}),
              .nth = static_cast<unsigned>(1 + random.of(random.any({4, 30, 200}))),
              .for_good = random.one_in(2)};
}

// Codecs of several phases, and codecs with a memory, support all-reduce only. The ledger needs a residual.
void draw_kind(Random random, Scenario& p) {
  Spec& spec = p.law.spec;
  const bool serves = spec.codec->phases.size() == 1 && spec.codec->memory == nullptr && p.law.rules.empty();
  if (!serves || p.fault.kind == FaultKind::kDriver || !random.one_in(3)) return;
  p.kind = random.any({RoundKind::kReduceScatter, RoundKind::kAllGather});
  spec.feedback.requested = spec.feedback.kind == Feedback::kResidual;
  if (p.kind == RoundKind::kAllGather) p.propose_at = -1;  // all-gathers keep no residuals under rules
}

}  // namespace

Scenario draw(std::uint64_t seed) {
  Random random(seed);
  Scenario p;
  p.seed = seed;
  p.world = random.any({2, 2, 3, 3, 3, 4, 4, 5, 5, 8});
  p.lanes = p.world == 8 ? 0 : random.any({0, 0, 0, 0, 0, 0, 0, 0, 1, 2});
  p.rounds = 1 + static_cast<int>(random.of(5));
  static const std::vector<testing::LawCase> cases = testing::law_cases();
  p.law = cases[random.of(cases.size())];
  p.strategy = std::string(all_strategies()[random.of(all_strategies().size())]->name);
  const std::size_t tensors = 1 + random.of(6);
  for (std::size_t k = 0; k < tensors; ++k) {
    const std::size_t n = random.any<std::size_t>({0, 1, 7, 9, 33, 256, 257, 1000, 1024, 4097, 6000});
    p.tensors.push_back({fmt::format("t{}", k), n, random.one_in(3) && n % 8 == 0 ? n / 8 : 0});
  }
  for (int r = 0; r < p.rounds; ++r)
    p.buckets.push_back(r == 0 || random.one_in(3) ? group(random, tensors) : p.buckets.back());
  p.min_values = random.any<std::size_t>({0, 16, 500, 4096});
  p.part_values = random.any<std::size_t>({1U << 22, 1U << 22, 3000});
  p.data = random.one_in(2) ? Data::kDyadic : Data::kGaussian;
  p.average = random.one_in(3);
  p.conditions = {.seed = random.word(),
                  .turns = !random.one_in(5),
                  .max_latency = std::chrono::milliseconds(random.any({0, 0, 1, 20})),
                  .eager_bytes = random.any<std::size_t>({0, 100, 4096, 1U << 30})};
  if (random.one_in(4)) {
    p.nan_round = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
    p.nan_rank = static_cast<Rank>(random.of(static_cast<std::uint64_t>(p.world)));
    p.nan_tensor = random.of(tensors);
    p.infinite = random.one_in(2);
    if (p.tensors[p.nan_tensor].n == 0) p.nan_round = -1;
  } else if (random.one_in(12)) {
    p.extreme_round = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
    p.nan_rank = static_cast<Rank>(random.of(static_cast<std::uint64_t>(p.world)));
    p.nan_tensor = random.of(tensors);
  }
  p.saves = random.one_in(3);
  draw_fault(random, p);
  if (p.rounds > 1 && random.one_in(4))
    p.restart = 1 + static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds - 1)));
  Random apart(mix64(seed));  // a separate generator, so that older seeds keep their scenarios
  p.pacer =
      apart.any({"off", "off", "window=1,rotation=on", "window=1", "window=5000,rotation=2", "window=20000"});
  p.impatient = static_cast<std::uint32_t>(apart.one_in(2) ? apart.word() : 0);
  if (p.rounds > 1 && apart.one_in(3)) {
    p.propose_at = static_cast<int>(apart.of(static_cast<std::uint64_t>(p.rounds - 1)));
    p.proposal = apart.any({R"({"*": "topk:ratio=0.1"})", R"({"*": "fp32"})",
                            R"({"t1": "fp32", "*": "topk:ratio=0.3"})",
                            R"({"> 500": {"codec": "topk:ratio=0.05", "strategy": "gather", "priority": 3}})",
                            R"({"*": {"codec": "topk:ratio=0.2", "group": "all"}})"});
  }
  if (!apart.one_in(3)) p.hosts = testing::hosts_of(p.world);
  p.hasty = static_cast<std::uint32_t>(apart.one_in(2) ? apart.word() : 0);
  if (p.fault.kind == FaultKind::kLose && !apart.one_in(3)) p.fault.kind = FaultKind::kCut;
  draw_gpus(apart, p);
  // A separate generator for the same reason.
  if (Random(mix64(seed + 1)).one_in(4)) p.hosts = std::to_string(p.world);
  draw_kind(Random(mix64(seed + 2)), p);
  return p;
}

bool Scenario::owns(std::size_t tensor, Rank rank, std::size_t at) const {
  const std::vector<std::size_t> cuts = equal_bounds(tensors[tensor].n, tensors[tensor].row, world);
  return at >= cuts[static_cast<std::size_t>(rank)] && at < cuts[static_cast<std::size_t>(rank) + 1];
}

bool Scenario::sends_nan() const {
  return nan_round >= 0 &&
         (kind != RoundKind::kAllGather || owns(nan_tensor, nan_rank, tensors[nan_tensor].n * 2 / 3));
}

SessionOptions Scenario::options(int with_lanes) const {
  return {.strategy = strategy,
          .hosts = hosts,
          .lanes = with_lanes,
          .average = average,
          .min_values = min_values,
          .part_values = part_values,
          .timeout = kTimeout,
          .patience = (fault.kind == FaultKind::kSlow ? 10'000 : 4) * kTimeout,
          .seed = seed,
          .pacer = pacer,
          .device = device,
          .spec = law.spec,
          .rules = law.rules};
}

std::vector<float> Scenario::gradient(std::size_t tensor, Rank rank, int round) const {
  const std::size_t sizes[] = {tensors[tensor].n};
  std::vector<float> v = testing::gradients(sizes, data, rank + 10 * static_cast<int>(tensor),
                                            round + static_cast<int>(seed % 1000))[0];
  if (rank != nan_rank || tensor != nan_tensor || v.empty()) return v;
  if (round == nan_round)
    v[v.size() * 2 / 3] =
        infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  if (round == extreme_round)
    for (std::size_t i = 0; i < v.size(); i += 5) v[i] = i % 2 == 0 ? 3e38F : -3e38F;
  return v;
}

std::string account(const Scenario& p) {
  std::string out = fmt::format(
      "seed {}: {} ranks, {} of {}, {}, {} lanes, {} rounds, min_values={}, part_values={}, {}{}\n", p.seed,
      p.world, name(p.kind), p.law.label, p.strategy, p.lanes, p.rounds, p.min_values, p.part_values,
      p.data == Data::kDyadic ? "dyadic" : "Gaussian", p.average ? ", mean" : ", sum");
  std::vector<std::size_t> sizes;
  for (const Shape& t : p.tensors) sizes.push_back(t.n);
  fmt::format_to(std::back_inserter(out), "  tensors {}; buckets of round 0: {}\n", sizes, p.buckets[0]);
  fmt::format_to(std::back_inserter(out), "  network: {}, up to {} ms late, {} bytes are eager\n",
                 p.conditions.turns ? "drawn turns" : "in order",
                 p.conditions.max_latency.count() / 1'000'000, p.conditions.eager_bytes);
  fmt::format_to(std::back_inserter(out),
                 "  hosts={}; pacer={}; wait for each bucket: {:#b}, for none: {:#b}\n",
                 p.hosts.empty() ? "apart" : p.hosts, p.pacer, p.impatient & ((1U << p.world) - 1),
                 p.hasty & ((1U << p.world) - 1));
  if (p.on_gpu != 0)
    fmt::format_to(std::back_inserter(out), "  on a GPU: {:#b}, device={}\n", p.on_gpu, p.device);
  if (p.nan_round >= 0)
    fmt::format_to(std::back_inserter(out), "  {} in t{} of rank {} in round {}\n",
                   p.infinite ? "Inf" : "NaN", p.nan_tensor, p.nan_rank, p.nan_round);
  if (p.extreme_round >= 0)
    fmt::format_to(std::back_inserter(out), "  3e38 in t{} of rank {} in round {}\n", p.nan_tensor,
                   p.nan_rank, p.extreme_round);
  if (p.saves) out += "  every rank saves after every commit\n";
  if (p.restart >= 0)
    fmt::format_to(std::back_inserter(out), "  all begin again after {} rounds\n", p.restart);
  if (p.propose_at >= 0)
    fmt::format_to(std::back_inserter(out), "  before round {} rank 0 proposes {}\n", p.propose_at,
                   p.proposal);
  const Fault& f = p.fault;
  if (f.kind == FaultKind::kNone) return out;
  fmt::format_to(std::back_inserter(out), "  fault: {} rank {}", name(f.kind), f.who);
  if (f.kind == FaultKind::kLose || f.kind == FaultKind::kCut || f.kind == FaultKind::kForge)
    fmt::format_to(std::back_inserter(out), " towards rank {}", f.other);
  if (f.kind == FaultKind::kFreeze)
    fmt::format_to(std::back_inserter(out), " for {} ms of {}", f.lasts.count() / 1'000'000,
                   kTimeout.count());
  if (f.kind == FaultKind::kDamage || f.kind == FaultKind::kForge)
    fmt::format_to(std::back_inserter(out), " ({}{})", kDamageNames[static_cast<std::size_t>(f.damage)],
                   f.control ? ", control" : "");
  if (f.kind == FaultKind::kDriver)
    fmt::format_to(std::back_inserter(out), " ({} of {}{})", p.driver.nth, p.driver.call,
                   p.driver.for_good ? ", for good" : "");
  if (f.kind == FaultKind::kSlow)
    fmt::format_to(std::back_inserter(out), ", {:.0f} bytes/s", f.rate);
  else if (f.round >= 0)
    fmt::format_to(std::back_inserter(out), ", round {} {}", f.round, kStepNames[f.step]);
  else
    fmt::format_to(std::back_inserter(out), ", at {:.0f} % of its {}", 100 * p.place, name(f.point));
  return out + "\n";
}

}  // namespace tithe::chaos
