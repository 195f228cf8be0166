// SPDX-License-Identifier: Apache-2.0
#include "plan/codec_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "codec/fp32/fp32.h"
#include "codec/typical.h"
#include "plan/strategy_options.h"

namespace tithe {
namespace plan {
namespace {

struct Measured {
  std::string_view codec;
  double encode_ns, merge_ns;  // per value
};
constexpr Measured kMeasured[] = {
#define TITHE_CODEC_COST(codec, encode_ns, merge_ns) {#codec, encode_ns, merge_ns},
#include "plan/codec_cost.def"
#undef TITHE_CODEC_COST
};

const Measured& measured(const Codec& codec) {
  const auto of = [&](std::string_view name) {
    return std::find_if(std::begin(kMeasured), std::end(kMeasured),
                        [&](const Measured& m) { return m.codec == name; });
  };
  const Measured* found = of(codec.name);
  return found != std::end(kMeasured) ? *found
                                      : *of("topk");  // not measured: the cost of a typical sparse codec
}

}  // namespace

const Law* first_law(const Phase& phase, const Strategy& strategy) {
  const auto law = std::find_if(strategy.laws.begin(), strategy.laws.end(), [&](Law known) {
    return std::find(phase.laws.begin(), phase.laws.end(), known) != phase.laws.end();
  });
  return law == strategy.laws.end() ? nullptr : &*law;
}

std::size_t default_part_values(const Spec& spec, const Strategy& strategy, const Place& at) {
  std::size_t bytes = 1;  // the payload of the largest part
  for (std::size_t k = 0; k < spec.codec->phases.size(); ++k)
    bytes = std::max(bytes, codec::expected_bytes(*spec.codec, k, spec.settings, kDefaultPartValues));
  const auto chunks = static_cast<std::size_t>(strategy.chunks(at));
  const std::size_t payload = std::max(kDefaultPayload, chunks * kMinPayload);
  const std::size_t most = chunks == 1 ? kDefaultWholePartValues : kDefaultPartValues;
  return std::min(most, kDefaultPartValues / std::max<std::size_t>(1, (bytes + payload / 2) / payload));
}

namespace {

// Bytes per value of a phase's payload.
double bytes_of(const Spec& spec, std::size_t phase) {
  constexpr std::size_t kMany = std::size_t{1} << 20;  // large, so that fixed headers are negligible
  return static_cast<double>(codec::expected_bytes(*spec.codec, phase, spec.settings, kMany)) /
         static_cast<double>(kMany);
}

}  // namespace

// Sums, over the phases, the bytes that leave the busiest host (crossing), the bytes inside a host, and the bytes
// that a rank sends. The formulas are in codec_cost.h.
CodecCost codec_cost_of(const Spec& spec, const Strategy& strategy, const Place& at, const Link& link,
                        const Spec* inside_spec) {
  const StrategyCost cost = strategy.cost(at);
  std::size_t ranks = 1;  // of the largest host
  int hosts = at.world;
  if (at.hosts != nullptr && !at.hosts->alone()) {
    for (const std::vector<Rank>& host : at.ranks_by_host()) ranks = std::max(ranks, host.size());
    hosts = at.hosts->count(at.world);
  }
  const auto together = static_cast<double>(ranks);
  const bool plain = inside_spec == nullptr || inside_spec->codec->traits.uncompressed;
  double sent_by_rank = (plain ? 4 : bytes_of(*inside_spec, 0)) * cost.inside_shares;
  double crossing = 0, inside = together * sent_by_rank;
  for (std::size_t k = 0; k < spec.codec->phases.size(); ++k) {
    const double bytes = bytes_of(spec, k);
    const Law* law = first_law(spec.codec->phases[k], strategy);
    const bool joins = law != nullptr && *law == Law::kConcat;
    const double result = joins ? cost.concat_result_shares : cost.result_shares;
    const double shares = joins ? cost.concat_shares : cost.wire_shares;
    crossing += bytes * (joins ? cost.concat_link_shares : cost.link_shares);
    inside += bytes * together * result;
    sent_by_rank += bytes * (shares + result);
    // All ranks of a host send at the same time; bytes that do not leave the host stay inside.
    const double sent = together * shares;
    const double leave = joins ? cost.concat_link_shares : cost.link_shares;
    if (strategy.between == nullptr) inside += bytes * std::max(0.0, sent - leave);
  }
  const Measured& m = measured(*spec.codec);
  const auto phases = static_cast<double>(spec.codec->phases.size());
  // Other ranks merge the payloads that this rank sends; it also stores its own share of the result.
  const double merges = cost.wire_shares + cost.result_shares + 1.0 / strategy.chunks(at);
  const Measured& in = plain ? measured(fp32_codec) : measured(*inside_spec->codec);
  const double inside_ns = (plain ? 0 : in.encode_ns) + in.merge_ns;
  const bool many_to_one = cost.senders > 1 && hosts > 2;
  const double inside_rate = link.inside_bytes_per_second > 0 ? link.inside_bytes_per_second : kInsideRate;
  const double inside_frame =
      link.inside_seconds_per_frame > 0 ? link.inside_seconds_per_frame : link.seconds_per_frame;
  const int inside_steps = strategy.between != nullptr && ranks > 1 ? 2 : 0;  // to a carrier, and from it
  return {
      .compute = 1e-9 * (m.encode_ns + merges * m.merge_ns + cost.inside_shares * inside_ns) +
                 kChecksumByte * sent_by_rank,
      .inside = ranks == 1 ? 0 : inside / inside_rate,
      .wire = crossing / (link.bytes_per_second * (many_to_one ? kManyToOne : 1)),
      .frames = phases * cost.frames_sent * std::min(kHandling, link.seconds_per_frame),
      .delay = phases * ((cost.steps - inside_steps) * link.seconds_per_frame + inside_steps * inside_frame)};
}

namespace {

double most(const CodecCost& p) { return std::max({p.compute, p.inside, p.wire}); }
double rest(const CodecCost& p) { return p.compute + p.inside + p.wire - most(p); }

}  // namespace

// Only square roots and products: their results are the same on all machines, unlike those of pow().
double seconds_among_others(const CodecCost& cost, std::size_t n, std::size_t parts) {
  const auto values = static_cast<double>(n);
  double sum = 0;
  for (const double work : {static_cast<double>(parts) * cost.frames, values * cost.compute,
                            values * cost.inside, values * cost.wire})
    sum += (work * work) * (work * work);
  return std::sqrt(std::sqrt(sum)) + cost.delay * (kSeen + kSeenOfBucket * values / kBucketValues);
}

double seconds(const CodecCost& cost, std::size_t n, std::size_t parts) {
  const auto values = static_cast<double>(n), k = static_cast<double>(parts);
  return values * most(cost) + values * rest(cost) / k + k * cost.frames;
}

std::size_t best_parts(const CodecCost& cost, std::size_t n) {
  if (cost.frames <= 0) return 1;
  const double k = std::sqrt(static_cast<double>(n) * rest(cost) / cost.frames);
  const auto below =
      static_cast<std::size_t>(std::clamp(k, 1.0, std::max<double>(1, static_cast<double>(n))));
  return seconds(cost, n, below + 1) < seconds(cost, n, below) ? below + 1 : below;
}

std::size_t min_worth(std::span<const StrategyOption> options, const CodecCost& uncompressed, bool same) {
  const double shared =
      seconds_among_others(uncompressed, kDefaultPartValues) / static_cast<double>(kDefaultPartValues);
  const auto worth = [&](std::size_t n) {
    const CodecCost& cost = best_option(options, n).cost;
    constexpr double kLittleOfIt = 0.1;
    return seconds_among_others(cost, n) <= static_cast<double>(n) * shared ||
           (same && cost.frames <= kLittleOfIt * (static_cast<double>(n) * most(cost)));
  };
  if (!worth(kDefaultPartValues)) return same ? kDefaultPartValues : kDefaultMinValues;
  // The fixed cost of a part is divided by its values, so if a size is worth it, all larger sizes are: binary search.
  std::size_t no = 0, yes = kDefaultPartValues;
  while (yes - no > 1) {
    const std::size_t middle = no + (yes - no) / 2;
    (worth(middle) ? yes : no) = middle;
  }
  return yes;
}

}  // namespace plan

// ---- Links

namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Reads a number above 0, directly followed by one of the units.
bool read_with_unit(std::string_view item, std::span<const Unit> units, double& into) {
  const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), into);
  if (error != std::errc{} || !std::isfinite(into) || into <= 0) return false;
  const std::string_view unit = item.substr(static_cast<std::size_t>(end - item.data()));
  const auto found = std::ranges::find(units, unit, &Unit::name);
  if (found == units.end()) return false;
  into *= found->factor;
  return std::isfinite(into);
}

