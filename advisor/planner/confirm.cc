// SPDX-License-Identifier: Apache-2.0
// Simulates candidates in an order that keeps the work small: each simulation is limited by the best step so far, and
// estimates skip candidates that are far longer. The number of simulations depends on the query only.
#include "advisor/planner/confirm.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "advisor/planner/tensor_class.h"

namespace tithe::planner {
namespace {

constexpr double kWorthRules = 0.995;  // of a step: a smaller improvement does not justify further rules
constexpr double kFar = 1.3;  // an assignment estimated to take longer by this factor is not simulated
constexpr int kFew = 64;      // up to this number of ranks, every setting is simulated whatever its estimate
constexpr std::size_t kWorthSteps = 1'500'000;  // program steps simulated for neighbours: some seconds
constexpr std::size_t kRows = 6, kEach = 2;     // classes of tensors, and other choices for each

}  // namespace

bool too_many(const PlanQuery& query) { return query.job.tensors.size() > kMaxConfirmed; }

Result<sim::Outcome> step_of(PlanSearch& search, const Assignment& assignment, Seconds limit) {
  const PlanQuery& q = search.query();
  if (!too_many(q)) return simulate(q, search.rules(assignment), false, limit, &search.timelines());
  sim::Outcome out;
  out.step = search.judge(assignment);
  out.exposed = out.step - q.job.compute;
  out.bytes = {search.last_times().up * q.cluster.rates()[0] / q.cluster.hosts()[0].ranks};
  out.busiest = "host 0 up";
  return out;
}

Confirm::Confirm(PlanSearch& search) : search_(search) {
  constexpr std::size_t kWorth = 12'000;  // tensors simulated in all
  max_simulated_ = std::clamp<std::size_t>(kWorth / search.query().job.tensors.size(), 12, 40);
}

Candidate Confirm::candidate(std::string label, const Assignment& assignment) const {
  Candidate out{std::move(label), assignment, {}};
  for (std::size_t t = 0; t < assignment.size(); ++t) {
    out.compresses = out.compresses || search_.option(assignment[t].option).lossy;
    out.allowed = out.allowed && search_.allowed(t, assignment[t].option);
  }
  return out;
}

Result<std::size_t> Confirm::add(std::string label, const Assignment& assignment, bool whole) {
  Candidate fresh = candidate(std::move(label), assignment);
  Seconds limit = sim::kNever;
  for (std::size_t c = 0; c < seen_.size(); ++c) {
    if (seen_[c].assignment == assignment && (!whole || seen_[c].step() < sim::kNever)) return c;
    const bool rival = seen_[c].allowed && (fresh.compresses || !seen_[c].compresses);
    if (!whole && rival) limit = std::min(limit, seen_[c].step());
  }
  const bool already_longer = std::ranges::any_of(
      longer_, [&](const auto& known) { return limit <= known.second && known.first == assignment; });
  if (already_longer || (limit < sim::kNever && search_.judge(assignment, kFar * limit) > kFar * limit)) {
    fresh.outcome.step = sim::kNever;
    seen_.push_back(std::move(fresh));
    return seen_.size() - 1;
  }
  Result<sim::Outcome> out = step_of(search_, assignment, limit);
  if (!out.ok()) return out.status();
  steps_ += out->steps;
  fresh.outcome = std::move(*out);
  seen_.push_back(std::move(fresh));
  return seen_.size() - 1;
}

std::size_t Confirm::shortest(bool lossy_too) const {
  std::size_t at = seen_.size();
  for (std::size_t c = 0; c < seen_.size(); ++c) {
    if (!seen_[c].allowed || (seen_[c].compresses && !lossy_too)) continue;
    if (at == seen_.size() || seen_[c].step() < seen_[at].step()) at = c;
  }
  return at;
}

Result<std::size_t> Confirm::setting(const Spec& spec, Seconds limit) {
  struct Estimate {
    bool differ;  // ranks are not symmetric, so many must be simulated
    Seconds judged, least;
    int option;
    bool inside;
  };
  std::vector<Estimate> guesses;
  for (std::size_t o = 0; o < search_.options().size(); ++o) {
    const Option& option = search_.options()[o];
    if (!(option.spec == spec)) continue;
    for (const bool inside : {false, true}) {
      if (inside && (option.strategy->between == nullptr || spec.codec->traits.uncompressed)) continue;
      if (!option.searched && too_many(search_.query())) continue;
      const int number = static_cast<int>(o);
      guesses.push_back({!option.symmetric, search_.judge(search_.setting(number, inside)),
                         search_.min_step(number, inside), number, inside});
    }
  }
  // Symmetric settings come first: they are quick to simulate, and their times limit the slow ones.
  std::ranges::stable_sort(guesses, {}, [](const Estimate& g) { return std::tie(g.differ, g.judged); });
  std::optional<std::size_t> best;
  Seconds judged = 0;  // estimate of the best one: an error common to all estimates cancels out
  Status refused(Code::kInvalid, fmt::format("{}: no strategy supports this codec", tithe::to_string(spec)));
  for (const Estimate& g : guesses) {
    const bool far = g.judged > kFar * std::max(limit, judged);
    if (g.least >= limit || (far && g.differ && search_.query().cluster.world() > kFew)) continue;
    const Assignment all = search_.setting(g.option, g.inside);
    Result<sim::Outcome> out = step_of(search_, all, limit);
    if (!out.ok()) {  // refused by every session, e.g. a codec that masks momentum with shared hosts
      refused = out.status();
      continue;
    }
    if (out->step >= limit) {
      longer_.emplace_back(all, limit);
      if (!g.inside) beaten_.insert(g.option);
      continue;
    }
    best = seen_.size();
    limit = out->step;
    judged = g.judged;
    seen_.push_back(
        candidate(to_string(search_.option(g.option)) + (g.inside ? " with bf16 inside" : ""), all));
    seen_.back().outcome = std::move(*out);
  }
  if (limit == sim::kNever) return refused;
  return best.value_or(seen_.size());
}

Baseline Confirm::baseline(std::size_t candidate) const {
  const Candidate& c = seen_[candidate];
  return {c.label, c.step(), search_.rules(c.assignment)};
}

Status Confirm::others() {
  const std::pair<const Policy*, const char*> all[] = {{&secopa_policy, ""},
                                                       {&dragonn_policy, ""},
                                                       {&threshold_policy, "256KB"},
                                                       {&threshold_policy, "1MB"},
                                                       {&threshold_policy, "4MB"}};
  for (const auto& [policy, argument] : all) {
    const Result<Assignment> decided = policy->decide(search_, argument);
    if (!decided.ok()) return decided.status();
    const Result<std::size_t> at = add(std::string(policy->name), *decided);
    if (!at.ok()) return at.status();
  }
  return {};
}

// The number of simulations is bounded by max_simulated_; the settings are tried in the order of their estimates.
Status Confirm::uniform() {
  struct Estimate {
    Seconds step;
    std::size_t option;
    Assignment assignment;
  };
  std::vector<Estimate> guesses;
  const bool symmetric = search_.like_settings(1 - kWorthRules);
  for (std::size_t o = 0; o < search_.options().size(); ++o) {
    if (!search_.options()[o].searched || (symmetric && beaten_.contains(static_cast<int>(o)))) continue;
    Assignment a = search_.uniform(static_cast<int>(o), kDefaultPartValues);
    guesses.push_back({search_.judge(a), o, std::move(a)});
  }
  // Symmetric settings come first, as in setting().
  std::ranges::stable_sort(guesses, {}, [&](const Estimate& g) {
    return std::tuple(!search_.options()[g.option].symmetric, g.step);
  });
  for (const Estimate& g : guesses) {
    if (seen_.size() >= max_simulated_ * 2 / 3) return {};
    const Result<std::size_t> at = add(to_string(search_.options()[g.option]), g.assignment);
    if (!at.ok()) return at.status();
  }
  return {};
}

void Confirm::allot() {
  until_ = seen_.size() + max_simulated_ / 2;
  worth_ = steps_ + kWorthSteps;
}

Result<bool> Confirm::better(std::size_t& of, std::string label, const Assignment& other) {
  const Result<std::size_t> at = add(std::move(label), other);
  if (!at.ok()) return at.status();
  const bool better = seen_[*at].allowed && seen_[*at].step() < kWorthRules * seen_[of].step();
  if (better) of = *at;
  return better;
}

Result<std::size_t> Confirm::neighbours(std::size_t of) {
  // Asymmetric ranks: each simulation takes some seconds.
  if (seen_[of].outcome.steps > kWorthSteps / 4) return of;
  allot();
  for (bool moved = true; moved && !spent();) {
    moved = false;
    for (const auto& [label, change] : changes()) {
      if (spent()) return of;
      Assignment other = seen_[of].assignment;
      for (std::size_t t = 0; t < other.size(); ++t) change(t, other[t]);
      const Result<bool> now = better(of, seen_[of].label + label, other);
      if (!now.ok()) return now.status();
      moved = moved || *now;
    }
  }
  if (too_many(search_.query())) return of;
  // The best choice for one class depends on the others, so after a change all classes are examined again.
  for (bool moved = true; moved;) {
    moved = false;
    const std::vector<TensorClass> rows = tensor_classes(search_, seen_[of].assignment);
    for (std::size_t r = 0; r < std::min(kRows, rows.size()); ++r) {
      const std::vector<Assignment> others = alternatives(search_, seen_[of].assignment, rows[r]);
      for (std::size_t k = 0; k < std::min(kEach, others.size()); ++k) {
        if (spent()) return of;
        const Result<bool> now = better(of, seen_[of].label + ", some otherwise", others[k]);
        if (!now.ok()) return now.status();
        moved = moved || *now;
        if (*now) break;
      }
    }
  }
  return of;
}

Result<std::size_t> Confirm::less(std::size_t of) {
  if (!seen_[of].compresses) return of;
  const Assignment other = less_compressed(search_, seen_[of].assignment);
  if (other == seen_[of].assignment) return of;
  const Result<std::size_t> at = add(seen_[of].label + ", less compressed", other, true);
  if (!at.ok()) return at.status();
  return seen_[*at].step() <= kAsShort * seen_[of].step() ? *at : of;
}

std::vector<std::pair<std::string, Confirm::Change>> Confirm::changes() {
  std::vector<std::pair<std::string, Change>> out;
  for (const char* strategy : {"server", "ring", "gather", "hosts", "hosts_ring"})
    out.emplace_back(fmt::format(", by {}", strategy), [this, strategy](std::size_t, Decision& d) {
      const int o = search_.find(search_.option(d.option).spec, strategy);
      const Strategy& by = *search_.option(o).strategy;
      if (d.grouped || !search_.option(o).searched || by.name != strategy) return;
      d.option = o;
      d.rounded_inside = d.rounded_inside && by.between != nullptr;
    });
  for (const std::size_t part : {std::size_t{1} << 20, std::size_t{1} << 18})
    out.emplace_back(fmt::format(", parts of {}", part), [part](std::size_t, Decision& d) {
      if (!d.grouped) d.part_values = part;
    });
  const std::vector<JobTensor>& tensors = search_.query().job.tensors;
  // Tensors that need only 16 bits between hosts need no more inside a host.
  if (static_cast<int>(search_.query().cluster.hosts().size()) < search_.query().cluster.world())
    out.emplace_back(", bf16 inside", [this](std::size_t t, Decision& d) {
      if (search_.option(d.option).strategy->between != nullptr && !d.grouped)
        d.rounded_inside = search_.base(t).codec->traits.always_allowed;
    });
  const std::size_t large = std::ranges::max(tensors, {}, &JobTensor::n).n;
  out.emplace_back(", large first", [&tensors, large](std::size_t t, Decision& d) {
    d.early = !d.grouped && tensors[t].n >= large / 4;
  });
  for (const std::size_t small : {std::size_t{1} << 14, std::size_t{1} << 16})
    out.emplace_back(fmt::format(", groups below {}", small),
                     [this, &tensors, small](std::size_t t, Decision& d) {
                       if (tensors[t].n < small) d = search_.grouped(t);
                     });
  return out;
}

}  // namespace tithe::planner
