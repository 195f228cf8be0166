// SPDX-License-Identifier: Apache-2.0
// The options of a query, estimates of assignments, and the conversion of an assignment to rules.
#include "advisor/planner/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "advisor/sim/classes.h"
#include "engine/program/laws.h"
#include "plan/strategy_options.h"
#include "tithe/seam/catalogue.h"

namespace tithe::planner {
namespace {

constexpr int kMaxSeats = 64;         // simulated ranks; with more, a search takes minutes
constexpr double kMaxMessages = 1e5;  // messages of all simulated ranks in one setting

struct CandidateStrategy {
  const Strategy* strategy;
  bool searched, symmetric;
};

// The strategies for a query. Two-level strategies count only if hosts have several ranks. Strategies under which too
// many ranks must be simulated are not searched. `server` is always included.
std::vector<CandidateStrategy> candidate_strategies(const PlanQuery& query) {
  std::vector<CandidateStrategy> out;
  const sim::Cluster& cluster = query.cluster;
  const auto hosts = static_cast<int>(cluster.hosts().size());
  double parts = 0;
  for (const JobTensor& t : query.job.tensors)
    parts += std::ceil(static_cast<double>(t.n) / static_cast<double>(kDefaultPartValues));
  for (const char* name :
       {"server", "ring", "gather", "hosts", "hosts_ring", "hosts_gather", "tree", "aggregator"}) {
    const Strategy& s = *find_strategy(name);
    if (s.between != nullptr && (hosts == cluster.world() || hosts == 1)) continue;
    const int simulated = sim::Classes::of(cluster, {{&s}}).simulated();
    const bool plain = s.name != "tree" && s.name != "aggregator";
    const bool searched = out.empty() || (plain && simulated <= kMaxSeats);
    const Place place{.world = cluster.world(), .hosts = &cluster.shared()};
    // With an aggregator, one rank sends to all others, and they send to it alone.
    const double frames = s.name == "aggregator" ? 2 : s.cost(place).frames_sent;
    if (searched || simulated * parts * frames <= kMaxMessages) out.push_back({&s, searched, simulated == 1});
  }
  return out;
}

std::string key_rule(std::string_view key) {
  const bool special = key.starts_with('=') || key.find_first_of("*?") != std::string_view::npos;
  return special ? fmt::format("={}", key) : std::string(key);
}

}  // namespace

Result<PlanSearch> PlanSearch::make(const PlanQuery& query) {
  TITHE_TRY(check(query));
  PlanSearch search(query);
  std::vector<Spec> all = default_codecs();
  if (!query.costs.of(all.back()).ok()) all.pop_back();  // an older profile does not have zip
  for (const Allowance& a : query.allowed)
    if (std::find(all.begin(), all.end(), a.codec) == all.end()) all.push_back(a.codec);
  const std::vector<CandidateStrategy> candidates = candidate_strategies(query);
  const Place place{.world = query.cluster.world(), .hosts = &query.cluster.shared()};
  for (const Spec& spec : all) {
    const std::size_t before = search.options_.size();
    const auto serves = [&](const Strategy& strategy) {
      return engine::choose_laws(spec, strategy).ok() &&
             (always_allowed(spec) || plan::is_accurate(spec, strategy, place));
    };
    for (const CandidateStrategy& candidate : candidates)
      if (serves(*candidate.strategy))
        search.options_.push_back(
            {spec, candidate.strategy, !always_allowed(spec), candidate.searched, candidate.symmetric});
    if (search.options_.size() == before)
      return Status(Code::kInvalid, fmt::format("allowed '{}': no planned strategy has a law of this codec",
                                                tithe::to_string(spec)));
  }
  for (const JobTensor& t : query.job.tensors) {
    const std::vector<Spec> list = codecs_for(query.allowed, t.key);
    std::vector<char> may;
    for (const Option& o : search.options_)
      may.push_back(std::find(list.begin(), list.end(), o.spec) != list.end());
    search.allowed_.push_back(std::move(may));
  }
  // Checks the costs of every option now, so that no estimate fails during a search.
  for (const Option& o : search.options_)
    if (const auto known = search.costs_->of(o, 1, 1); !known.ok()) return known.status();
  return search;
}

int PlanSearch::find(const Spec& spec, std::string_view strategy) const {
  int first = -1;
  for (std::size_t o = 0; o < options_.size(); ++o) {
    if (!(options_[o].spec == spec)) continue;
    if (options_[o].strategy->name == strategy) return static_cast<int>(o);
    if (first < 0) first = static_cast<int>(o);
  }
  return first;
}

Spec PlanSearch::base(std::size_t tensor) const {
  Spec best = half_spec();
  const int o = find(best, "server");
  return o >= 0 && allowed(tensor, o) ? best : uncompressed_spec();
}

const Spec* PlanSearch::lossy(std::size_t tensor) const {
  for (std::size_t o = 0; o < options_.size(); ++o)
    if (options_[o].lossy && allowed_[tensor][o]) return &options_[o].spec;
  return nullptr;
}

int PlanSearch::base_option(std::size_t tensor, int like) const {
  return find(base(tensor), option(like).strategy->name);
}

Decision PlanSearch::grouped(std::size_t tensor) const {
  return {find(base(tensor), "server"), kDefaultPartValues, true};
}

Assignment PlanSearch::uniform(int option, std::size_t part_values, std::size_t small) const {
  Assignment out;
  for (std::size_t t = 0; t < query_->job.tensors.size(); ++t) {
    if (query_->job.tensors[t].n < small)
      out.push_back(grouped(t));
    else
      out.push_back({allowed(t, option) ? option : base_option(t, option), part_values, false});
  }
  return out;
}

Assignment PlanSearch::best_uniform(const Spec& spec) {
  Assignment best;
  Seconds least = sim::kNever;
  for (std::size_t o = 0; o < options_.size(); ++o) {
    if (!options_[o].searched || !(options_[o].spec == spec)) continue;
    Assignment some = uniform(static_cast<int>(o), kDefaultPartValues);
    const Seconds step = judge(some);
    if (!best.empty() && step >= least) continue;
    least = step;
    best = std::move(some);
  }
  return best;
}

const Choices& PlanSearch::session(int option) {
  const auto known = sessions_.find(option);
  if (known != sessions_.end()) return known->second;
  const Option& o = options_[static_cast<std::size_t>(option)];
  const sim::Cluster& cluster = query_->cluster;
  const Result<Link> link = parse_link(cluster.link_text(query_->costs));
  TITHE_ASSERT(link.ok());
  return sessions_
      .emplace(option, Choices::of({.spec = o.spec,
                                    .strategy = o.strategy,
                                    .world = cluster.world(),
                                    .hosts = cluster.shared(),
                                    .link = *link}))
      .first->second;
}

std::size_t PlanSearch::pieces(const Decision& d, std::size_t n) {
  if (d.part_values > 0) return (n + d.part_values - 1) / d.part_values;
  const Choices& choices = session(d.option);
  return choices.parts(choices.all().back(), n);
}

Assignment PlanSearch::setting(int option, bool rounded_inside) {
  const Decision small{find(uncompressed_spec(), "server"), kDefaultPartValues, true};
  const std::size_t least =
      rounded_inside ? kDefaultMinValues : session(option).min_values();  // a rule sets it
  Assignment out;
  for (const JobTensor& t : query_->job.tensors)
    out.push_back(t.n < least ? small : Decision{option, 0, false, rounded_inside, false});
  return out;
}

Assignment PlanSearch::with_base_codecs(int option) {
  return uniform(option, 0, session(option).min_values());
}

bool PlanSearch::like_settings(double share) const {
  double all = 0, small = 0;
  for (std::size_t t = 0; t < query_->job.tensors.size(); ++t) {
    for (std::size_t o = 0; o < options_.size(); ++o)
      if (!allowed_[t][o]) return false;
    const auto n = static_cast<double>(query_->job.tensors[t].n);
    all += n;
    small += n < static_cast<double>(kDefaultMinValues) ? n : 0;
  }
  return small <= share * all;
}

Seconds PlanSearch::min_step(int option, bool rounded_inside) {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  constexpr double kRounding = 0.99;  // a small part costs up to 1 % less in proportion than a large one
  Seconds ready = query_->job.compute;
  double values = 0;
  for (const JobTensor& t : query_->job.tensors) {
    ready = std::min(ready, t.ready);
    if (t.n >= kDefaultMinValues) values += static_cast<double>(t.n);
  }
  const PartCost* part = work(option, kPart, kPart, rounded_inside);
  const Seconds link = part == nullptr ? 0 : part->link;
  return std::max(query_->job.compute, ready + kRounding * link * values / static_cast<double>(kPart));
}

const PartCost* PlanSearch::work(int o, std::size_t n, std::size_t row, bool rounded_inside) {
  const auto [at, fresh] = cost_by_option_.try_emplace({o, n, rounded_inside});
  if (fresh) {
    const Result<const PartCost*> found = costs_->of(option(o), n, row, rounded_inside);
    if (found.ok()) at->second = *found;  // make() has checked that all its costs are known
  }
  return at->second;
}

// Adds the parts of a bucket, cut as in tithe/seam/plan.h.
void PlanSearch::add_batches(const Assignment& assignment, std::size_t first, std::size_t end) {
  const Seconds ready = query_->job.tensors[end - 1].ready;
  std::map<int, std::size_t> groups;
  for (std::size_t t = first; t < end; ++t) {
    const JobTensor& tensor = query_->job.tensors[t];
    const Decision& d = assignment[t];
    if (d.grouped) {
      groups[d.option] += tensor.n;
      continue;
    }
    if (tensor.n == 0) continue;
    const std::size_t count = pieces(d, tensor.n), each = (tensor.n + count - 1) / count;
    batches_.push_back(
        {ready, 0, static_cast<int>(count), work(d.option, each, tensor.row, d.rounded_inside)});
  }
  for (const auto& [o, n] : groups)
    if (n > 0) batches_.push_back({ready, 0, 1, work(o, n, n)});
}

// Lower bound: each resource must handle all its batches, none before it is ready. Batches are ordered by bucket, and
// buckets become ready in sequence, so the bound is a suffix sum.
Seconds PlanSearch::least() const {
  const double lanes = query_->lanes();
  CostStage behind;
  Seconds most = 0;
  for (std::size_t l = batches_.size(); l-- > 0;) {
    const CostStage& all = batches_[l].work->all;
    behind.compute += batches_[l].count * all.compute / lanes;
    behind.up += batches_[l].count * all.up;
    behind.down += batches_[l].count * all.down;
    behind.inside += batches_[l].count * all.inside;
    most =
        std::max(most, batches_[l].ready + std::max({behind.compute, behind.up, behind.down, behind.inside}));
  }
  return most;
}

Seconds PlanSearch::judge(const Assignment& assignment, Seconds limit) {
  ++judged;
  batches_.clear();
  std::size_t first = 0;
  for (const std::size_t end : query_->job.bucket_ends) {
    add_batches(assignment, first, end);
    first = end;
  }
  constexpr double kRounding = 1 + 1e-9;  // sums are taken in another order
  if (const Seconds least = this->least(); least > limit * kRounding) return least;
  times_ = schedule_.run(batches_, query_->lanes());
  return std::max(times_.end, query_->job.compute);
}

// Writes the assignment as rules. For each size, the most frequent decision becomes the rule of that size; tensors that
// deviate get rules by key, which come first. Neighbouring sizes with one decision share a rule.
std::vector<Rule> PlanSearch::rules(const Assignment& assignment) {
  const std::vector<JobTensor>& tensors = query_->job.tensors;
  std::map<std::size_t, std::map<Decision, std::size_t>> by_size;  // number of tensors
  for (std::size_t t = 0; t < tensors.size(); ++t) ++by_size[tensors[t].n][assignment[t]];
  const auto rule_of = [&](const Decision& d, std::size_t part_values, const std::string& reason) {
    Rule rule;
    rule.codec = option(d.option).spec;
    rule.strategy = d.grouped ? "auto" : std::string(option(d.option).strategy->name);
    rule.part_values = part_values;
    if (d.rounded_inside && option(d.option).strategy->between != nullptr) rule.inside = half_spec();
    rule.priority = d.early ? 1 : 0;
    if (d.grouped) rule.group = fmt::format("small {}", tithe::to_string(*rule.codec));
    rule.why = reason;
    return rule;
  };
  // The largest and smallest part_values that give the decided number of parts.
  struct Sizes {
    std::size_t from = 1, to = kMaxValues;
  };
  const auto part_sizes = [&](const Decision& d, std::size_t n) -> Sizes {
    if (d.part_values > 0 || d.grouped || n == 0) return {d.part_values, d.part_values};
    const std::size_t count = pieces(d, n);
    return {(n + count - 1) / count, count == 1 ? kMaxValues : (n - 1) / (count - 1)};
  };
  std::map<std::size_t, Decision> most_frequent;  // by size: the most frequent decision
  for (const auto& [n, decisions] : by_size)
    most_frequent[n] = std::max_element(decisions.begin(), decisions.end(), [](const auto& a, const auto& b) {
                         return a.second < b.second;
                       })->first;
  std::vector<Rule> rules;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (assignment[t] != most_frequent[tensors[t].n]) {
      const std::size_t part = part_sizes(assignment[t], tensors[t].n).from;
      rules.push_back(rule_of(assignment[t], part, {}));
      rules.back().match = key_rule(tensors[t].key);
    }
  // Neighbouring sizes share a rule if the decision is the same and one part size suits all of them. The rule reaches
  // up to the next size.
  for (auto at = most_frequent.begin(); at != most_frequent.end();) {
    auto end = at;
    Sizes all;
    for (; end != most_frequent.end() && end->second == at->second; ++end) {
      const Sizes own = part_sizes(end->second, end->first);
      const Sizes both{std::max(all.from, own.from), std::min(all.to, own.to)};
      if (both.from > both.to) break;
      all = both;
    }
    rules.push_back(rule_of(
        at->second, all.from,
        fmt::format("planned for {}{} values", at->first,
                    std::next(at) == end ? std::string() : fmt::format(" to {}", std::prev(end)->first))));
    if (at != most_frequent.begin()) rules.back().least = at->first;
    if (end != most_frequent.end()) rules.back().most = end->first - 1;
    at = end;
  }
  return rules;
}

}  // namespace tithe::planner
