// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/rng.h"
#include "tithe/seam/frame.h"

namespace tithe {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t v) {
  return mix64(hash ^ mix64(v + 0x9e3779b97f4a7c15ULL));
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

Spec shaped(Spec spec, std::size_t row) {
  const std::size_t at = spec.codec->param(Role::kCols);
  const auto cols = static_cast<double>(row);
  if (at < spec.codec->params.size() && spec.settings[at] == 0 && cols <= spec.codec->params[at].high)
    spec.settings.value[at] = cols;
  return spec;
}

// A tensor of a bucket with its choice.
struct Chosen {
  const PlanTensor* tensor;
  const Choice* choice;
  bool may_share;
  bool grouped() const { return may_share && !choice->group.empty() && tensor->n <= choice->part_values; }
};

// Sorts by priority; among equals, ungrouped tensors come first, then groups in the order of their first tensor.
std::vector<std::size_t> order_of(std::span<const Chosen> bucket) {
  // The position of each group's first tensor, from 1; ungrouped tensors have 0.
  std::map<std::string_view, std::size_t> groups;
  std::vector<std::size_t> order(bucket.size());
  for (std::size_t t = 0; t < bucket.size(); ++t) {
    order[t] = t;
    if (bucket[t].grouped()) groups.try_emplace(bucket[t].choice->group, t + 1);
  }
  const auto sort_key = [&](std::size_t t) {
    const Chosen& c = bucket[t];
    return std::pair(-c.choice->priority, c.grouped() ? groups.at(c.choice->group) : 0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sort_key(a) < sort_key(b); });
  return order;
}

}  // namespace

bool has_cols(const Codec& codec) { return codec.param(Role::kCols) < codec.params.size(); }

std::size_t cols_of(const Spec& spec) {
  return has_cols(*spec.codec) ? static_cast<std::size_t>(spec.settings[spec.codec->param(Role::kCols)]) : 0;
}

std::vector<std::size_t> equal_bounds(std::size_t n, std::size_t row, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t of = row == 0 ? 1 : row;
  const std::size_t share = (n / of + ranks - 1) / ranks * of;
  std::vector<std::size_t> bounds;
  for (std::size_t r = 0; r <= ranks; ++r) bounds.push_back(std::min(n, r * share));
  return bounds;
}

std::size_t cut_at(std::size_t n, std::size_t cols, std::size_t k, std::size_t pieces) {
  if (k == pieces) return n;
  return cols == 0 || cols >= n ? n * k / pieces : n / cols * k / pieces * cols;
}

namespace {

// Adapts the part's strategy to the hosts and servers. n: the number of values for which the option was chosen.
void resolve_hosts(Part& part, const Choice& c, std::size_t n, const ChoiceDefaults& defaults) {
  if (part.strategy->between == nullptr) return;
  if (defaults.hosts.alone()) {
    part.strategy = part.strategy->between;
    part.why += "; each rank has its own host";
    return;
  }
  if (defaults.hosts.count(defaults.world) > 1) {
    part.inside = c.inside_spec(c.option_for(n));
    return;
  }
  part.strategy = part.strategy->between;
  part.spec = c.inside_spec();
  part.scheduled = false;
  part.why += "; all ranks share a host";
  const FeedbackPolicy& policy = c.spec.feedback;  // momentum and clipping apply to the whole step
  if (policy.kind == Feedback::kMomentum) part.spec.feedback = policy;
  part.spec.feedback.mask = false;
  part.spec.feedback.clip = policy.clip;
}

void add_alone(Plan& plan, std::size_t at, const PlanTensor& t, const Choice& c, const Choices& choices) {
  const Spec spec = shaped(c.spec, t.row);
  const std::size_t cols = cols_of(spec);
  const std::size_t max_rows = cols == 0 || cols >= t.n ? t.n : t.n / cols;
  const std::size_t pieces = std::min(choices.parts(c, t.n), max_rows);
  for (std::size_t k = 0; k < pieces; ++k) {
    const std::size_t first = cut_at(t.n, cols, k, pieces);
    const std::size_t n = cut_at(t.n, cols, k + 1, pieces) - first;
    plan.parts.push_back({at + first, n, spec, &c.strategy_of(t.n),
                          pieces == 1 ? c.why : fmt::format("{}, piece {} of {}", c.why, k + 1, pieces),
                          c.scheduled, c.priority});
    resolve_hosts(plan.parts.back(), c, t.n, choices.defaults());
  }
}

// True if the codec is right on average, so that errors need no feedback: codecs with the trait, and codecs with a
// parameter set to "unbiased" (eden: scale=unbiased).
bool is_unbiased(const Spec& spec) {
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i) {
    const std::span<const std::string_view> choices = spec.codec->params[i].choices;
    if (!choices.empty() && choices[static_cast<std::size_t>(spec.settings[i])] == "unbiased") return true;
  }
  return spec.codec->traits.unbiased;
}

// Momentum and clipping apply to gradients, so an all-gather has neither. A residual is kept if the spec requests it;
// in a reduce-scatter also by default, unless the codec is unbiased.
FeedbackPolicy feedback_of(const Spec& spec, RoundKind kind) {
  FeedbackPolicy policy = spec.feedback;
  const bool gathers = kind == RoundKind::kAllGather;
  if (gathers && policy.kind == Feedback::kMomentum) policy.kind = Feedback::kNone;
  if (policy.kind == Feedback::kResidual && !policy.requested && (gathers || is_unbiased(spec)))
    policy.kind = Feedback::kNone;
  if (gathers) policy.clip = 0;
  policy.mask = policy.mask && policy.kind == Feedback::kMomentum;
  return policy;
}

