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
  std::vector<int> hops;  // by step
};

// The k-th send of `from` to `to` meets the k-th receive: by number of the message between the two.
std::vector<int> messages(const Program& p, StepKind kind, Rank peer) {
  std::vector<int> steps;
  for (std::size_t s = 0; s < p.steps.size(); ++s)
    if (p.steps[s].kind == kind && p.steps[s].peer == peer) steps.push_back(static_cast<int>(s));
  return steps;
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
    RankProgram rank{engine::compile(plan, {r, world, &cluster.shared()}, {}, {}, &makers), {}, {}};
    Result<sim::Priced> price = sim::price(question_.costs, plan, rank.program, false);
    if (!price.ok()) return price.status();
    rank.price = std::move(*price);
    rank.hops.assign(rank.program.steps.size(), 0);
    ranks.push_back(std::move(rank));
  }
  // Hops settle from the first on: as many passes as there are hops.
  for (bool moved = true; moved;) {
    moved = false;
    for (int r = 0; r < drawn; ++r) {
      RankProgram& me = ranks[static_cast<std::size_t>(r)];
      const Program& p = me.program;
      for (std::size_t s = 0; s < p.steps.size(); ++s)
        for (std::uint32_t k = 0; k < p.steps[s].next.count; ++k) {
          int& after = me.hops[static_cast<std::size_t>(p.indices[p.steps[s].next.first + k])];
          // A send that follows another one to the same peer waits for its turn, not for its arrival.
          if (after < me.hops[s]) {
            after = me.hops[s];
            moved = true;
          }
        }
      for (Rank peer = 0; peer < world; ++peer) {
        const Rank from =
            one ? (world - peer) % world : r;  // whose place in the peer's program this rank has
        if (!one && peer >= drawn) continue;
        const RankProgram& other = ranks[one ? 0 : static_cast<std::size_t>(peer)];
        const std::vector<int> come = messages(p, StepKind::kRecv, peer);
        if (come.empty()) continue;
        const std::vector<int> sent = messages(other.program, StepKind::kSend, from);
        for (std::size_t k = 0; k < std::min(come.size(), sent.size()); ++k) {
          int& hop = me.hops[static_cast<std::size_t>(come[k])];
          const int now = other.hops[static_cast<std::size_t>(sent[k])] + 1;
          if (hop < now) {
            hop = now;
            moved = true;
          }
        }
      }
    }
  }
  // Cores that ranks share are shared; a lane is one core at most.
  double share = 1;
  if (const auto cores = cluster.machine_cores(); !cores.empty()) {
    const int of_machine = cores.size() == 1 ? world : cluster.hosts()[0].ranks;
    share = std::max(1.0, static_cast<double>(of_machine) / cores[0]);
  }
  Work most;
  Seconds longest = -1;
  std::vector<int> links;
  for (int r = 0; r < drawn; ++r) {
    const RankProgram& me = ranks[static_cast<std::size_t>(r)];
    Work work;
    const auto stage = [&](int hop) -> Stage& {
      if (work.size() <= static_cast<std::size_t>(hop)) work.resize(static_cast<std::size_t>(hop) + 1);
      return work[static_cast<std::size_t>(hop)];
    };
    for (std::size_t s = 0; s < me.program.steps.size(); ++s) {
      const Step& step = me.program.steps[s];
      const int hop = me.hops[s];
      if (step.kind == StepKind::kSend || step.kind == StepKind::kRecv) {
        const bool sends = step.kind == StepKind::kSend;
        const double bytes = me.price.bytes[static_cast<std::size_t>(step.slot)];
        const Seconds latency = sends ? cluster.way(r, step.peer, links) : cluster.way(step.peer, r, links);
        double rate = cluster.rates()[static_cast<std::size_t>(links[0])];
        for (const int l : links) rate = std::min(rate, cluster.rates()[static_cast<std::size_t>(l)]);
        const bool inside = cluster.host_of(r) == cluster.host_of(step.peer);
        if (!inside && rate > 0) rate /= cluster.hosts()[static_cast<std::size_t>(cluster.host_of(r))].ranks;
        Stage& at = stage(sends ? hop : hop - 1);
        const double cpu = sends ? question_.costs.post + bytes * question_.costs.send_byte
                                 : question_.costs.complete + bytes * question_.costs.receive_byte;
        at.compute += cpu * share;
        if (inside) {
          at.compute += sends ? bytes / rate : 0;
        } else {
          (sends ? at.up : at.down) += bytes / rate;
          at.delay = std::max(at.delay, latency + question_.costs.wake * share);
        }
      } else {
        stage(hop).compute += me.price.seconds[s] * share;
      }
    }
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
