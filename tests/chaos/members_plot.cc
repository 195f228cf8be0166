// SPDX-License-Identifier: Apache-2.0
// Draws a job with changing members from a seed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "chaos/dice.h"
#include "chaos/members.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kPlaces[] = {"before sync",
                                        "between syncs",
                                        "before wait",
                                        "before commit",
                                        "after commit",
                                        "as it comes",
                                        "as it leaves the old circle",
                                        "as all are known",
                                        "as it is connected",
                                        "as it has reformed"};

Fault draw_fault(Dice& dice, const Job& job) {
  using enum FaultKind;
  const auto people = job.people.size();
  Fault f;
  f.kind = dice.any({kKill, kKill, kKill, kKill, kVanish, kVanish, kFreeze, kFreeze, kFreeze, kApart, kApart,
                     kCut, kHalves, kClose, kForge, kDamage});
  f.who = dice.one_in(4) ? 0 : static_cast<Rank>(dice.of(people));
  f.other = (f.who + 1 + static_cast<Rank>(dice.of(people - 1))) % static_cast<Rank>(people);
  f.draw = dice.word();
  f.lasts = kTimeout * dice.any({2, 6, 11, 12, 13, 14, 20, 40}) / 10;
  f.heals = (f.kind == kApart || f.kind == kCut) && dice.one_in(2);
  f.control = dice.one_in(2);
  f.damage = f.kind == kForge ? dice.any({Damage::kReplay, Damage::kReplay, Damage::kNoise}) : Damage::kFlip;
  if (dice.one_in(2) || f.kind == kClose) {
    f.step = static_cast<int>(dice.of(f.kind == kClose ? int{kSteps} : int{kMemberSteps}));
    f.round = static_cast<int>(dice.of(f.step < kSteps ? static_cast<std::uint64_t>(job.plot.rounds) : 2));
  } else {
    f.point = static_cast<Point>(dice.of(kPoints + 1));
    f.count = 1 + dice.of(dice.any<std::uint64_t>({10, 40, 150, 400}));
  }
  return f;
}

}  // namespace

