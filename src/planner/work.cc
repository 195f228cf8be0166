// SPDX-License-Identifier: Apache-2.0
#include "planner/work.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/program.h"

namespace tithe::planner {
namespace {

using engine::Program;
using engine::Step;
using engine::StepKind;

constexpr int kMostRanksDrawn = 16;  // where ranks are not alike, so many are looked at
constexpr std::size_t kMostStages = 12;

struct RankProgram {
  Program program;
  sim::Priced price;
  std::vector<int> hops;                                     // by step
  std::map<Rank, std::vector<std::size_t>> sends, receives;  // by peer
};

// The k-th send of one rank to another meets the k-th receive there.
std::map<Rank, std::vector<std::size_t>> messages(const Program& p, StepKind kind) {
  std::map<Rank, std::vector<std::size_t>> by_peer;
  for (std::size_t s = 0; s < p.steps.size(); ++s)
    if (p.steps[s].kind == kind) by_peer[p.steps[s].peer].push_back(s);
  return by_peer;
}

// Hops settle from the first on: as many passes as there are hops. `one`: this rank stands for all, so what a rank so
// many places on sends to it, it sends itself to the rank so many places back.
void settle_hops(std::vector<RankProgram>& ranks, int world, bool one) {
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      RankProgram& me = ranks[r];
      const Program& p = me.program;
      for (std::size_t s = 0; s < p.steps.size(); ++s)
        for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k) {
          int& after = me.hops[static_cast<std::size_t>(p.indices[p.steps[s].next.first + k])];
          if (after < me.hops[s]) {
            after = me.hops[s];
            moved = true;
          }
        }
      for (const auto& [peer, come] : me.receives) {
        if (!one && static_cast<std::size_t>(peer) >= ranks.size()) continue;
        const RankProgram& other = ranks[one ? 0 : static_cast<std::size_t>(peer)];
        const auto found = other.sends.find(
            one ? (world - peer) % world : static_cast<Rank>(r));  // where this rank stands, seen from there
        if (found == other.sends.end()) continue;
        const std::vector<std::size_t>& sent = found->second;
        for (std::size_t k = 0; k < std::min(come.size(), sent.size()); ++k) {
          int& hop = me.hops[come[k]];
          const int now = other.hops[sent[k]] + 1;
          if (hop < now) {
            hop = now;
            moved = true;
          }
        }
      }
    }
  }
}

// `share`: a core's work takes so much longer where lanes share cores.
Work stages_of(const Question& question, const RankProgram& rank, Rank me, double share) {
  const sim::Cluster& cluster = question.cluster;
  Work work;
  const auto stage = [&](int hop) -> Stage& {
    if (work.size() <= static_cast<std::size_t>(hop)) work.resize(static_cast<std::size_t>(hop) + 1);
    return work[static_cast<std::size_t>(hop)];
  };
  std::vector<int> links;
  for (std::size_t s = 0; s < rank.program.steps.size(); ++s) {
    const Step& step = rank.program.steps[s];
    const bool sends = step.kind == StepKind::kSend;
    if (!sends && step.kind != StepKind::kRecv) {
      stage(rank.hops[s]).compute += rank.price.seconds[s] * share;
      continue;
    }
    Stage& at = stage(rank.hops[s] - (sends ? 0 : 1));
    const double bytes = rank.price.bytes[static_cast<std::size_t>(step.slot)];
    at.compute += share * (sends ? question.costs.post + bytes * question.costs.send_byte
                                 : question.costs.complete + bytes * question.costs.receive_byte);
    const Seconds latency = sends ? cluster.way(me, step.peer, links) : cluster.way(step.peer, me, links);
    double rate = cluster.rates()[static_cast<std::size_t>(links[0])];
    for (const int l : links) rate = std::min(rate, cluster.rates()[static_cast<std::size_t>(l)]);
    if (cluster.host_of(me) == cluster.host_of(step.peer)) {
      at.compute += sends ? bytes / rate : 0;
      continue;
    }
    rate /= cluster.hosts()[static_cast<std::size_t>(cluster.host_of(me))].ranks;
    (sends ? at.up : at.down) += bytes / rate;
    at.delay = std::max(at.delay, latency + question.costs.wake * share);
  }
  return work;
}

