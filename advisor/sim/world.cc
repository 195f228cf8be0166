// SPDX-License-Identifier: Apache-2.0
// The discrete-event loop: timers, flows and cores each give the time of their next event, and the clock advances to
// the earliest one.
#include "advisor/sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "advisor/sim/rank_model.h"
#include "engine/program/laws.h"

namespace tithe::sim {
namespace {

constexpr std::size_t kClockSteps = 512;  // clock steps between two checks of the forecast

// The rates of the simulated links. If one rank represents all: the links of host 0, with a rank's share of their
// rates. If the ranks of a host represent all: the links of host 0.
std::vector<double> link_rates(const Cluster& cluster, const Classes& classes) {
  std::vector<double> out(cluster.rates().begin(), cluster.rates().end());
  if (classes.simulated() == classes.world()) return out;
  constexpr std::size_t kOfHost = 3;
  out.resize(kOfHost);
  if (classes.by_rank())
    for (double& rate : out) rate /= classes.ranks_of_host();
  return out;
}

}  // namespace

World::World(const Cluster& cluster, const Costs& costs, const Workload& work, bool events,
             const Classes& classes, TimelineBuilder& timelines)
    : cluster_(cluster),
      costs_(costs),
      work_(work),
      events_(events),
      devices_(cluster.has_devices()),
      classes_(classes),
      timelines_(timelines),
      rates_(link_rates(cluster, classes_)),
      flows_(rates_, cluster.mutual()),
      ranks_(static_cast<std::size_t>(classes_.simulated())) {
  // If opposite flows are modelled, the many-to-one share is corrected for their loss, which its measurement included.
  // If one rank represents all, its flows stand for those of all hosts that send to it.
  const bool all = classes_.simulated() == classes_.world();
  const double share = std::min(1.0, costs.many_to_one / (all ? cluster.mutual() : 1));
  for (std::size_t h = 0; h < (all ? cluster.hosts().size() : 1); ++h)
    if (all || cluster.hosts().size() > 2)
      flows_.limit_many_to_one(cluster.down_link(static_cast<int>(h)), share, !all);
  if (classes_.simulated() == classes_.world()) {
    for (const int cores : cluster.machine_cores()) cores_.emplace_back(cores, 1, costs.slice, costs.move);
  } else {
    const bool shared = cluster.machine_cores().size() == 1;
    cores_.emplace_back(cluster.machine_cores()[0],
                        (shared ? classes_.world() : classes_.ranks_of_host()) / classes_.simulated());
  }
}

// Creates one job per part, where the engine has one per bucket. So equal parts share a program, and finished parts
// free their memory. Jobs begin in the order of parts, so the order of steps is the engine's.
Status World::build() {
  for (const Exchange& e : work_.buckets)
    for (const Part& p : e.plan.parts) {
      if (const auto laws = engine::choose_laws(p.spec, *p.strategy); !laws.ok()) return laws.status();
      TITHE_TRY(timelines_.draw(*p.strategy));
    }
  constexpr std::size_t kMaxSteps = 200'000'000;  // some ten bytes each
  std::size_t steps = 0;
  for (std::size_t b = 0; b < work_.buckets.size(); ++b) {
    const Exchange& e = work_.buckets[b];
    first_job_.push_back(runs_.size());
    out_.timelines_.emplace_back();
    const std::vector<int> after = timelines_.begins_after(e.plan, e.copies);
    for (std::size_t p = 0; p < e.plan.parts.size(); ++p) {
      Result<std::shared_ptr<const StepTimeline>> timeline = timelines_.of(e.plan.parts[p], e.copies);
      if (!timeline.ok()) return timeline.status();
      PartRun run{.timeline = *timeline,
                  .bucket = static_cast<int>(b),
                  .part = static_cast<int>(p),
                  .after = static_cast<std::size_t>(after[p] + 1),
                  .left = ranks_.size()};
      for (const Role& role : (*timeline)->roles) steps += role.program.steps.size();
      out_.steps = steps;
      if (steps > kMaxSteps)
        return Status(
            Code::kInvalid,
            fmt::format(
                "more than {} steps for {} ranks with different steps or very many parts: use fewer ranks "
                "(--ranks), a model of fewer values, or a strategy with the same steps on all ranks",
                kMaxSteps, cluster_.world()));
      for (std::size_t s = 0; s < ranks_.size(); ++s) {
        const engine::Program& program = (*timeline)->roles[s].program;
        run.messages.emplace_back(program.steps.size(), kNone);
        if (costs_.long_messages.protocol == SendProtocol::kPosted)
          run.posted.emplace_back(program.steps.size(), Seconds{0});
        ranks_[s].queue.add(program).agreed = true;
      }
      runs_.push_back(std::move(run));
      out_.timelines_.back().push_back(std::move(*timeline));
    }
    for (Rank r = 0; r < classes_.simulated(); ++r)
      later(e.ready, devices_ ? TimerKind::kFilled : TimerKind::kBucket, static_cast<std::uint32_t>(r));
  }
  first_job_.push_back(runs_.size());
  for (std::size_t s = 0; s < ranks_.size(); ++s) {
    RankModel& rank = ranks_[s];
    rank.begun.resize(work_.buckets.size());
    rank.ended.resize(runs_.size());
    rank.lanes.resize(static_cast<std::size_t>(cluster_.lanes(static_cast<Rank>(s), work_.lanes)));
  }
  return {};
}

// Advances the clock until all simulated ranks have finished, or until the step certainly exceeds `limit`. Then adds
// the end of the round.
Result<Outcome> World::run(Seconds limit) {
  TITHE_TRY(build());
  left_ = work_.buckets.empty() ? 0 : ranks_.size();
  Forecast forecast(cluster_, costs_, classes_, rates_, work_.lanes);
  if (limit < kNever)
    for (const PartRun& r : runs_)
      forecast.add(*r.timeline, work_.buckets[static_cast<std::size_t>(r.bucket)].ready);
  bool longer = forecast.at_start() > limit;
  const std::size_t check_interval = kClockSteps + rates_.size() + ranks_.size();
  for (std::size_t k = 1; left_ > 0 && !longer && now_ <= limit; ++k) {
    if (!step_clock())
      return Status(Code::kInvalid,
                    "the simulation has no further event before the end of the round: this is a bug of the "
                    "simulator (please report it)");
    if (limit < kNever && k % check_interval == 0) longer = too_long(forecast, limit);
  }
  if (!events_) out_.timelines_.clear();  // only events refer to them
  if (left_ > 0) {
    out_.step = out_.exposed = kNever;
    return std::move(out_);
  }
  // End of the round: every rank sends all others its done message, and waits for theirs. The
  // communication lane wakes the caller, the caller has it send the messages, and it wakes the caller again when all
  // others have answered.
  Seconds last = work_.compute;
  for (Rank a = 0; a < classes_.simulated() && !work_.buckets.empty(); ++a) {
    const auto others = static_cast<double>(cluster_.world() - 1);
    const Seconds announced =
        std::max(at(a).finished + costs_.wake, work_.compute) + costs_.turn + others * costs_.post;
    last = std::max(last, announced);
    std::vector<int> links;
    for (Rank b = 0; b < cluster_.world(); ++b)
      if (b != a)
        last = std::max(last, announced + cluster_.route(a, b, links) + costs_.turn +
                                  others * costs_.complete + costs_.wake);
  }
  out_.step = last;
  out_.exposed = last - work_.compute;
  for (const RankModel& s : ranks_) {
    out_.bytes.push_back(s.bytes);
    out_.computed.push_back(s.computed);
  }
  out_.ranks = ranks_.size();
  out_.lanes = ranks_[0].lanes.size();
  for (const Cores& c : cores_) out_.processor += c.used() / static_cast<double>(out_.ranks);
  out_.encoded = ranks_[0].encoded;
  out_.merged = ranks_[0].merged;
  for (std::size_t l = 0; l < rates_.size(); ++l) {
    const double seconds = flows_.carried(static_cast<int>(l)) / rates_[l];
    if (seconds > out_.max_link_busy) {
      out_.max_link_busy = seconds;
      out_.busiest = cluster_.link_name(static_cast<int>(l));
    }
  }
  return std::move(out_);
}

bool World::too_long(const Forecast& forecast, Seconds limit) const {
  for (std::size_t l = 0; l < rates_.size(); ++l) {
    const int link = static_cast<int>(l);
    if (forecast.of_link(link, flows_.carried(link), flows_.now()) > limit) return true;
  }
  for (std::size_t s = 0; s < ranks_.size(); ++s)
    if (forecast.of_rank(static_cast<Rank>(s), ranks_[s].computed, ranks_[s].handled, now_) > limit)
      return true;
  return false;
}

// Advances to the next event. At equal times, timers precede flows, and flows precede cores, each in order.
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
    for (const std::uint64_t t : cores_[machine].advance(next)) {
      const auto number = static_cast<std::uint32_t>(t & 0xffffffffffULL);
      const std::uint64_t lane = t >> 40 & 0xfffff;
      if (static_cast<WorkOwner>(t >> 60) == WorkOwner::kMessage)
        part_done(number);
      else if (static_cast<WorkOwner>(t >> 60) == WorkOwner::kCaller)
        hand_over(static_cast<Rank>(number));
      else if (lane == 0)
        communicated(static_cast<Rank>(number));
      else
        lane_done(static_cast<Rank>(number), lane - 1);
    }
    return true;
  }
  if (flow <= next) {
    for (const std::uint64_t t : flows_.advance(flow)) {
      const auto number = static_cast<std::uint32_t>(t);
      Pair& p = pair_of(messages_[number]);
      p.busy = false;
      next_message(p);
      part_done(number);
    }
    return true;
  }
  const Timer timer = timers_.top();
  timers_.pop();
  switch (timer.what) {
    case TimerKind::kFilled: {
      const auto rank = static_cast<Rank>(timer.number);
      later(copied(rank, at(rank).filled++), TimerKind::kBucket, timer.number);
      break;
    }
    case TimerKind::kCopiedBack:
      ++at(static_cast<Rank>(timer.number)).copied_back;
      check_done(static_cast<Rank>(timer.number));
      break;
    case TimerKind::kBucket:
      cores_of(static_cast<Rank>(timer.number))
          .start(costs_.bucket, tag(WorkOwner::kCaller, timer.number), now_);
      break;
    case TimerKind::kGrant:
      grant(timer.number);
      break;
    case TimerKind::kArrive:
      arrive(timer.number);
      break;
  }
  return true;
}

