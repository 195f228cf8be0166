// SPDX-License-Identifier: Apache-2.0
// Draws a job with changing members from a seed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "chaos/members.h"
#include "chaos/random.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPlaces[] = {"before sync",
                                        "between syncs",
                                        "before wait",
                                        "before commit",
                                        "after commit",
                                        "as it comes",
                                        "as it leaves the old group",
                                        "as all are known",
                                        "as it is connected",
                                        "as it has reformed"};

Fault draw_fault(Random& random, const Job& job) {
  using enum FaultKind;
  const auto processes = job.processes.size();
  Fault f;
  f.kind = random.any({kKill, kKill, kKill, kKill, kVanish, kVanish, kFreeze, kFreeze, kFreeze, kApart,
                       kApart, kCut, kHalves, kClose, kForge, kDamage});
  f.who = random.one_in(4) ? 0 : static_cast<Rank>(random.of(processes));
  f.other = (f.who + 1 + static_cast<Rank>(random.of(processes - 1))) % static_cast<Rank>(processes);
  f.draw = random.word();
  f.lasts = kTimeout * random.any({2, 6, 11, 12, 13, 14, 20, 40}) / 10;
  f.heals = (f.kind == kApart || f.kind == kCut) && random.one_in(2);
  f.control = random.one_in(2);
  f.damage =
      f.kind == kForge ? random.any({Damage::kReplay, Damage::kReplay, Damage::kGarbage}) : Damage::kFlip;
  if (random.one_in(2) || f.kind == kClose) {
    f.step = static_cast<int>(random.of(f.kind == kClose ? int{kSteps} : int{kMemberSteps}));
    f.round =
        static_cast<int>(random.of(f.step < kSteps ? static_cast<std::uint64_t>(job.scenario.rounds) : 2));
  } else {
    f.point = static_cast<Point>(random.of(kPoints + 1));
    f.count = 1 + random.of(random.any<std::uint64_t>({10, 40, 150, 400}));
  }
  return f;
}

}  // namespace

Job draw_job(std::uint64_t seed) {
  Random random(mix64(seed ^ 0x6d656d62657273ULL));
  Job job;
  Scenario& p = job.scenario;
  p.seed = seed;
  job.begin = random.any<std::size_t>({2, 3, 3, 3, 4, 4, 5, 6});
  p.world = static_cast<int>(job.begin);
  p.rounds = 2 + static_cast<int>(random.of(4));
  static const std::vector<testing::LawCase> cases = testing::law_cases();
  p.law = cases[random.of(cases.size())];
  p.strategy = std::string(all_strategies()[random.of(all_strategies().size())]->name);
  const std::size_t tensors = 1 + random.of(3);
  for (std::size_t k = 0; k < tensors; ++k) {
    const std::size_t n = random.any<std::size_t>({0, 1, 9, 33, 64, 257, 600});
    p.tensors.push_back({fmt::format("t{}", k), n, random.one_in(3) && n % 8 == 0 ? n / 8 : 0});
  }
  for (int r = 0; r < p.rounds; ++r)
    p.buckets.push_back(r == 0 || random.one_in(3) ? group(random, tensors) : p.buckets.back());
  p.min_values = random.any<std::size_t>({0, 0, 16, 500});
  p.part_values = random.any<std::size_t>({1U << 22, 100});
  p.data = random.one_in(2) ? testing::Data::kDyadic : testing::Data::kGaussian;
  p.conditions = {.seed = random.word(),
                  .turns = !random.one_in(5),
                  .max_latency = milliseconds(random.any({0, 0, 1, 20})),
                  .eager_bytes = random.any<std::size_t>({0, 100, 1U << 30})};
  if (random.one_in(4)) {
    p.propose_at = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
    p.proposal = random.any({R"({"*": "topk:ratio=0.1"})", R"({"*": "fp32"})"});
  }
  for (std::size_t k = 0; k < job.begin; ++k)
    job.processes.push_back({fmt::format("p{}", k), Nanoseconds(-1), random.one_in(3)});
  job.between = milliseconds(random.any({0, 5, 50, 300}));
  job.board_ms = milliseconds(random.any({5, 5, 20, 50}));
  job.board_forks = random.one_in(2);
  if (random.one_in(5)) job.min_world = 1 + static_cast<int>(random.of(job.begin));
  const std::uint64_t come = random.any({0, 0, 0, 1, 1, 2});
  for (std::uint64_t k = 0; k < come; ++k) {
    const Nanoseconds when = milliseconds(1 + random.of(random.any<std::uint64_t>({20, 400, 6000})));
    // With probability 1/2 it has the name of a first member, like a restarted process.
    job.processes.push_back(
        {random.one_in(2) ? fmt::format("p{}", random.of(job.begin)) : fmt::format("new{}", k), when,
         random.one_in(2)});
  }
  if (random.one_in(8)) job.max_world = static_cast<int>(job.begin);
  const std::uint64_t faults = random.any({0, 1, 1, 1, 1, 2, 2, 3});
  for (std::uint64_t k = 0; k < faults; ++k) {
    job.faults.push_back(draw_fault(random, job));
    job.faults.back().with_first = k > 0 && random.one_in(3);
  }
  if (random.one_in(8)) {  // all continue together, and one of them sends a frame late
    const auto who = static_cast<Rank>(random.of(job.begin));
    Fault noise{
        .kind = FaultKind::kForge, .who = (who + 1) % p.world, .other = who, .damage = Damage::kGarbage};
    noise.round = static_cast<int>(random.of(static_cast<std::uint64_t>(p.rounds)));
    noise.step = static_cast<int>(random.of(int{kSteps}));
    noise.draw = random.word();
    job.faults = {noise, {.kind = FaultKind::kLate, .who = who, .count = 1}};
  }
  if (!random.one_in(3))
    for (std::size_t k = 0; k < job.processes.size(); ++k)
      job.hosts.push_back(random.of(job.processes.size()));
  return job;
}

