// SPDX-License-Identifier: Apache-2.0
#include "plan/strategy_options.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "plan/codec_cost.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/plan.h"

namespace tithe::plan {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;  // the loss is evaluated for this number of values
constexpr std::string_view kOnlyToCompare = "aggregator";
constexpr int kFewRoundings = 2;  // the roundings of `server`
// Factors of the transfer time at kAssumedRate. If the link is unknown, an option should be close to the best for all
// of them.
constexpr double kSlower[] = {1, 10};

// The fraction of the energy that one round may lose.
double lost_by(const Spec& spec) {
  const auto contraction = spec.codec->traits.contraction;
  return contraction == nullptr ? 1 : contraction(spec.settings, kLarge);
}

}  // namespace

bool is_accurate(const Spec& spec, const Strategy& strategy, const Place& at) {
  const StrategyCost cost = strategy.cost(at);
  // A strategy of two levels rounds once more inside the hosts.
  const int few = kFewRoundings + (strategy.between != nullptr ? 1 : 0);
  for (const Phase& phase : spec.codec->phases) {
    const Law* law = first_law(phase, strategy);
    if (law == nullptr) return false;
    if (*law != Law::kDecode || spec.codec->traits.lossless || cost.roundings <= few) continue;
    // A sum of k independent gradients has k times the energy of one, so N roundings lose N/2 times as much as one.
    if (lost_by(spec) * cost.roundings / 2 > kMaxLost) return false;
  }
  return true;
}

namespace {

// If ranks share hosts, the flows of a flat strategy and of a strategy of two levels meet in one link. Then sending
// whole parts to all ranks only delays the data that must cross the link once.
bool is_candidate(const Spec& spec, const Strategy& strategy, bool inside, const ChoiceDefaults& defaults) {
  if (defaults.servers > 0 || defaults.world == 1) return strategy.serves;
  if (strategy.name == kOnlyToCompare) return false;
  const int hosts = defaults.hosts.count(defaults.world);
  const bool apart = 1 < hosts && hosts < defaults.world && !spec.feedback.mask;
  if (strategy.between != nullptr) return inside || apart;
  return !inside && !(apart && strategy.chunks(defaults.place()) == 1);
}

CodecCost cost_on(const Spec& spec, const Strategy& strategy, const ChoiceDefaults& defaults,
                  const Spec* inside) {
  Link link = defaults.link;
  if (!link.known()) link.bytes_per_second = kAssumedRate;
  return codec_cost_of(spec, strategy, defaults.place(), link, inside);
}

// True if ranks of one host can use this codec among themselves: its payloads are decoded one by one. Payloads of
// sparse codecs are joined instead, so values would be selected twice.
bool fits_inside(const Spec& spec) {
  const Codec& codec = *spec.codec;
  return codec.phases.size() == 1 && codec.memory == nullptr && !has_cols(codec) &&
         codec.phases[0].laws[0] == Law::kDecode;
}

// The codecs inside a host besides uncompressed values: 8 or 16 bits that lose no more than the codec between hosts,
// and that codec itself. Their losses enter the residual, so the codec between hosts must have one.
std::vector<Spec> insides_of(const Spec& spec, const ChoiceDefaults& defaults) {
  if (defaults.link.inside_bytes_per_second <= 0 || spec.feedback.kind != Feedback::kResidual) return {};
  std::vector<Spec> out;
  for (const Codec* codec : all_codecs())
    if (codec->traits.inside_hosts)
      if (const Spec inside = *parse_spec(codec->name); lost_by(inside) <= lost_by(spec)) out = {inside};
  Spec own{.codec = spec.codec, .settings = spec.settings, .feedback = spec.feedback};
  own.feedback.clip = 0;  // clipping applies to the whole step
  if (fits_inside(own) && std::ranges::find(out, own) == out.end()) out.push_back(own);
  return out;
}

}  // namespace

std::vector<StrategyOption> strategy_options_of(const Spec& spec, const std::optional<Spec>& inside,
                                                const ChoiceDefaults& defaults) {
  std::vector<StrategyOption> out;
  const std::vector<Spec> insides = inside ? std::vector<Spec>{} : insides_of(spec, defaults);
  for (const Strategy* strategy : all_strategies()) {
    if (!is_candidate(spec, *strategy, inside.has_value(), defaults)) continue;
    if (!is_accurate(spec, *strategy, defaults.place())) continue;
    StrategyOption option{.strategy = strategy,
                          .cost = cost_on(spec, *strategy, defaults, inside ? &*inside : nullptr),
                          .link_assumed = !defaults.link.known()};
    out.push_back(option);
    if (strategy->between == nullptr) continue;
    for (const Spec& codec : insides) {
      option.cost = cost_on(spec, *strategy, defaults, &codec);
      option.inside = codec;
      out.push_back(option);
    }
  }
  if (out.empty())
    out.push_back({.strategy = find_strategy("server")});  // the check of the laws reports the reason
  return out;
}

std::vector<StrategyOption> strategy_options_of_group(std::span<const StrategyOption> options, bool inside) {
  std::vector<StrategyOption> out;
  if (!inside)
    std::ranges::copy_if(options, std::back_inserter(out),
                         [](const StrategyOption& option) { return option.strategy->by_rank; });
  return out.empty() ? std::vector<StrategyOption>(options.begin(), options.end()) : out;
}

// If the link is assumed, compares for each option its worst ratio to the best option over all rates; otherwise its
// time. Ties within kAsFast are decided as the header says.
const StrategyOption& best_option(std::span<const StrategyOption> options, std::size_t n) {
  constexpr double kOne[] = {1};
  const bool assumed = std::ranges::any_of(options, &StrategyOption::link_assumed);
  // worst: the ratio to the least time, at the rate where that ratio is largest.
  std::vector<double> worst(options.size()), seconds(options.size());
  for (const double slower : assumed ? std::span<const double>(kSlower) : std::span<const double>(kOne)) {
    for (std::size_t k = 0; k < options.size(); ++k) {
      CodecCost cost = options[k].cost;
      cost.wire *= slower;
      seconds[k] = seconds_among_others(cost, n, best_parts(cost, n));
    }
    const double least = *std::ranges::min_element(seconds);
    for (std::size_t k = 0; k < options.size(); ++k)
      worst[k] = std::max(worst[k], least > 0 ? seconds[k] / least : 1);
  }
  const double least = *std::ranges::min_element(worst);
  std::size_t best = 0;
  const auto rank = [&](std::size_t k) {
    const bool as_fast = worst[k] <= kAsFast * least;
    const StrategyOption& option = options[k];
    return as_fast ? std::tuple(0, option.strategy->by_rank ? 0 : 1, option.cost.delay)
                   : std::tuple(1, 0, 0.0);
  };
  for (std::size_t k = 1; k < options.size(); ++k)
    if (rank(k) < rank(best)) best = k;
  return options[best];
}

}  // namespace tithe::plan
