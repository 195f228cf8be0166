// SPDX-License-Identifier: Apache-2.0
#include "plan/ways.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "plan/pace.h"

namespace tithe::plan {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;  // values, whose share of loss stands for any number
constexpr std::string_view kOnlyToCompare = "aggregator";
constexpr int kFewRoundings = 2;  // those of `server`
// Times as slow as kAssumedRate. Nobody knows the link: whatever it is between these, no way is far behind the best.
constexpr double kSlower[] = {1, 10};

}  // namespace

bool is_accurate(const Spec& spec, const Strategy& strategy, const Place& at) {
  const StrategyCost cost = strategy.cost(at);
  // A strategy that treats hosts apart rounds once more inside them.
  const int few = kFewRoundings + (strategy.between != nullptr ? 1 : 0);
  for (const Phase& phase : spec.codec->phases) {
    const Law* law = first_law(phase, strategy);
    if (law == nullptr) return false;
    if (*law != Law::kDecode || spec.codec->traits.lossless || cost.roundings <= few) continue;
    // A sum of k independent gradients has k times the energy of one, so N roundings lose N/2 times as much as one.
    const auto contraction = spec.codec->traits.contraction;
    const double lost = contraction == nullptr ? 1 : contraction(spec.settings, kLarge);
    if (lost * cost.roundings / 2 > kMostLost) return false;
  }
  return true;
}

namespace {

// Where ranks share hosts, two flows of one strategy and those of another meet in one link; whole parts to everybody
// then only delay what crosses it once.
bool is_candidate(const Spec& spec, const Strategy& strategy, bool inside, const Usual& usual) {
  if (usual.servers > 0 || usual.world == 1) return strategy.serves;
  if (strategy.name == kOnlyToCompare) return false;
  const int hosts = usual.hosts.count(usual.world);
  const bool apart = 1 < hosts && hosts < usual.world && !spec.feedback.mask;
  if (strategy.between != nullptr) return inside || apart;
  return !inside && !(apart && strategy.chunks(usual.place()) == 1);
}

Pace pace_on(const Spec& spec, const Strategy& strategy, const Usual& usual) {
  Link link = usual.link;
  if (!link.known()) link.bytes_per_second = kAssumedRate;
  return pace_of(spec, strategy, usual.place(), link);
}

}  // namespace

std::vector<Way> ways_of(const Spec& spec, bool inside, const Usual& usual) {
  std::vector<Way> out;
  for (const Strategy* strategy : all_strategies()) {
    if (!is_candidate(spec, *strategy, inside, usual)) continue;
    if (is_accurate(spec, *strategy, usual.place()))
      out.push_back({.strategy = strategy,
                     .pace = pace_on(spec, *strategy, usual),
                     .link_assumed = !usual.link.known()});
  }
  if (out.empty())
    out.push_back({.strategy = find_strategy("server")});  // whoever checks the laws says why not
  return out;
}

std::vector<Way> ways_of_group(std::span<const Way> ways, bool inside) {
  std::vector<Way> out;
  if (!inside)
    std::ranges::copy_if(ways, std::back_inserter(out), [](const Way& way) { return way.strategy->by_rank; });
  return out.empty() ? std::vector<Way>(ways.begin(), ways.end()) : out;
}

const Way& best_way(std::span<const Way> ways, std::size_t n) {
  constexpr double kOne[] = {1};
  const bool assumed = std::ranges::any_of(ways, &Way::link_assumed);
  std::vector<double> worst(ways.size()),
      seconds(ways.size());  // times the least, on the link where that is most
  for (const double slower : assumed ? std::span<const double>(kSlower) : std::span<const double>(kOne)) {
    for (std::size_t k = 0; k < ways.size(); ++k) {
      Pace pace = ways[k].pace;
      pace.wire *= slower;
      seconds[k] = seconds_among_others(pace, n, best_parts(pace, n));
    }
    const double least = *std::ranges::min_element(seconds);
    for (std::size_t k = 0; k < ways.size(); ++k)
      worst[k] = std::max(worst[k], least > 0 ? seconds[k] / least : 1);
  }
  const double least = *std::ranges::min_element(worst);
  std::size_t best = 0;
  const auto rank = [&](std::size_t k) {
    const bool as_fast = worst[k] <= kAsFast * least;
    const Way& way = ways[k];
    return as_fast ? std::tuple(0, way.strategy->by_rank ? 0 : 1, way.pace.delay) : std::tuple(1, 0, 0.0);
  };
  for (std::size_t k = 1; k < ways.size(); ++k)
    if (rank(k) < rank(best)) best = k;
  return ways[best];
}

}  // namespace tithe::plan