std::string account(const Job& job) {
  const Scenario& p = job.scenario;
  std::string out = fmt::format("seed {}: {} processes begin, {}, {}, {} steps, min_world={}, {}\n", p.seed,
                                job.begin, p.law.label, p.strategy, p.rounds, job.min_world,
                                p.data == testing::Data::kDyadic ? "dyadic" : "Gaussian");
  for (std::size_t k = job.begin; k < job.processes.size(); ++k)
    out += fmt::format("  process {} comes after {} ms as '{}'\n", k,
                       job.processes[k].joins_at.count() / 1'000'000, job.processes[k].name);
  out += fmt::format("  network: {}, up to {} ms late; {} ms between rounds; a look at the board: {} ms\n",
                     p.conditions.turns ? "drawn turns" : "in order",
                     p.conditions.max_latency.count() / 1'000'000, job.between.count() / 1'000'000,
                     job.board_ms.count() / 1'000'000);
  if (p.propose_at >= 0)
    out += fmt::format("  rank 0 proposes {} before step {}\n", p.proposal, p.propose_at);
  for (const Fault& f : job.faults) {
    out += fmt::format("  fault: {} process {} (other {})", name(f.kind), f.who, f.other);
    if (f.kind == FaultKind::kHalves) {
      std::string halves;
      for (std::size_t k = 0; k < job.processes.size(); ++k) halves += (f.draw >> k & 1) != 0 ? '1' : '0';
      out += fmt::format(" {}, {}", halves, job.board_forks ? "two boards" : "one board");
    }
    if (f.kind == FaultKind::kFreeze || f.heals)
      out += fmt::format(" for {} ms", f.lasts.count() / 1'000'000);
    if (f.with_first)
      out += ", with the first";
    else if (f.round >= 0)
      out += fmt::format(", {} {} {}", f.step < kSteps ? "step" : "reform", f.round, kPlaces[f.step]);
    else
      out += fmt::format(", at {} of point {}", f.count, static_cast<int>(f.point));
    out += "\n";
  }
  return out;
}

std::string account(const JobOutcome& result) {
  std::string out;
  for (std::size_t p = 0; p < result.outcomes.size(); ++p) {
    const MemberOutcome& f = result.outcomes[p];
    out += fmt::format("  process {}:", p);
    for (const CommittedRound& d : f.committed_rounds)
      out += fmt::format(" {}{}.{} with {}", d.life > 0 ? "again " : "", d.epoch, d.step,
                         fmt::join(d.members, "+"));
    out += fmt::format("; {}\n", f.finished ? "did all" : f.dead ? "is dead" : f.status.what());
  }
  return out;
}

}  // namespace tithe::chaos