// "10Gb/s", "10gbit" and "10Gbit/s" are the same: the case of the prefix does not matter, the case of the unit does.
bool read_rate(std::string_view item, double& into) {
  constexpr Unit kPrefixes[] = {{"k", 1e3}, {"K", 1e3}, {"m", 1e6}, {"M", 1e6}, {"g", 1e9}, {"G", 1e9}};
  constexpr Unit kUnits[] = {{"b/s", 1.0 / 8}, {"bit", 1.0 / 8}, {"bit/s", 1.0 / 8}, {"B/s", 1}};
  std::vector<std::string> names;
  names.reserve(std::size(kPrefixes) * std::size(kUnits));  // Unit contains views of these strings
  std::vector<Unit> rates;
  for (const Unit& prefix : kPrefixes)
    for (const Unit& unit : kUnits)
      rates.push_back(
          {names.emplace_back(fmt::format("{}{}", prefix.name, unit.name)), prefix.factor * unit.factor});
  return read_with_unit(item, rates, into);
}

}  // namespace

Result<Link> parse_link(std::string_view text) {
  constexpr std::string_view kInside = ", inside ";
  const auto read = [](std::string_view item, double& rate, double& frame) {
    constexpr Unit kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
    const std::size_t plus = item.find('+');
    return read_rate(item.substr(0, plus), rate) &&
           (plus == std::string_view::npos || read_with_unit(item.substr(plus + 1), kTimes, frame));
  };
  Link link;
  if (text.empty()) return link;
  const std::size_t inside = text.find(kInside);
  if (!read(text.substr(0, inside), link.bytes_per_second, link.seconds_per_frame) ||
      (inside != std::string_view::npos &&
       !read(text.substr(inside + kInside.size()), link.inside_bytes_per_second,
             link.inside_seconds_per_frame)))
    return Status(Code::kInvalid,
                  fmt::format("link '{}' must be bits or bytes per second, optionally with the cost of a "
                              "frame, such as 10Gb/s, 100mbit, 1.2GB/s or 1Gb/s+50us; the link inside a host "
                              "may follow, such as 25Gb/s, inside 10GB/s",
                              printable(text, 100)));
  return link;
}

}  // namespace tithe
