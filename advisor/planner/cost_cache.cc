// SPDX-License-Identifier: Apache-2.0
// Derives the cost of a part from the engine's compiled program. The steps are assigned to stages by their hop number;
// the sum over a stage is its cost.
#include "advisor/planner/cost_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "advisor/sim/step_timeline.h"

namespace tithe::planner {
namespace {

using engine::Step;
using engine::StepKind;

constexpr std::size_t kMaxStages = 12;

// The hop number of each step, by simulated rank: the longest chain of messages before it. A topological traversal, so
// a ring of many hosts costs time proportional to its steps.
std::vector<std::vector<int>> hops_of(const sim::StepTimeline& timeline) {
  std::vector<std::vector<int>> hops;
  for (const sim::Role& role : timeline.roles) hops.emplace_back(role.program.steps.size());
  const auto hop = [&](sim::MatchedStep at) -> int& {
    return hops[static_cast<std::size_t>(at.rank)][static_cast<std::size_t>(at.step)];
  };
  sim::for_each_in_order(timeline, [&](sim::MatchedStep at) {
    const sim::Role& role = timeline.roles[static_cast<std::size_t>(at.rank)];
    const Step& step = role.program.steps[static_cast<std::size_t>(at.step)];
    const auto before = [&](sim::MatchedStep next, int messages) {
      hop(next) = std::max(hop(next), hop(at) + messages);
    };
    if (step.kind == StepKind::kSend) before(role.match[static_cast<std::size_t>(at.step)], 1);
    for (std::uint32_t k = 0; k < step.next.count; ++k)
      before({at.rank, role.program.indices[step.next.first + k]}, 0);
  });
  return hops;
}

// The stages of one rank's program. `share`: the factor by which shared cores slow down computation. `senders` and
// `inside`: the ranks that share the host's link and the link inside the host.
std::vector<CostStage> stages_of(const PlanQuery& query, const sim::Role& rank, const std::vector<int>& hops,
                                 Rank me, double share, int senders, int inside) {
  const sim::Cluster& cluster = query.cluster;
  std::vector<CostStage> stages;
  const auto stage = [&](int hop) -> CostStage& {
    if (stages.size() <= static_cast<std::size_t>(hop)) stages.resize(static_cast<std::size_t>(hop) + 1);
    return stages[static_cast<std::size_t>(hop)];
  };
  std::vector<int> links;
  for (std::size_t s = 0; s < rank.program.steps.size(); ++s) {
    const Step& step = rank.program.steps[s];
    const bool sends = step.kind == StepKind::kSend;
    if (!sends && step.kind != StepKind::kRecv) {
      stage(hops[s]).compute += rank.price.seconds[s] * share;
      continue;
    }
    CostStage& at = stage(hops[s] - (sends ? 0 : 1));
    const double bytes = rank.price.bytes[static_cast<std::size_t>(step.slot)];
    at.compute += share * (sends ? query.costs.post + bytes * query.costs.send_byte
                                 : query.costs.complete + bytes * query.costs.receive_byte);
    const Seconds latency = sends ? cluster.route(me, step.peer, links) : cluster.route(step.peer, me, links);
    double rate = cluster.rates()[static_cast<std::size_t>(links[0])];
    for (const int l : links) rate = std::min(rate, cluster.rates()[static_cast<std::size_t>(l)]);
    if (cluster.host_of(me) == cluster.host_of(step.peer)) {
      at.inside += sends ? bytes / rate * inside : 0;
      continue;
    }
    (sends ? at.up : at.down) += bytes / rate * senders;
    at.delay = std::max(at.delay, latency + query.costs.wake * share);
  }
  return stages;
}

// The load of each link, in seconds at its rate. If few ranks represent all, only the links of host 0 count.
class Loads {
 public:
  Loads(const sim::Cluster& cluster, const sim::Classes& classes)
      : cluster_(cluster),
        classes_(classes),
        seconds_(cluster.rates().size()),
        sending_(cluster.hosts().size()),
        inside_(cluster.hosts().size()) {}

  void add(Rank me, const sim::Role& rank) {
    bool out = false, in = false;
    for (const Step& step : rank.program.steps) {
      if (step.kind != StepKind::kSend) continue;
      cluster_.route(me, step.peer, links_);
      (cluster_.host_of(me) != cluster_.host_of(step.peer) ? out : in) = true;
      const bool few = classes_.simulated() < classes_.world();
      if (few) links_.resize(1);
      const double times = classes_.by_rank() && few ? classes_.ranks_of_host() : 1;
      for (const int l : links_)
        seconds_[static_cast<std::size_t>(l)] += times *
                                                 rank.price.bytes[static_cast<std::size_t>(step.slot)] /
                                                 cluster_.rates()[static_cast<std::size_t>(l)];
    }
    const auto host = static_cast<std::size_t>(cluster_.host_of(me));
    if (out) ++sending_[host];
    if (in) ++inside_[host];
  }
  Seconds most() const { return *std::max_element(seconds_.begin(), seconds_.end()); }
  // The ranks of its host that send to other hosts, and to ranks of the same host.
  int senders(Rank me) const { return of(sending_, me); }
  int inside(Rank me) const { return of(inside_, me); }

