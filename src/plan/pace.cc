// SPDX-License-Identifier: Apache-2.0
#include "plan/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace tithe {
namespace plan {
namespace {

struct Measured {
  std::string_view codec;
  double encode_ns, merge_ns;  // per value
};
constexpr Measured kMeasured[] = {
#define TITHE_PACE(codec, encode_ns, merge_ns) {#codec, encode_ns, merge_ns},
#include "plan/pace.def"
#undef TITHE_PACE
};

const Measured& measured(const Codec& codec) {
  const auto of = [&](std::string_view name) {
    return std::find_if(std::begin(kMeasured), std::end(kMeasured),
                        [&](const Measured& m) { return m.codec == name; });
  };
  const Measured* found = of(codec.name);
  return found != std::end(kMeasured) ? *found
                                      : *of("topk");  // one that nobody has measured: as the usual sparse one
}

bool joins(const Phase& phase, const Strategy& strategy) {
  const auto known = [&](Law law) {
    return std::find(phase.laws.begin(), phase.laws.end(), law) != phase.laws.end();
  };
  const auto law = std::find_if(strategy.laws.begin(), strategy.laws.end(), known);
  return law != strategy.laws.end() && *law == Law::kConcat;
}

}  // namespace

Pace pace_of(const Spec& spec, const Strategy& strategy, const Place& at, const Link& link) {
  constexpr std::size_t kMany = std::size_t{1} << 20;  // what stands in front of a payload no longer counts
  const StrategyCost cost = strategy.cost(at);
  double bytes = 0;
  for (const Phase& phase : spec.codec->phases)
    bytes += static_cast<double>(phase.bound(spec.settings, kMany)) / static_cast<double>(kMany) *
             (joins(phase, strategy) ? cost.concat_shares : cost.wire_shares);
  const Measured& m = measured(*spec.codec);
  const auto phases = static_cast<double>(spec.codec->phases.size());
  return {.compute = 1e-9 * (m.encode_ns + cost.wire_shares * m.merge_ns),
          .wire = bytes / link.bytes_per_second,
          .frames = phases * cost.frames_sent * link.seconds_per_frame};
}

double seconds(const Pace& pace, std::size_t n, std::size_t parts) {
  const auto values = static_cast<double>(n), k = static_cast<double>(parts);
  return values * std::max(pace.compute, pace.wire) + values * std::min(pace.compute, pace.wire) / k +
         k * pace.frames;
}

std::size_t best_parts(const Pace& pace, std::size_t n) {
  if (pace.frames <= 0) return 1;
  const double k = std::sqrt(static_cast<double>(n) * std::min(pace.compute, pace.wire) / pace.frames);
  const auto below =
      static_cast<std::size_t>(std::clamp(k, 1.0, std::max<double>(1, static_cast<double>(n))));
  return seconds(pace, n, below + 1) < seconds(pace, n, below) ? below + 1 : below;
}

std::size_t least_worth(const Pace& pace, const Pace& raw) {
  const double gain = raw.compute + raw.wire - pace.compute - pace.wire;
  if (gain <= 0) return kUsualMinValues;
  return static_cast<std::size_t>(
      std::clamp(std::ceil(pace.frames / gain), 1.0, static_cast<double>(kUsualPartValues)));
}

}  // namespace plan

// ---- Links

Result<Link> parse_link(std::string_view text) {
  const Status wrong(
      Code::kInvalid,
      fmt::format("link '{}': give bits or bytes per second, and what a frame costs if you know it, such as "
                  "10Gb/s, 1.2GB/s or 1Gb/s+50us",
                  printable(text, 100)));
  if (text.empty()) return Link{};
  struct Unit {
    std::string_view name;
    double factor;
  };
  constexpr Unit kRates[] = {{"Kb/s", 1e3 / 8}, {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
                             {"KB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9}};
  constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
  const auto number = [](std::string_view item, std::span<const Unit> units, double& into) {
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), into);
    if (error != std::errc{} || !std::isfinite(into) || into <= 0) return false;
    const std::string_view unit = item.substr(static_cast<std::size_t>(end - item.data()));
    for (const Unit& u : units)
      if (u.name == unit) {
        into *= u.factor;
        return std::isfinite(into);
      }
    return false;
  };
  const std::size_t plus = text.find('+');
  Link link;
  if (!number(text.substr(0, plus), kRates, link.bytes_per_second)) return wrong;
  if (plus != std::string_view::npos && !number(text.substr(plus + 1), kTimes, link.seconds_per_frame))
    return wrong;
  return link;
}

}  // namespace tithe
