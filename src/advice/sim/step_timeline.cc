// SPDX-License-Identifier: Apache-2.0
#include "advice/sim/step_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/program/laws.h"
#include "engine/program/window.h"

namespace tithe::sim {

using engine::Step;
using engine::StepKind;

namespace {

constexpr std::size_t kMostNodes = 20'000'000;  // some hundred bytes each, and as much again when compiled

Status too_many(const Strategy& strategy, int world) {
  return {Code::kInvalid,
          fmt::format("by {}, more than {} steps for a part on {} ranks that are not alike: ask for fewer "
                      "ranks (--ranks), or a strategy by which ranks are alike (--strategy server)",
                      strategy.name, kMostNodes, world)};
}

}  // namespace

// Three ranks tell at once what all of them would come to. The least counts: one that serves the others has far more
// steps than they have.
Status Scripts::foresee(const Strategy& strategy) const {
  const int seats = classes_.seats();
  std::size_t least = kMostNodes + 1;
  for (const Rank r : {seats - 1, seats / 2, 0}) {
    least = std::min(least, strategy.draw(place(r)).nodes().size());
    if (least * static_cast<std::size_t>(seats) <= kMostNodes) return {};
  }
  return too_many(strategy, cluster_.world());
}

Status Scripts::draw(const Strategy& strategy) {
  if (drawn_.contains(&strategy)) return {};
  TITHE_TRY(foresee(strategy));
  Drawn drawn;
  std::size_t count = 0;
  for (Rank r = 0; r < classes_.seats(); ++r) {
    const auto nodes = drawn.graphs.emplace_back(strategy.draw(place(r))).nodes();
    count += nodes.size();
    if (count > kMostNodes) return too_many(strategy, cluster_.world());
    drawn.any_merge = drawn.any_merge || std::any_of(nodes.begin(), nodes.end(), [](const Node& n) {
                        return n.op == Op::kMerge && n.stage == Stage::kBetween;
                      });
  }
  nodes_ += count;
  drawn.cost = strategy.cost(place(0));
  drawn_.emplace(&strategy, std::move(drawn));
  return {};
}

std::vector<int> Scripts::begins_after(const Plan& plan, bool copies) {
  std::vector<std::size_t> sizes;
  for (const Part& p : plan.parts)
    sizes.push_back(engine::bytes_under_way(p, drawn(*p.strategy).cost) + (copies ? sizeof(float) * p.n : 0));
  return engine::begins_after(sizes, engine::least_window(place(0)));
}

Result<std::shared_ptr<const Script>> Scripts::of(const Part& part, bool copies) {
  const std::string key =
      fmt::format("{} {} {} {} {} {}", to_string(part.spec), part.inside ? to_string(*part.inside) : "",
                  part.strategy->name, part.n, part.priority, copies);
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const Drawn& drawn = this->drawn(*part.strategy);
  Plan alone;
  alone.parts.push_back(part);
  alone.parts[0].first = 0;
  const auto script = std::make_shared<Script>();
  for (Rank r = 0; r < classes_.seats(); ++r) {
    const auto seat = static_cast<std::size_t>(r);
    script->roles.push_back({engine::compile_unverified(alone, place(r), drawn.graphs[seat], drawn.any_merge,
                                                        templates_[seat], copies),
                             {},
                             {}});
  }
  match(*script, *part.strategy);
  const std::vector<std::vector<int>> joined = payloads(*script);
  for (std::size_t r = 0; r < script->roles.size(); ++r) {
    Result<Priced> price = sim::price(costs_, alone, script->roles[r].program, copies, joined[r]);
    if (!price.ok()) return price.status();
    script->roles[r].price = std::move(*price);
  }
  for (const Role& role : script->roles) nodes_ += role.program.steps.size();
  return known_.emplace(key, script).first->second;
}

// The k-th send from one rank to another meets the k-th receive there.
void Scripts::match(Script& script, const Strategy& strategy) const {
  struct End {
    int from;  // seat
    Rank to;
    Met at;
    auto way() const { return std::tie(from, to); }
  };
  std::vector<End> sends, receives;
  for (int r = 0; r < classes_.seats(); ++r) {
    Role& role = script.roles[static_cast<std::size_t>(r)];
    role.met.resize(role.program.steps.size());
    for (std::size_t s = 0; s < role.program.steps.size(); ++s) {
      const Step& step = role.program.steps[s];
      const Met here{r, static_cast<int>(s)};
      if (step.kind == StepKind::kSend) sends.push_back({r, step.peer, here});
      if (step.kind != StepKind::kRecv) continue;
      const Classes::Way way = classes_.like(step.peer, r, strategy);
      receives.push_back({way.seat, way.to, here});
    }
  }
  const auto before = [](const End& a, const End& b) { return a.way() < b.way(); };
  std::stable_sort(sends.begin(), sends.end(), before);
  std::stable_sort(receives.begin(), receives.end(), before);
  TITHE_ASSERT(sends.size() == receives.size());
  for (std::size_t k = 0; k < sends.size(); ++k) {
    TITHE_ASSERT(sends[k].way() == receives[k].way());
    const auto met = [&](Met at) -> Met& {
      return script.roles[static_cast<std::size_t>(at.seat)].met[static_cast<std::size_t>(at.step)];
    };
    met(sends[k].at) = receives[k].at;
    met(receives[k].at) = sends[k].at;
  }
}

// By seat and slot: how many ranks' payloads the frame there holds, where laws join them. Steps are followed in an
// order in which they can run.
std::vector<std::vector<int>> Scripts::payloads(const Script& script) const {
  std::vector<std::vector<int>> out(script.roles.size());
  const std::vector<Law>& laws = script.roles[0].program.parts[0].laws;
  if (std::none_of(laws.begin(), laws.end(), [](Law law) { return engine::row_of(law).joins; })) return out;
  std::vector<std::vector<int>> waits;
  std::vector<Met> ready;
  for (std::size_t r = 0; r < script.roles.size(); ++r) {
    const engine::Program& p = script.roles[r].program;
    out[r].assign(p.slots.size(), 1);
    waits.push_back(p.waits);
    for (std::size_t s = 0; s < p.steps.size(); ++s) {
      if (p.steps[s].kind == StepKind::kRecv) ++waits[r][s];  // for what is sent
      if (waits[r][s] == 0) ready.push_back({static_cast<int>(r), static_cast<int>(s)});
    }
  }
  const auto done = [&](Met at) {
    if (--waits[static_cast<std::size_t>(at.seat)][static_cast<std::size_t>(at.step)] == 0)
      ready.push_back(at);
  };
  while (!ready.empty()) {
    const Met at = ready.back();
    ready.pop_back();
    const auto r = static_cast<std::size_t>(at.seat);
    const Role& role = script.roles[r];
    const Step& step = role.program.steps[static_cast<std::size_t>(at.step)];
    const auto list = [&](engine::Range range) {
      return std::span(role.program.indices).subspan(range.first, range.count);
    };
    if (step.kind == StepKind::kEncode)
      for (const int frame : list(step.frames))
        out[r][static_cast<std::size_t>(step.slot)] += out[r][static_cast<std::size_t>(frame)];
    if (step.kind == StepKind::kSend) {
      const Met there = role.met[static_cast<std::size_t>(at.step)];
      const auto to = static_cast<std::size_t>(there.seat);
      const Step& recv = script.roles[to].program.steps[static_cast<std::size_t>(there.step)];
      out[to][static_cast<std::size_t>(recv.slot)] = out[r][static_cast<std::size_t>(step.slot)];
      done(there);
    }
    for (const int next : list(step.next)) done({at.seat, next});
  }
  return out;
}

Library::Shelf& Library::of(const Cluster& cluster, const Costs& costs, std::set<const Strategy*> strategies,
                            int servers, bool all) {
  constexpr std::size_t kMostKept = 400'000;  // nodes, of some hundred bytes each
  std::size_t nodes = 0;
  for (const auto& [of, shelf] : shelves_) nodes += shelf->scripts.nodes();
  if (nodes > kMostKept) shelves_.clear();
  const std::vector<const Strategy*> list(strategies.begin(), strategies.end());
  std::unique_ptr<Shelf>& shelf = shelves_[{std::move(strategies), servers, all}];
  if (!shelf)
    shelf = std::make_unique<Shelf>(cluster, costs, all ? Classes::none(cluster) : Classes::of(cluster, list),
                                    servers);
  return *shelf;
}

}  // namespace tithe::sim
