// SPDX-License-Identifier: Apache-2.0
// Builds a planner query from a session's context, and measures codecs at the sizes of the job.
#include "advisor/auto/auto_query.h"

#include <algorithm>

#include "advisor/measure/codec_speed.h"
#include "base/usable_cores.h"

namespace tithe::automatic {
namespace {

constexpr std::size_t kSizes[] = {std::size_t{1} << 12, std::size_t{1} << 16, std::size_t{1} << 20};

// The rules, then the session's default for tensors that match none. Small tensors need no rule: they are sent
// uncompressed.
std::vector<Rule> in_full(std::vector<Rule> rules, const ChoiceDefaults& defaults) {
  const auto takes_all = [](const Rule& r) { return r.match == "*" && r.least == 0 && r.most == kMaxValues; };
  if (std::any_of(rules.begin(), rules.end(), takes_all)) return rules;
  rules.push_back({.least = defaults.min_values,
                   .codec = defaults.spec,
                   .strategy = defaults.strategy == nullptr ? "auto" : std::string(defaults.strategy->name),
                   .part_values = defaults.part_values});
  return rules;
}

}  // namespace

AutoQuery make_auto_query(const engine::AdvisorContext& context, std::vector<Rule> rules,
                          std::vector<Allowance> allowed) {
  AutoQuery auto_query;
  auto_query.in_full = in_full(rules, context.defaults);
  auto_query.rules = std::move(rules);
  auto_query.first = context.first;
  auto_query.allowed = std::move(allowed);
  auto_query.hosts = context.defaults.hosts;
  auto_query.world = context.defaults.world;
  auto_query.cores = usable_cores();
  if (context.defaults.link.known()) auto_query.latency = context.defaults.link.seconds_per_frame;
  return auto_query;
}

Result<sim::Costs> measured_costs(const planner::Job& job, std::span<const Spec> codecs,
                                  std::span<const float> gradients) {
  std::size_t largest = kSizes[0];
  for (const planner::JobTensor& t : job.tensors) largest = std::max(largest, t.n);
  std::vector<std::size_t> sizes;
  for (const std::size_t n : kSizes)
    if (n <= largest || sizes.empty()) sizes.push_back(n);
  sim::Costs costs = sim::assumed_costs();
  std::vector<double> spread;
  for (const Spec& spec : codecs) {
    Result<sim::CodecCosts> measured = sim::measure_codec(spec, sizes, spread, gradients);
    if (!measured.ok()) return measured.status();
    costs.codecs[to_string(spec)] = std::move(*measured);
  }
  return costs;
}

}  // namespace tithe::automatic
