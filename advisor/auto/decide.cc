// SPDX-License-Identifier: Apache-2.0
// Fits the link rate by bisection, since the simulated step falls as the rate grows, and plans for that rate.
#include "advisor/auto/decide.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tithe::automatic {
namespace {

// Bytes per second: lower end of the search for the rate; the upper one is kFastest.
constexpr double kSlowest = 1e4;
constexpr int kHalvings = 12;     // bisection steps on a logarithmic scale: accurate to 0.4 %
constexpr double kHidden = 1.03;  // a step of at most this multiple of its computation counts as hidden
constexpr double kInside = 1e10;  // bytes per second between ranks of one host: assumed
constexpr Seconds kInsideLatency = 2e-6;

// True if the rules are equal except for their reasons.
bool same(std::vector<Rule> a, std::vector<Rule> b) {
  for (std::vector<Rule>* rules : {&a, &b})
    for (Rule& r : *rules) r.why.clear();
  return a == b;
}

}  // namespace

std::string rate_text(double bytes_per_second) {
  const double bits = 8 * bytes_per_second;
  return bits >= 1e9 ? fmt::format("{:.2g} Gbit/s", bits / 1e9) : fmt::format("{:.3g} Mbit/s", bits / 1e6);
}

Result<planner::PlanQuery> query_at(const AutoQuery& auto_query, double bytes_per_second) {
  Result<sim::Cluster> cluster = cluster_at(auto_query, bytes_per_second);
  if (!cluster.ok()) return cluster.status();
  return planner::PlanQuery{auto_query.job, std::move(*cluster), auto_query.costs, auto_query.allowed};
}

Result<double> rate_of(const AutoQuery& auto_query) {
  const auto step_at = [&](double rate) -> Result<Seconds> {
    const Result<planner::PlanQuery> query = query_at(auto_query, rate);
    if (!query.ok()) return query.status();
    const Result<sim::Outcome> out = planner::simulate(*query, auto_query.in_full);
    if (!out.ok()) return out.status();
    return out->step;
  };
  const Result<Seconds> least = step_at(kFastest);
  if (!least.ok()) return least.status();
  if (auto_query.step <= kHidden * std::max(*least, auto_query.job.compute)) return 0.0;
  double slow = std::log(kSlowest), fast = std::log(kFastest);
  for (int k = 0; k < kHalvings; ++k) {
    const double middle = (slow + fast) / 2;
    const Result<Seconds> step = step_at(std::exp(middle));
    if (!step.ok()) return step.status();
    (*step > auto_query.step ? slow : fast) = middle;
  }
  return std::exp((slow + fast) / 2);
}

bool loses(std::span<const Rule> rules) {
  return std::any_of(rules.begin(), rules.end(),
                     [](const Rule& r) { return r.codec.has_value() && !always_allowed(*r.codec); });
}

Result<sim::Cluster> cluster_at(const AutoQuery& auto_query, double bytes_per_second) {
  const int hosts = auto_query.hosts.count(auto_query.world);
  const int cores = std::max(1, auto_query.cores);
  // On one machine, the exchange between its ranks is the only link.
  if (hosts == 1)
    return sim::Cluster::flat(auto_query.world, bytes_per_second, auto_query.latency, cores, true);
  if (hosts == auto_query.world)
    return sim::Cluster::flat(auto_query.world, bytes_per_second, auto_query.latency, cores);
  std::string text = "name = \"as found\"\n";
  for (const std::vector<int>& ranks : auto_query.hosts.ranks(auto_query.world))
    text += fmt::format(
        "[[hosts]]\ncount = 1\nranks = {}\ncores = {}\nrate = \"{:.6f}MB/s\"\nlatency = \"{:.3f}us\"\n"
        "inside = \"{:.6f}MB/s\"\ninside_latency = \"{:.3f}us\"\n",
        ranks.size(), cores, bytes_per_second / 1e6, auto_query.latency * 1e6, kInside / 1e6,
        kInsideLatency * 1e6);
  return sim::Cluster::parse(text, "hosts as found");
}

// Three outcomes: communication is hidden, so lossy rules give way to the first ones; the current rules stay; or a
// plan.
Result<AutoDecision> decide(const AutoQuery& auto_query) {
  const Result<planner::PlanQuery> fastest = query_at(auto_query, kFastest);
  if (!fastest.ok()) return fastest.status();
  TITHE_TRY(planner::check(*fastest));
  const Result<double> rate = rate_of(auto_query);
  if (!rate.ok()) return rate.status();
  const double step = auto_query.step * 1e3;
  const bool lossy = loses(auto_query.rules);
  if (*rate == 0) {
    AutoDecision out{
        .rules = lossy ? auto_query.first : auto_query.rules, .predicted = auto_query.step, .stays = !lossy};
    out.verdict =
        lossy ? fmt::format(
                    "step {:.1f} ms: communication is hidden, so compression stops, and steps are measured "
                    "again",
                    step)
              : fmt::format("keeps the current rules: all communication of a step of {:.1f} ms is hidden",
                            step);
    return out;
  }
  const Result<planner::PlanQuery> query = query_at(auto_query, *rate);
  if (!query.ok()) return query.status();
  Result<planner::Planned> planned = planner::plan(*query, "timeline");
  if (!planned.ok()) return planned.status();
  AutoDecision out{
      .rules = std::move(planned->rules), .predicted = planned->outcome.step, .bytes_per_second = *rate};
  const std::string links = "links of about " + rate_text(*rate);
  if (!lossy && out.predicted > planner::kWorthIt * auto_query.step) {
    out.stays = true;
    out.rules = auto_query.rules;
    out.predicted = auto_query.step;
    out.verdict = fmt::format(
        "keeps the current rules: no allowed codec makes a step of {:.1f} ms shorter ({})", step, links);
    return out;
  }
  if (same(out.rules, auto_query.rules)) {
    out.stays = true;
    out.verdict =
        fmt::format("keeps its plan: no allowed codec makes a step of {:.1f} ms shorter ({})", step, links);
    return out;
  }
  out.verdict = fmt::format(
      "a step of {:.1f} ms should take {:.1f} with this plan{}, {:.1f} with {}, the best bf16 ({})", step,
      out.predicted * 1e3, planned->compresses ? "" : ", which does not compress", planned->bf16.step * 1e3,
      planned->bf16.name, links);
  return out;
}

}  // namespace tithe::automatic