 private:
  int of(const std::vector<int>& ranks, Rank me) const {
    if (classes_.by_rank() && classes_.simulated() < classes_.world()) return classes_.ranks_of_host();
    return std::max(1, ranks[static_cast<std::size_t>(cluster_.host_of(me))]);
  }

  const sim::Cluster& cluster_;
  const sim::Classes& classes_;
  std::vector<double> seconds_;  // by link
  std::vector<int> sending_;     // by host: ranks that send to another host
  std::vector<int> inside_;      // by host: ranks that send to a rank of the same host
  std::vector<int> links_;
};

void add(CostStage& to, const CostStage& more) {
  to.compute += more.compute;
  to.up += more.up;
  to.down += more.down;
  to.inside += more.inside;
  to.delay += more.delay;
}

// Merges consecutive stages until at most kMaxStages are left; the order of work is kept.
void shorten(std::vector<CostStage>& stages) {
  if (stages.size() <= kMaxStages) return;
  std::vector<CostStage> few;
  const std::size_t of = (stages.size() + kMaxStages - 1) / kMaxStages;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (s % of == 0) few.emplace_back();
    add(few.back(), stages[s]);
  }
  stages = std::move(few);
}

}  // namespace

struct CostCache::Writer {
  Writer(const PlanQuery& q, const Strategy& s)
      : strategy(&s),
        classes(sim::Classes::of(q.cluster, {&strategy, 1})),
        timelines(q.cluster, q.costs, classes, 0) {}
  const Strategy* strategy;
  sim::Classes classes;
  sim::TimelineBuilder timelines;
};
CostCache::CostCache(const PlanQuery& query) : query_(query) {}
CostCache::~CostCache() = default;

std::string to_string(const Option& option) {
  return fmt::format("{}@{}", tithe::to_string(option.spec), option.strategy->name);
}

Result<const PartCost*> CostCache::of(const Option& option, std::size_t n, std::size_t row,
                                      bool rounded_inside) {
  auto& known = known_[{tithe::to_string(option.spec), option.strategy, n, rounded_inside}];
  if (!known) {
    Result<PartCost> fresh = work_out(option, n, row, rounded_inside);
    if (!fresh.ok()) return fresh.status();
    known = std::make_unique<PartCost>(std::move(*fresh));
  }
  return known.get();
}

// Compiles a bucket with this one part, assigns its steps to stages by hop number, and takes the rank with the most
// work. Delays are the mean over ranks.
Result<PartCost> CostCache::work_out(const Option& option, std::size_t n, std::size_t row,
                                     bool rounded_inside) {
  const sim::Cluster& cluster = query_.cluster;
  Rule rule;
  rule.codec = option.spec;
  rule.strategy = std::string(option.strategy->name);
  rule.part_values = n;
  if (rounded_inside && option.strategy->between != nullptr) rule.inside = half_spec();
  PlanQuery alone{{{{"w", n, row, 0}}, {1}, 0, query_.job.lanes}, cluster, query_.costs, {}};
  const Result<sim::Workload> made = workload_of(alone, {&rule, 1});
  if (!made.ok()) return made.status();
  const Part& part = made->buckets[0].plan.parts[0];
  auto& writer = writers_[part.strategy];
  if (!writer) writer = std::make_unique<Writer>(query_, *part.strategy);
  TITHE_TRY(writer->timelines.draw(*part.strategy));
  const Result<std::shared_ptr<const sim::StepTimeline>> timeline = writer->timelines.of(part, false);
  if (!timeline.ok()) return timeline.status();
  writer->timelines.forget();  // each timeline is needed once, and thousands of sizes would fill the memory
  const std::vector<std::vector<int>> hops = hops_of(**timeline);
  // A lane uses at most one core; if ranks have fewer cores than lanes, computation takes longer in proportion.
  double share = 1;
  if (const auto cores = cluster.machine_cores(); !cores.empty()) {
    const int of_machine = cores.size() == 1 ? cluster.world() : cluster.hosts()[0].ranks;
    share = std::max(1.0, static_cast<double>(of_machine) / cores[0]);
  }
  Loads loads(cluster, writer->classes);
  for (std::size_t r = 0; r < hops.size(); ++r) loads.add(static_cast<Rank>(r), (*timeline)->roles[r]);
  PartCost most{.stages = {}, .link = loads.most()};
  Seconds longest = -1;
  // By stage, summed over ranks: in a ring, a chunk passes near and far neighbours.
  std::vector<Seconds> delays;
  for (std::size_t r = 0; r < hops.size(); ++r) {
    const auto me = static_cast<Rank>(r);
    std::vector<CostStage> stages =
        stages_of(query_, (*timeline)->roles[r], hops[r], me, share, loads.senders(me), loads.inside(me));
    Seconds all = 0;
    for (const CostStage& s : stages) all += s.compute + s.up + s.down + s.inside;
    delays.resize(std::max(delays.size(), stages.size()));
    for (std::size_t k = 0; k < stages.size(); ++k) delays[k] += stages[k].delay;
    if (all > longest) {
      longest = all;
      most.stages = std::move(stages);
    }
  }
  for (std::size_t k = 0; k < most.stages.size(); ++k)
    most.stages[k].delay = delays[k] / static_cast<double>(hops.size());
  shorten(most.stages);
  for (const CostStage& stage : most.stages) add(most.all, stage);
  return most;
}

}  // namespace tithe::planner