// Stages beyond the most are joined, from the first on: what is one after the other stays so.
void shorten(Work& work) {
  if (work.size() <= kMostStages) return;
  Work few;
  const std::size_t of = (work.size() + kMostStages - 1) / kMostStages;
  for (std::size_t s = 0; s < work.size(); ++s) {
    if (s % of == 0) few.emplace_back();
    Stage& to = few.back();
    to.compute += work[s].compute;
    to.up += work[s].up;
    to.down += work[s].down;
    to.delay += work[s].delay;
  }
  work = std::move(few);
}

}  // namespace

std::string to_string(const Option& option) {
  return fmt::format("{}@{}", tithe::to_string(option.spec), option.strategy->name);
}

Result<const Work*> Works::of(const Option& option, std::size_t n, std::size_t row) {
  auto& known = known_[{tithe::to_string(option.spec), option.strategy, n}];
  if (!known) {
    Result<Work> fresh = work_out(option, n, row);
    if (!fresh.ok()) return fresh.status();
    known = std::make_unique<Work>(std::move(*fresh));
  }
  return known.get();
}

Result<Work> Works::work_out(const Option& option, std::size_t n, std::size_t row) const {
  const sim::Cluster& cluster = question_.cluster;
  Rule rule;
  rule.codec = option.spec;
  rule.strategy = std::string(option.strategy->name);
  rule.part_values = n;
  Question alone{{{{"w", n, row, 0}}, {1}, 0, question_.job.lanes}, cluster, question_.costs, {}};
  const Result<sim::Workload> made = workload_of(alone, {&rule, 1});
  if (!made.ok()) return made.status();
  const Plan& plan = made->buckets[0].plan;

  // Where all ranks do the same, what one receives is what another one sends it: the same that it sends.
  const bool one = sim::all_alike(cluster, *made);
  const int world = cluster.world(), drawn = one ? 1 : std::min(world, kMostRanksDrawn);
  std::vector<RankProgram> ranks;
  engine::KnownMakers makers;
  for (Rank r = 0; r < drawn; ++r) {
    RankProgram rank;
    rank.program = engine::compile(plan, {r, world, &cluster.shared()}, {}, {}, &makers);
    Result<sim::Priced> price = sim::price(question_.costs, plan, rank.program, false);
    if (!price.ok()) return price.status();
    rank.price = std::move(*price);
    rank.hops.assign(rank.program.steps.size(), 0);
    rank.sends = messages(rank.program, StepKind::kSend);
    rank.receives = messages(rank.program, StepKind::kRecv);
    for (const auto& [peer, steps] : rank.receives)
      for (const std::size_t s : steps) rank.hops[s] = 1;
    ranks.push_back(std::move(rank));
  }
  settle_hops(ranks, world, one);
  // Cores that ranks share are shared; a lane is one core at most.
  double share = 1;
  if (const auto cores = cluster.machine_cores(); !cores.empty()) {
    const int of_machine = cores.size() == 1 ? world : cluster.hosts()[0].ranks;
    share = std::max(1.0, static_cast<double>(of_machine) / cores[0]);
  }
  Work most;
  Seconds longest = -1;
  for (Rank r = 0; r < drawn; ++r) {
    Work work = stages_of(question_, ranks[static_cast<std::size_t>(r)], r, share);
    Seconds all = 0;
    for (const Stage& s : work) all += s.compute + s.up + s.down;
    if (all > longest) {
      longest = all;
      most = std::move(work);
    }
  }
  shorten(most);
  return most;
}

}  // namespace tithe::planner