Part sharded_part(std::size_t at, const PlanTensor& t, const Choice& c, const ChoiceDefaults& defaults,
                  RoundKind kind) {
  Part part{at, t.n, shaped(c.spec, t.row), &c.strategy_of(t.n), c.why, c.scheduled, c.priority};
  resolve_hosts(part, c, t.n, defaults);
  // For an all-reduce, "auto" may choose a strategy that adds on the way. Here every value is rounded only once.
  const bool direct = c.strategy == nullptr && part.strategy->between == nullptr;
  part.strategy = &sharded_strategy(kind, direct ? *find_strategy("gather") : *part.strategy);
  part.spec.feedback = feedback_of(part.spec, kind);
  if (kind == RoundKind::kAllGather) part.inside.reset();
  if (part.inside) part.inside->feedback = feedback_of(*part.inside, kind);
  part.starts.assign(t.bounds.begin(), t.bounds.end());
  if (part.starts.empty()) part.starts = equal_bounds(t.n, t.row, defaults.world);
  return part;
}

}  // namespace

Status check_kind(const Plan& plan) {
  if (plan.kind == RoundKind::kAllReduce) return {};
  for (const Part& p : plan.parts)
    for (const Spec* spec : {&p.spec, p.inside ? &*p.inside : &p.spec}) {
      const Codec& codec = *spec->codec;
      if (codec.phases.size() == 1 && codec.memory == nullptr) continue;
      return {Code::kUnsupported,
              fmt::format("{}: codec {} {} and needs all ranks in every exchange: give the tensor another "
                          "codec, such as eden, by a rule of choices=",
                          name(plan.kind), codec.name,
                          codec.phases.size() > 1 ? fmt::format("has {} phases", codec.phases.size())
                                                  : std::string("keeps a state of earlier rounds"))};
    }
  return {};
}

// The parts cover the tensors in plan order, without gaps. A tensor outside of a group gets parts of its own.
// Consecutive tensors of a group share a part until it has part_values values. The strategy of a shared part depends
// on its final size, so the hosts are resolved at the end.
Plan make_plan(std::span<const PlanTensor> bucket, const Choices& choices, RoundKind kind) {
  std::vector<Chosen> chosen;
  for (const PlanTensor& t : bucket)
    chosen.push_back({&t, &choices.choice(t.key, t.n), kind == RoundKind::kAllReduce});
  Plan plan{.kind = kind, .order = order_of(chosen), .parts = {}};
  std::size_t at = 0;
  const Choice* open = nullptr;  // the choice of the last part, if it is shared by a group
  std::vector<std::pair<std::size_t, const Choice*>> groups;
  for (const std::size_t t : plan.order) {
    const Choice& c = *chosen[t].choice;
    const std::size_t n = bucket[t].n;
    if (n == 0) continue;
    if (kind != RoundKind::kAllReduce) {
      plan.parts.push_back(sharded_part(at, bucket[t], c, choices.defaults(), kind));
    } else if (!chosen[t].grouped()) {
      add_alone(plan, at, bucket[t], c, choices);
      open = nullptr;
    } else {
      const bool fits = open != nullptr && open->group == c.group && plan.parts.back().n + n <= c.part_values;
      if (!fits) {
        plan.parts.push_back({at, 0, c.spec, nullptr, c.why, c.scheduled, c.priority});
        groups.emplace_back(plan.parts.size() - 1, &c);
      }
      Part& part = plan.parts.back();
      part.n += n;
      part.strategy = &c.strategy_of(part.n);
      open = &c;
    }
    at += n;
  }
  for (const auto& [part, choice] : groups)
    resolve_hosts(plan.parts[part], *choice, plan.parts[part].n, choices.defaults());
  return plan;
}

std::uint64_t Plan::hash(int world, const Hosts& hosts, int servers) const {
  std::uint64_t h = mix(mix(0, kFrameVersion), static_cast<std::uint64_t>(world));
  if (servers > 0) h = mix(h, static_cast<std::uint64_t>(servers));
  if (kind != RoundKind::kAllReduce) h = mix(h, name(kind));
  for (const std::size_t t : order) h = mix(h, t);
  for (const Part& p : parts) {
    h = mix(mix(mix(mix(mix(h, p.first), p.n), to_string(p.spec)), p.strategy->name), p.scheduled ? 1U : 0U);
    if (p.priority != 0) h = mix(h, static_cast<std::uint64_t>(p.priority));
    if (p.inside) h = mix(mix(h, to_string(*p.inside)), hosts.text(world));
    for (const std::size_t start : p.starts) h = mix(h, start);
  }
  return h;
}

std::string to_string(const Plan& plan) {
  std::string out;
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const Part& p = plan.parts[i];
    const bool reduces = plan.kind == RoundKind::kAllReduce;
    fmt::format_to(std::back_inserter(out), "part {}: {} values from {}, {}{} by {}{} ({})\n", i, p.n,
                   p.first, reduces ? "" : fmt::format("{} of ", name(plan.kind)), to_string(p.spec),
                   p.strategy->name, p.inside ? fmt::format(", {} inside", to_string(*p.inside)) : "", p.why);
  }
  return out;
}

}  // namespace tithe