Job draw_job(std::uint64_t seed) {
  Dice dice(mix64(seed ^ 0x6d656d62657273ULL));
  Job job;
  Plot& p = job.plot;
  p.seed = seed;
  job.begin = dice.any<std::size_t>({2, 3, 3, 3, 4, 4, 5, 6});
  p.world = static_cast<int>(job.begin);
  p.rounds = 2 + static_cast<int>(dice.of(4));
  static const std::vector<testing::LawCase> cases = testing::law_cases();
  p.law = cases[dice.of(cases.size())];
  p.strategy = std::string(all_strategies()[dice.of(all_strategies().size())]->name);
  const std::size_t tensors = 1 + dice.of(3);
  for (std::size_t k = 0; k < tensors; ++k) {
    const std::size_t n = dice.any<std::size_t>({0, 1, 9, 33, 64, 257, 600});
    p.tensors.push_back({fmt::format("t{}", k), n, dice.one_in(3) && n % 8 == 0 ? n / 8 : 0});
  }
  for (int r = 0; r < p.rounds; ++r)
    p.buckets.push_back(r == 0 || dice.one_in(3) ? group(dice, tensors) : p.buckets.back());
  p.min_values = dice.any<std::size_t>({0, 0, 16, 500});
  p.part_values = dice.any<std::size_t>({1U << 22, 100});
  p.data = dice.one_in(2) ? testing::Data::kDyadic : testing::Data::kGaussian;
  p.weather = {.seed = dice.word(),
               .turns = !dice.one_in(5),
               .most_latency = milliseconds(dice.any({0, 0, 1, 20})),
               .eager_bytes = dice.any<std::size_t>({0, 100, 1U << 30})};
  if (dice.one_in(4)) {
    p.propose_at = static_cast<int>(dice.of(static_cast<std::uint64_t>(p.rounds)));
    p.proposal = dice.any({R"({"*": "topk:ratio=0.1"})", R"({"*": "fp32"})"});
  }
  for (std::size_t k = 0; k < job.begin; ++k)
    job.people.push_back({fmt::format("p{}", k), Nanoseconds(-1), dice.one_in(3)});
  job.between = milliseconds(dice.any({0, 5, 50, 300}));
  job.board_ms = milliseconds(dice.any({5, 5, 20, 50}));
  job.board_forks = dice.one_in(2);
  if (dice.one_in(5)) job.min_world = 1 + static_cast<int>(dice.of(job.begin));
  const std::uint64_t come = dice.any({0, 0, 0, 1, 1, 2});
  for (std::uint64_t k = 0; k < come; ++k) {
    const Nanoseconds when = milliseconds(1 + dice.of(dice.any<std::uint64_t>({20, 400, 6000})));
    // With probability 1/2 it has the name of a first member, like a restarted process.
    job.people.push_back({dice.one_in(2) ? fmt::format("p{}", dice.of(job.begin)) : fmt::format("new{}", k),
                          when, dice.one_in(2)});
  }
  if (dice.one_in(8)) job.max_world = static_cast<int>(job.begin);
  const std::uint64_t faults = dice.any({0, 1, 1, 1, 1, 2, 2, 3});
  for (std::uint64_t k = 0; k < faults; ++k) {
    job.faults.push_back(draw_fault(dice, job));
    job.faults.back().with_first = k > 0 && dice.one_in(3);
  }
  if (dice.one_in(8)) {  // all continue together, and one of them sends a frame late
    const auto who = static_cast<Rank>(dice.of(job.begin));
    Fault noise{
        .kind = FaultKind::kForge, .who = (who + 1) % p.world, .other = who, .damage = Damage::kNoise};
    noise.round = static_cast<int>(dice.of(static_cast<std::uint64_t>(p.rounds)));
    noise.step = static_cast<int>(dice.of(int{kSteps}));
    noise.draw = dice.word();
    job.faults = {noise, {.kind = FaultKind::kLate, .who = who, .count = 1}};
  }
  if (!dice.one_in(3))
    for (std::size_t k = 0; k < job.people.size(); ++k) job.hosts.push_back(dice.of(job.people.size()));
  return job;
}

std::string account(const Job& job) {
  const Plot& p = job.plot;
  std::string out = fmt::format("seed {}: {} people begin, {}, {}, {} steps, min_world={}, {}\n", p.seed,
                                job.begin, p.law.label, p.strategy, p.rounds, job.min_world,
                                p.data == testing::Data::kDyadic ? "dyadic" : "Gaussian");
  for (std::size_t k = job.begin; k < job.people.size(); ++k)
    out += fmt::format("  person {} comes after {} ms as '{}'\n", k,
                       job.people[k].comes_at.count() / 1'000'000, job.people[k].name);
  out += fmt::format("  weather: {}, up to {} ms late; {} ms between rounds; a look at the board: {} ms\n",
                     p.weather.turns ? "drawn turns" : "in order", p.weather.most_latency.count() / 1'000'000,
                     job.between.count() / 1'000'000, job.board_ms.count() / 1'000'000);
  if (p.propose_at >= 0)
    out += fmt::format("  rank 0 proposes {} before step {}\n", p.proposal, p.propose_at);
  for (const Fault& f : job.faults) {
    out += fmt::format("  fault: {} person {} (other {})", name(f.kind), f.who, f.other);
    if (f.kind == FaultKind::kHalves) {
      std::string halves;
      for (std::size_t k = 0; k < job.people.size(); ++k) halves += (f.draw >> k & 1) != 0 ? '1' : '0';
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

std::string account(const Story& story) {
  std::string out;
  for (std::size_t p = 0; p < story.fates.size(); ++p) {
    const Fate& f = story.fates[p];
    out += fmt::format("  person {}:", p);
    for (const Deed& d : f.deeds)
      out += fmt::format(" {}{}.{} with {}", d.life > 0 ? "again " : "", d.epoch, d.step,
                         fmt::join(d.members, "+"));
    out += fmt::format("; {}\n", f.finished ? "did all" : f.dead ? "is dead" : f.status.what());
  }
  return out;
}

}  // namespace tithe::chaos
