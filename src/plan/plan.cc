// SPDX-License-Identifier: Apache-2.0
#include "tithe/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"
#include "tithe/frame.h"

namespace tithe {
namespace {

constexpr std::size_t kTinyValues = 256;  // one step with a whole copy for everybody beats two with shares

std::uint64_t mix(std::uint64_t hash, std::uint64_t v) {
  return mix64(hash ^ mix64(v + 0x9e3779b97f4a7c15ULL));
}

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
  return mix(hash, text.size());
}

// Momentum belongs to the step, not to the codec: tensors that travel raw get theirs too.
Spec raw_spec(const Spec& asked) {
  Spec raw;
  raw.codec = find_codec(CodecId::fp32);
  raw.settings = defaults(*raw.codec);
  if (asked.feedback.kind == Feedback::kMomentum) {
    raw.feedback = asked.feedback;
    raw.feedback.mask = false;
  }
  return raw;
}

}  // namespace

Plan make_plan(std::span<const std::size_t> sizes, const PlanRules& rules) {
  Plan plan;
  std::size_t at = 0;
  std::size_t raw_from = 0;
  const auto close_raw = [&](std::size_t end) {
    if (const std::size_t n = end - raw_from; n > 0) {
      const Strategy* strategy = find_strategy(n <= kTinyValues ? "gather" : "server");
      plan.parts.push_back({raw_from, n, raw_spec(rules.spec), strategy,
                            fmt::format("tensors below {} values travel raw", rules.min_values)});
    }
  };
  for (const std::size_t n : sizes) {
    if (n == 0 || n < rules.min_values) {
      at += n;
      continue;
    }
    close_raw(at);
    const std::size_t most = std::max<std::size_t>(rules.part_values, 1);
    const std::size_t pieces = (n + most - 1) / most;
    for (std::size_t k = 0; k < pieces; ++k) {
      const std::size_t first = n * k / pieces;
      plan.parts.push_back(
          {at + first, n * (k + 1) / pieces - first, rules.spec, rules.strategy,
           pieces == 1 ? std::string("as asked") : fmt::format("as asked, piece {} of {}", k + 1, pieces)});
    }
    at += n;
    raw_from = at;
  }
  close_raw(at);
  return plan;
}

std::uint64_t Plan::hash(int world) const {
  std::uint64_t h = mix(mix(0, kFrameVersion), static_cast<std::uint64_t>(world));
  for (const Part& p : parts) h = mix(mix(mix(mix(h, p.first), p.n), to_string(p.spec)), p.strategy->name);
  return h;
}

std::string to_string(const Plan& plan) {
  std::string out;
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    const Part& p = plan.parts[i];
    fmt::format_to(std::back_inserter(out), "part {}: {} values from {}, {} by {} ({})\n", i, p.n, p.first,
                   to_string(p.spec), p.strategy->name, p.why);
  }
  return out;
}

}  // namespace tithe
