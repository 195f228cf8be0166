// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include "engine/laws.h"
#include "sim/seats.h"

namespace tithe::sim {
namespace {

// Whether ranks do the same under it, counted from each: what is drawn for two ranks of two worlds says so.
bool rotates(const Strategy& strategy, int ranks_per_host) {
  using Verb = std::tuple<Op, int, int>;  // what, with whom, about which chunk: counted from this rank
  const auto verbs = [&](Rank me, int world) {
    std::vector<std::uint64_t> host;
    for (int r = 0; r < world; ++r) host.push_back(static_cast<std::uint64_t>(r / ranks_per_host));
    const tithe::Hosts hosts = tithe::Hosts::of(host);
    const Graph graph = strategy.draw({me, world, &hosts});
    const auto from_me = [&](int k) { return (k - me + world) % world; };
    std::vector<Verb> sends, others;
    for (std::size_t k = 0; k < graph.nodes().size(); ++k) {
      const Node& n = graph.nodes()[k];
      const auto chunk = [&](int node) { return graph.chunks() == 1 ? 0 : from_me(graph.chunk_of(node)); };
      if (n.op == Op::kSend)
        sends.emplace_back(n.op, from_me(n.arg), chunk(n.frames[0]));
      else
        others.emplace_back(n.op, n.op == Op::kRecv ? from_me(n.arg) : static_cast<int>(n.frames.size()),
                            chunk(static_cast<int>(k)));
    }
    std::sort(others.begin(), others.end());  // sums are in the order of ranks
    sends.insert(sends.end(), others.begin(), others.end());
    return sends;
  };
  const int few = 3 * ranks_per_host, more = 5 * ranks_per_host;
  return verbs(0, few) == verbs(1, few) && verbs(0, more) == verbs(ranks_per_host + 1, more);
}

// Whether a rank sends as much to each other one: then it plays no part which of them are on its host.
bool talks_to_all(const Strategy& strategy) {
  constexpr int kWorld = 6;
  std::vector<int> sends(kWorld);
  const Graph graph = strategy.draw({0, kWorld});
  for (const Node& n : graph.nodes())
    if (n.op == Op::kSend) ++sends[static_cast<std::size_t>(n.arg)];
  return sends.back() > 0 &&
         std::adjacent_find(sends.begin() + 1, sends.end(), std::not_equal_to<>()) == sends.end();
}

}  // namespace

// One job per bucket, as in the engine. Where one rank stands for very many, one per part: parts that are equal share a
// program, and what would not fit in memory does. No part then waits for earlier ones (engine/program.h, "Window").
Status World::build() {
  for (const Exchange& e : work_.buckets)
    for (const Part& p : e.plan.parts)
      if (const auto laws = engine::choose_laws(p.spec, *p.strategy); !laws.ok()) return laws.status();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Seat& rank = ranks_[r];
    engine::KnownMakers makers;
    std::map<std::tuple<std::string, const Strategy*, std::size_t, bool>, const Template*> known;
    const auto add = [&](const Plan& plan, bool copies, const Template*& found) -> Status {
      if (found == nullptr) {
        Template t{
            engine::compile(plan, {static_cast<Rank>(r), cluster_.world(), &cluster_.shared(), work_.servers},
                            {}, {}, &makers),
            {}};
        Result<Priced> price = sim::price(costs_, plan, t.program, copies);
        if (!price.ok()) return price.status();
        t.price = std::move(*price);
        rank.programs.push_back(std::move(t));
        found = &rank.programs.back();
      }
      rank.of_job.push_back(found);
      rank.queue.add(found->program).agreed = true;
      return {};
    };
    for (const Exchange& e : work_.buckets) {
      constexpr std::size_t kMostSteps = 4'000'000, kPerRank = 6;  // of a bucket; of a part
      if (!one_ || e.plan.parts.size() * kPerRank * static_cast<std::size_t>(cluster_.world()) < kMostSteps) {
        const Template* fresh = nullptr;
        TITHE_TRY(add(e.plan, e.copies, fresh));
      } else {
        for (const Part& part : e.plan.parts) {
          Plan alone;
          alone.parts.push_back(part);
          alone.parts[0].first = 0;
          TITHE_TRY(add(alone, e.copies, known[{to_string(part.spec), part.strategy, part.n, e.copies}]));
        }
      }
      rank.jobs_until.push_back(rank.of_job.size());
      later(e.ready, What::kBucket, static_cast<std::uint32_t>(r));
    }
    rank.lanes.resize(static_cast<std::size_t>(std::max(1, work_.lanes)));
    for (Lane& lane : rank.lanes) lane.taken.resize(kMostTaken);
  }
  return {};
}

