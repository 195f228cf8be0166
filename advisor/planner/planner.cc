// SPDX-License-Identifier: Apache-2.0
// Combines search, simulation and baselines into a plan, and words its verdict.
#include "advisor/planner/planner.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::planner {
namespace {

constexpr double kHidden = 0.01;  // of a step: less exposed communication counts as none
constexpr double kNoMore = 1.02;  // a plan with a smaller speedup is not worth a file

// Milliseconds, without digits beyond the accuracy of the costs.
std::string ms(Seconds seconds) { return fmt::format("{:.{}f}", seconds * 1e3, seconds < 0.1 ? 3 : 1); }

// "2.27 times as fast as bf16@hosts, the best bf16 here; 3.90 of fp32@ring, the best fp32; ..."
std::string compared(const Planned& p) {
  const auto times = [&](Seconds other) { return other / p.outcome.step; };
  std::string text =
      fmt::format("{:.2f} times as fast as {}, the best bf16 here; {:.2f} of {}, the best fp32",
                  times(p.bf16.step), p.bf16.name, times(p.fp32.step), p.fp32.name);
  if (p.single.name != p.bf16.name && p.single.name != p.fp32.name)
    text += fmt::format("; {:.2f} of {}, the best single setting{}", times(p.single.step), p.single.name,
                        times(p.single.step) < kNoMore ? ", which needs no plan" : "");
  // A plan that mixes fp32, bf16 and zip may be better than both baselines.
  if (p.lossless < kWorthIt * std::min(p.bf16.step, p.fp32.step))
    text += fmt::format("; {:.2f} of the best lossless plan", times(p.lossless));
  return text;
}

std::string beside(const Planned& p) {
  return fmt::format("{} takes {}, the best bf16 here; {} {}, the best fp32", p.bf16.name, ms(p.bf16.step),
                     p.fp32.name, ms(p.fp32.step));
}

// The shortest step of a network library that leaves gradients on the devices; kNever if there are no devices, or if
// the library is not faster.
Seconds without_tithe(const Planned& p) {
  Seconds least = sim::kNever;
  for (const Baseline* base : {&p.fp32, &p.bf16})
    if (base->on_devices) least = std::min(least, base->step);
  return least;
}

bool may_lose(const PlanQuery& query) {
  return std::ranges::any_of(query.allowed, [](const Allowance& a) { return !always_allowed(a.codec); });
}

// One line. The first matching case decides: gradients stay on devices; the plan compresses with enough gain, or with
// too little; communication is hidden; compression was not searched, not allowed, or not worth it.
std::string verdict_of(const Planned& p, bool searched, bool may_compress) {
  const std::string step = fmt::format("step {} ms{}", ms(p.outcome.step), p.estimated ? ", estimated" : "");
  const Seconds best = p.compressed > 0 ? std::min(p.compressed, p.outcome.step) : p.outcome.step;
  if (const Seconds without = without_tithe(p); without < sim::kNever && best > kWorthLosing * without)
    return fmt::format(
        "do not compress, and leave gradients on the devices: the best plan takes {} ms with its copies to "
        "the host; {}",
        ms(best), beside(p));
  if (p.compresses && p.outcome.step <= kWorthLosing * p.lossless)
    return fmt::format("{}: {}", step, compared(p));
  if (p.compresses)
    return fmt::format(
        "do not compress: this plan's {} is {:.2f} times as fast as the best without, {} ms; {}", step,
        p.gain(), ms(p.lossless), beside(p));
  if (p.outcome.exposed <= kHidden * p.outcome.step)
    return fmt::format("do not compress: communication is hidden, nothing more can be gained; {}; {}", step,
                       beside(p));
  if (!searched) return fmt::format("{}, nothing is compressed; {}", step, beside(p));
  if (!may_compress)
    return fmt::format("{}, nothing is compressed: only fp32, bf16 and zip are allowed; {}", step, beside(p));
  const double gain = p.compressed > 0 && p.compressed < sim::kNever ? p.outcome.step / p.compressed : 0;
  return fmt::format(
      "do not compress: the allowed codecs {}; {}; {}",
      gain > 1
          ? fmt::format("would make the step {:.2f} times as fast, and a lossy codec must reach 1.05", gain)
          : "do not shorten the step",
      step, beside(p));
}

// The baseline without tithe on hosts with devices: a network library that sums on the devices. It sends by ring, or by
// an algorithm at least as fast as its tree (docs/guide/plan.md).
Result<Baseline> on_devices(const PlanQuery& query, const Spec& spec) {
  PlanQuery q{query.job, query.cluster.on_devices(), query.costs, {}};
  // Memory traffic: sending a value reads and writes it, and adding a value also reads the sum. The bandwidth is that
  // of a V100 (NVIDIA's data sheet); later devices are faster.
  const auto line = [](double bytes) {
    constexpr double kBytesPerSecond = 900e9, kValues = 1 << 20;
    return sim::Curve{{{kValues, bytes * kValues / kBytesPerSecond}}};
  };
  for (const auto& [baseline, bytes] : {std::pair{uncompressed_spec(), 4.0}, std::pair{half_spec(), 2.0}})
    q.costs.codecs[std::string(baseline.codec->name)] =
        sim::CodecCosts{.encode = line(4 + bytes), .store = line(4 + bytes), .merge = line(8 + bytes)};
  Result<PlanSearch> search = PlanSearch::make(q);
  if (!search.ok()) return search.status();
  Confirm confirm(*search);
  const Result<std::size_t> best = confirm.setting(spec);
  if (!best.ok()) return best.status();
  Baseline out = confirm.baseline(*best);
  out.name += " on the devices";
  out.on_devices = true;
  return out;
}

// Indices of the baselines among the candidates.
struct Bases {
  std::size_t fp32, bf16, single;
};
Result<Bases> bases_of(PlanSearch& search, Confirm& confirm) {
  const Result<std::size_t> fp32 = confirm.setting(uncompressed_spec());
  if (!fp32.ok()) return fp32.status();
  const Result<std::size_t> bf16 = confirm.setting(half_spec());
  if (!bf16.ok()) return bf16.status();
  const auto shorter = [&](std::size_t a, std::size_t b) {
    return confirm.seen()[b].step() < confirm.seen()[a].step() ? b : a;
  };
  Bases out{*fp32, *bf16, shorter(*bf16, *fp32)};
  const std::vector<JobTensor>& tensors = search.query().job.tensors;
  std::vector<Spec> tried;
  for (std::size_t o = 0; o < search.options().size(); ++o) {
    const Spec& spec = search.options()[o].spec;
    if (!search.options()[o].lossy || std::ranges::find(tried, spec) != tried.end()) continue;
    tried.push_back(spec);
    bool all = true;
    for (std::size_t t = 0; t < tensors.size(); ++t)
      all = all && (tensors[t].n < kDefaultMinValues || search.allowed(t, static_cast<int>(o)));
    if (!all) continue;
    const Result<std::size_t> at = confirm.setting(spec, confirm.seen()[out.single].step());
    if (at.ok() && *at < confirm.seen().size()) out.single = *at;
  }
  return out;
}

}  // namespace

