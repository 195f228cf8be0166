// SPDX-License-Identifier: Apache-2.0
// Compiles the program of each simulated rank for a part, matches sends with receives, and prices the steps.
#include "advisor/sim/step_timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/program/laws.h"
#include "engine/program/window.h"

namespace tithe::sim {

using engine::Step;
using engine::StepKind;

namespace {

constexpr std::size_t kMaxNodes = 20'000'000;  // some hundred bytes each, and as many when compiled

Status too_many(const Strategy& strategy, int world) {
  return {Code::kInvalid,
          fmt::format("strategy {} needs more than {} steps for a part on {} different ranks: use fewer "
                      "ranks (--ranks), or a strategy with the same steps on all ranks (--strategy server)",
                      strategy.name, kMaxNodes, world)};
}

}  // namespace

// Estimates the total number of nodes from three ranks before all are drawn. The minimum counts, since a serving rank
// has far more steps than the others.
Status TimelineBuilder::foresee(const Strategy& strategy) const {
  const int simulated = classes_.simulated();
  std::size_t least = kMaxNodes + 1;
  for (const Rank r : {simulated - 1, simulated / 2, 0}) {
    least = std::min(least, strategy.draw(place(r)).nodes().size());
    if (least * static_cast<std::size_t>(simulated) <= kMaxNodes) return {};
  }
  return too_many(strategy, cluster_.world());
}

Status TimelineBuilder::draw(const Strategy& strategy) {
  if (drawn_.contains(&strategy)) return {};
  TITHE_TRY(foresee(strategy));
  StrategyGraphs drawn;
  std::size_t count = 0;
  for (Rank r = 0; r < classes_.simulated(); ++r) {
    const auto nodes = drawn.graphs.emplace_back(strategy.draw(place(r))).nodes();
    count += nodes.size();
    if (count > kMaxNodes) return too_many(strategy, cluster_.world());
    drawn.any_merge = drawn.any_merge || std::any_of(nodes.begin(), nodes.end(), [](const Node& n) {
                        return n.op == Op::kMerge && n.stage == Stage::kBetween;
                      });
  }
  nodes_ += count;
  drawn.cost = strategy.cost(place(0));
  drawn_.emplace(&strategy, std::move(drawn));
  return {};
}

std::vector<int> TimelineBuilder::begins_after(const Plan& plan, bool copies) {
  std::vector<std::size_t> sizes;
  for (const Part& p : plan.parts)
    sizes.push_back(engine::bytes_under_way(p, drawn(*p.strategy).cost) + (copies ? sizeof(float) * p.n : 0));
  return engine::begins_after(sizes, engine::min_window(place(0)));
}

Result<std::shared_ptr<const StepTimeline>> TimelineBuilder::of(const Part& part, bool copies) {
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", to_string(part.spec), part.inside ? to_string(*part.inside) : "",
                  name(part.strategy->kind), part.strategy->name, part.n, part.priority, copies,
                  fmt::join(part.starts, ","));
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const StrategyGraphs& drawn = this->drawn(*part.strategy);
  Plan alone;
  alone.parts.push_back(part);
  alone.parts[0].first = 0;
  const auto timeline = std::make_shared<StepTimeline>();
  for (Rank r = 0; r < classes_.simulated(); ++r) {
    const auto rank = static_cast<std::size_t>(r);
    timeline->roles.push_back({engine::compile_unverified(alone, place(r), drawn.graphs[rank],
                                                          drawn.any_merge, templates_[rank], copies),
                               {},
                               {}});
  }
  match(*timeline, *part.strategy);
  const std::vector<std::vector<int>> joined = payloads(*timeline);
  for (std::size_t r = 0; r < timeline->roles.size(); ++r) {
    Result<Priced> price = sim::price(costs_, alone, timeline->roles[r].program, copies, joined[r]);
    if (!price.ok()) return price.status();
    timeline->roles[r].price = std::move(*price);
  }
  for (const Role& role : timeline->roles) nodes_ += role.program.steps.size();
  return known_.emplace(key, timeline).first->second;
}