const engine::Program& Outcome::program(Rank rank, int bucket, int part) const {
  const StepTimeline& timeline =
      *timelines_[static_cast<std::size_t>(bucket)][static_cast<std::size_t>(part)];
  return timeline.roles[static_cast<std::size_t>(rank)].program;
}

Status check_ranks(const Cluster& cluster) {
  if (cluster.world() <= kMaxRanks) return {};
  return {Code::kInvalid, fmt::format("{} ranks: the simulator supports at most {}; use fewer (--ranks)",
                                      cluster.world(), kMaxRanks)};
}

Result<Outcome> run(const Cluster& cluster, const Costs& costs, const Workload& work, bool events,
                    Extent extent, Seconds limit, TimelineCache* library) {
  TITHE_TRY(check_ranks(cluster));
  constexpr int kSmall = 16;
  const bool small = cluster.world() <= kSmall;
  // Hosts that share a machine get its cores one after the other, so they are alike only on average.
  const bool one_machine = cluster.machine_cores().size() == 1 && cluster.hosts().size() > 1;
  const bool all = extent == Extent::kAll || work.servers > 0 ||
                   (extent == Extent::kNeeded && small && (events || one_machine));
  std::set<const Strategy*> strategies;
  for (const Exchange& e : work.buckets)
    for (const Part& p : e.plan.parts) strategies.insert(p.strategy);
  TimelineCache own;
  TimelineCache::Entry& entry =
      (library != nullptr ? *library : own).of(cluster, costs, std::move(strategies), work.servers, all);
  const Classes& classes = entry.classes;
  constexpr int kMaxSeats = 4096;  // the cost of shared links grows with the number of simulated ranks
  if (classes.simulated() > kMaxSeats)
    return Status(
        Code::kInvalid,
        fmt::format("{} ranks that all differ: the simulator supports at most {}; use fewer (--ranks), or "
                    "hosts and a strategy with the same steps on all ranks (docs/guide/simulate.md)",
                    classes.simulated(), kMaxSeats));
  return World(cluster, costs, work, events, classes, entry.timelines).run(limit);
}

}  // namespace tithe::sim