std::string verdict_of(const Planned& planned, const PlanQuery& query, std::string_view policy) {
  std::string_view argument;
  const Result<const Policy*> found = find_policy(policy, argument);
  return verdict_of(planned, found.ok() && *found == &timeline_policy, may_lose(query));
}

// Runs the policy, simulates the baselines, and for `timeline` also the other policies, the best lossless plan and the
// neighbours of the best. The shortest step wins, unless compression gains less than 5 %.
Result<Planned> plan(const PlanQuery& query, std::string_view policy, const Planned* beside) {
  std::string_view argument;
  const Result<const Policy*> found = find_policy(policy, argument);
  if (!found.ok()) return found.status();
  Result<PlanSearch> made = PlanSearch::make(query);
  if (!made.ok()) return made.status();
  PlanSearch& search = *made;
  const Result<Assignment> decided = (*found)->decide(search, argument);
  if (!decided.ok()) return decided.status();

  Planned out;
  out.policy = std::string(policy);
  Confirm confirm(search);
  if (beside == nullptr) {
    const Result<Bases> bases = bases_of(search, confirm);
    if (!bases.ok()) return bases.status();
    out.fp32 = confirm.baseline(bases->fp32);
    out.bf16 = confirm.baseline(bases->bf16);
    out.single = confirm.baseline(bases->single);
    out.bases = confirm.seen();
    if (query.cluster.has_devices()) {
      for (Baseline* base : {&out.fp32, &out.bf16}) {
        Result<Baseline> there = on_devices(query, base == &out.fp32 ? uncompressed_spec() : half_spec());
        if (!there.ok()) return there.status();
        if (there->step < base->step) *base = std::move(*there);
      }
    }
  } else {
    confirm.seen() = out.bases = beside->bases;
    out.fp32 = beside->fp32;
    out.bf16 = beside->bf16;
    out.single = beside->single;
  }
  const bool searches = *found == &timeline_policy;
  if (searches) TITHE_TRY(confirm.uniform());
  const Result<std::size_t> own = confirm.add(std::string(policy), *decided, !searches);
  if (!own.ok()) return own.status();
  std::size_t best = *own;
  const bool may = may_lose(query);
  if (*found == &bf16_policy || *found == &fp32_policy) {
    const std::string& name = *found == &bf16_policy ? out.bf16.name : out.fp32.name;
    for (std::size_t c = 0; c < out.bases.size(); ++c)
      if (out.bases[c].allowed && out.bases[c].label == name &&
          confirm.seen()[c].step() <= confirm.seen()[best].step())
        best = c;
  }
  if (searches) {
    TITHE_TRY(confirm.others());
    // Lossless plans are searched as well, since the gain of compression is measured against the best of them.
    if (may) {
      search.without_loss(true);
      const Result<Assignment> none = timeline_policy.decide(search, {});
      if (!none.ok()) return none.status();
      const Result<std::size_t> at = confirm.add("timeline without compression", *none);
      if (!at.ok()) return at.status();
      const Result<std::size_t> near = confirm.neighbours(confirm.shortest(false));
      search.without_loss(false);
      if (!near.ok()) return near.status();
    }
    const Result<std::size_t> at_best = confirm.neighbours(confirm.shortest(true));
    if (!at_best.ok()) return at_best.status();
    const Result<std::size_t> less = confirm.less(*at_best);
    if (!less.ok()) return less.status();
    best = *less;
    // The lossless plan stays unless compression is worth its loss.
    const std::size_t lossless = confirm.shortest(false);
    const Seconds without = std::min(confirm.seen()[lossless].step(), without_tithe(out));
    if (confirm.seen()[best].compresses && confirm.seen()[best].step() > kWorthLosing * without)
      best = lossless;
  }
  const std::size_t lossless = confirm.shortest(false);
  const Candidate& chosen = confirm.seen()[best];
  out.compresses = chosen.compresses;
  const bool counted = lossless < confirm.seen().size() && (chosen.compresses || !searches);
  out.lossless = counted ? confirm.seen()[lossless].step() : chosen.step();
  for (const Candidate& c : confirm.seen())
    if (c.compresses && c.allowed && (out.compressed == 0 || c.step() < out.compressed))
      out.compressed = c.step();
  out.assignment = chosen.assignment;
  out.judged = search.judged;
  out.rules = search.rules(out.assignment);
  out.outcome = chosen.outcome;
  out.estimated = too_many(query);
  out.simulated = confirm.seen().size();
  out.verdict = verdict_of(out, query, policy);
  return out;
}

}  // namespace tithe::planner