// Matches the k-th send from one rank to another with the k-th receive there.
void TimelineBuilder::match(StepTimeline& timeline, const Strategy& strategy) const {
  struct End {
    int from;  // simulated rank
    Rank to;
    MatchedStep at;
    auto path() const { return std::tie(from, to); }
  };
  std::vector<End> sends, receives;
  for (int r = 0; r < classes_.simulated(); ++r) {
    Role& role = timeline.roles[static_cast<std::size_t>(r)];
    role.match.resize(role.program.steps.size());
    for (std::size_t s = 0; s < role.program.steps.size(); ++s) {
      const Step& step = role.program.steps[s];
      const MatchedStep here{r, static_cast<int>(s)};
      if (step.kind == StepKind::kSend) sends.push_back({r, step.peer, here});
      if (step.kind != StepKind::kRecv) continue;
      const Classes::MessagePath path = classes_.path_of(step.peer, r, strategy);
      receives.push_back({path.rank, path.to, here});
    }
  }
  const auto before = [](const End& a, const End& b) { return a.path() < b.path(); };
  std::stable_sort(sends.begin(), sends.end(), before);
  std::stable_sort(receives.begin(), receives.end(), before);
  TITHE_ASSERT(sends.size() == receives.size());
  for (std::size_t k = 0; k < sends.size(); ++k) {
    TITHE_ASSERT(sends[k].path() == receives[k].path());
    const auto match = [&](MatchedStep at) -> MatchedStep& {
      return timeline.roles[static_cast<std::size_t>(at.rank)].match[static_cast<std::size_t>(at.step)];
    };
    match(sends[k].at) = receives[k].at;
    match(receives[k].at) = sends[k].at;
  }
}

// Kahn's algorithm: a step is ready when all steps before it have been visited.
void for_each_in_order(const StepTimeline& timeline, const std::function<void(MatchedStep)>& visit) {
  std::vector<std::vector<int>> waits;
  std::vector<MatchedStep> ready;
  for (std::size_t r = 0; r < timeline.roles.size(); ++r) {
    const engine::Program& p = timeline.roles[r].program;
    waits.push_back(p.waits);
    for (std::size_t s = 0; s < p.steps.size(); ++s) {
      if (p.steps[s].kind == StepKind::kRecv) ++waits[r][s];  // for the matching send
      if (waits[r][s] == 0) ready.push_back({static_cast<int>(r), static_cast<int>(s)});
    }
  }
  const auto done = [&](MatchedStep at) {
    if (--waits[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.step)] == 0)
      ready.push_back(at);
  };
  while (!ready.empty()) {
    const MatchedStep at = ready.back();
    ready.pop_back();
    visit(at);
    const Role& role = timeline.roles[static_cast<std::size_t>(at.rank)];
    const Step& step = role.program.steps[static_cast<std::size_t>(at.step)];
    if (step.kind == StepKind::kSend) done(role.match[static_cast<std::size_t>(at.step)]);
    for (std::uint32_t k = 0; k < step.next.count; ++k)
      done({at.rank, role.program.indices[step.next.first + k]});
  }
}

// The number of ranks' payloads in each frame, by simulated rank and slot, for laws that join payloads.
std::vector<std::vector<int>> TimelineBuilder::payloads(const StepTimeline& timeline) const {
  std::vector<std::vector<int>> out(timeline.roles.size());
  const std::vector<Law>& laws = timeline.roles[0].program.parts[0].laws;
  if (std::none_of(laws.begin(), laws.end(), [](Law law) { return engine::rule_of(law).joins; })) return out;
  for (std::size_t r = 0; r < out.size(); ++r) out[r].assign(timeline.roles[r].program.slots.size(), 1);
  for_each_in_order(timeline, [&](MatchedStep at) {
    const auto r = static_cast<std::size_t>(at.rank);
    const Role& role = timeline.roles[r];
    const Step& step = role.program.steps[static_cast<std::size_t>(at.step)];
    const auto slot = static_cast<std::size_t>(step.slot);  // of a step that encodes or sends
    if (step.kind == StepKind::kEncode)
      for (std::uint32_t k = 0; k < step.frames.count; ++k)
        out[r][slot] += out[r][static_cast<std::size_t>(role.program.indices[step.frames.first + k])];
    if (step.kind != StepKind::kSend) return;
    const MatchedStep there = role.match[static_cast<std::size_t>(at.step)];
    const auto to = static_cast<std::size_t>(there.rank);
    const Step& recv = timeline.roles[to].program.steps[static_cast<std::size_t>(there.step)];
    out[to][static_cast<std::size_t>(recv.slot)] = out[r][slot];
  });
  return out;
}

TimelineCache::Entry& TimelineCache::of(const Cluster& cluster, const Costs& costs,
                                        std::set<const Strategy*> strategies, int servers, bool all) {
  constexpr std::size_t kMaxKept = 400'000;  // nodes, of some hundred bytes each
  std::size_t nodes = 0;
  for (const auto& [of, entry] : entries_) nodes += entry->timelines.nodes();
  if (nodes > kMaxKept) entries_.clear();
  const std::vector<const Strategy*> list(strategies.begin(), strategies.end());
  std::unique_ptr<Entry>& entry = entries_[{std::move(strategies), servers, all}];
  if (!entry)
    entry = std::make_unique<Entry>(cluster, costs, all ? Classes::none(cluster) : Classes::of(cluster, list),
                                    servers);
  return *entry;
}

}  // namespace tithe::sim