Result<Outcome> World::run() {
  TITHE_TRY(build());
  left_ = work_.buckets.empty() ? 0 : ranks_.size();
  while (left_ > 0)
    if (!step_clock())
      return Status(Code::kInvalid,
                    "nothing more would happen, and the round is not over: a mistake of the simulator");
  // Every rank tells every other one that its work is complete, and waits for their word: the lane wakes the caller, who
  // has it tell the others; and again, when all have.
  Seconds last = work_.compute;
  for (Rank a = 0; static_cast<std::size_t>(a) < ranks_.size() && !work_.buckets.empty(); ++a) {
    const auto others = static_cast<double>(cluster_.world() - 1);
    const Seconds told =
        std::max(at(a).over + costs_.wake, work_.compute) + costs_.turn + others * costs_.post;
    last = std::max(last, told);
    std::vector<int> links;
    for (Rank b = 0; b < cluster_.world(); ++b)
      if (b != a)
        last = std::max(
            last, told + cluster_.way(a, b, links) + costs_.turn + others * costs_.complete + costs_.wake);
  }
  out_.step = last;
  out_.exposed = last - work_.compute;
  for (const Seat& r : ranks_) {
    out_.bytes.push_back(r.bytes);
    out_.computed.push_back(r.computed);
  }
  out_.ranks = ranks_.size();
  for (const Cores& c : cores_) out_.processor += c.used() / static_cast<double>(out_.ranks);
  out_.encoded = ranks_[0].encoded;
  out_.merged = ranks_[0].merged;
  const std::vector<double> links = rates(cluster_, one_);
  for (std::size_t l = 0; l < links.size(); ++l) {
    const double seconds = flows_.carried(static_cast<int>(l)) / links[l];
    if (seconds > out_.carried_most) {
      out_.carried_most = seconds;
      out_.busiest = cluster_.link_name(static_cast<int>(l));
    }
  }
  if (events_)
    for (const Template& t : ranks_[0].programs) out_.programs_of_rank_0.push_back(t.program);
  return std::move(out_);
}

// Moves to what happens next. Of what happens at the same time: timers, then flows, then cores, each in order.
bool World::step_clock() {
  Seconds next = timers_.empty() ? kNever : timers_.top().at;
  const Seconds flow = flows_.next_end();
  next = std::min(next, flow);
  std::size_t machine = cores_.size();
  for (std::size_t m = 0; m < cores_.size(); ++m)
    if (cores_[m].next_end() < next) {
      next = cores_[m].next_end();
      machine = m;
    }
  if (next == kNever) return false;
  now_ = std::max(now_, next);
  if (machine < cores_.size()) {
    const auto ended = cores_[machine].advance(next);
    const std::vector<std::uint64_t> tags(ended.begin(), ended.end());
    for (const std::uint64_t t : tags) {
      const auto number = static_cast<std::uint32_t>(t & 0xffffffffffULL);
      const std::uint64_t lane = t >> 40 & 0xfffff;
      if (static_cast<Whose>(t >> 60) == Whose::kMessage)
        part_done(number);
      else if (static_cast<Whose>(t >> 60) == Whose::kCaller)
        hand_over(static_cast<Rank>(number));
      else if (lane == 0)
        communicated(static_cast<Rank>(number));
      else
        lane_done(static_cast<Rank>(number), lane - 1);
    }
    return true;
  }
  if (flow <= next) {
    const auto ended = flows_.advance(flow);
    const std::vector<std::uint64_t> tags(ended.begin(), ended.end());
    for (const std::uint64_t t : tags) {
      const auto number = static_cast<std::uint32_t>(t);
      Pair& p = *messages_[number].pair;
      p.busy = false;
      next_message(p);
      part_done(number);
    }
    return true;
  }
  const Timer timer = timers_.top();
  timers_.pop();
  switch (timer.what) {
    case What::kBucket:
      cores_of(static_cast<Rank>(timer.number)).start(costs_.bucket, tag(Whose::kCaller, timer.number), now_);
      break;
    case What::kGrant:
      grant(timer.number);
      break;
    case What::kArrive:
      arrive(timer.number);
      break;
  }
  return true;
}

bool all_alike(const Cluster& cluster, const Workload& work) {
  if (work.servers > 0 || !cluster.uniform() || cluster.world() % cluster.hosts()[0].ranks != 0) return false;
  std::map<const Strategy*, bool> known;
  for (const Exchange& e : work.buckets)
    for (const Part& p : e.plan.parts)
      if (const auto [at, fresh] = known.try_emplace(p.strategy, true); fresh)
        at->second = rotates(*p.strategy, cluster.hosts()[0].ranks) &&
                     (cluster.hosts()[0].ranks == 1 || talks_to_all(*p.strategy));
  return std::all_of(known.begin(), known.end(), [](const auto& one) { return one.second; });
}

Result<Outcome> run(const Cluster& cluster, const Costs& costs, const Workload& work, bool events,
                    Extent extent) {
  const bool alike = extent != Extent::kAll && all_alike(cluster, work);
  if (extent == Extent::kOne && !alike)
    return Status(Code::kInvalid,
                  "ranks are not alike in this cluster, or under this strategy: simulate all of them");
  // Hosts that share a machine get its cores one after the other, so they are alike only on the average.
  const bool one_machine = cluster.machine_cores().size() == 1 && cluster.hosts().size() > 1;
  return World(cluster, costs, work, events, alike && (extent == Extent::kOne || (!events && !one_machine)))
      .run();
}

}  // namespace tithe::sim
