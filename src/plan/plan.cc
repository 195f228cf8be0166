// SPDX-License-Identifier: Apache-2.0
#include "tithe/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rng.h"
#include "tithe/frame.h"

namespace tithe {
namespace {

constexpr std::string_view kCols = "cols";
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
  raw.codec = find_codec("fp32");
  raw.settings = defaults(*raw.codec);
  if (asked.feedback.kind == Feedback::kMomentum) {
    raw.feedback = asked.feedback;
    raw.feedback.mask = false;
  }
  return raw;
}

Spec shaped(Spec spec, std::size_t row) {
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i) {
    const ParamSpec& p = spec.codec->params[i];
    const auto cols = static_cast<double>(row);
    if (p.name == kCols && spec.settings[i] == 0 && cols <= p.high) spec.settings.value[i] = cols;
  }
  return spec;
}

}  // namespace

std::size_t cols_of(const Spec& spec) {
  for (std::size_t i = 0; i < spec.codec->params.size(); ++i)
    if (spec.codec->params[i].name == kCols) return static_cast<std::size_t>(spec.settings[i]);
  return 0;
}

std::size_t cut_at(std::size_t n, std::size_t cols, std::size_t k, std::size_t pieces) {
  if (k == pieces) return n;
  return cols == 0 || cols >= n ? n * k / pieces : n / cols * k / pieces * cols;
}

Plan make_plan(std::span<const std::size_t> sizes, const PlanRules& rules,
               std::span<const std::size_t> rows) {
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
  for (std::size_t t = 0; t < sizes.size(); ++t) {
    const std::size_t n = sizes[t];
    if (n == 0 || n < rules.min_values) {
      at += n;
      continue;
    }
    close_raw(at);
    const std::size_t most = std::max<std::size_t>(rules.part_values, 1);
    const Spec spec = shaped(rules.spec, rows.empty() ? 0 : rows[t]);
    const std::size_t cols = cols_of(spec);
    const std::size_t rows_at_most = cols == 0 || cols >= n ? n : n / cols;
    const std::size_t pieces = std::min((n + most - 1) / most, rows_at_most);
    for (std::size_t k = 0; k < pieces; ++k) {
      const std::size_t first = cut_at(n, cols, k, pieces);
      plan.parts.push_back(
          {at + first, cut_at(n, cols, k + 1, pieces) - first, spec, rules.strategy,
           pieces == 1 ? std::string("as asked") : fmt::format("as asked, piece {} of {}", k + 1, pieces),
           true});
    }
    at += n;
    raw_from = at;
  }
  close_raw(at);
  return plan;
}

std::uint64_t Plan::hash(int world) const {
  std::uint64_t h = mix(mix(0, kFrameVersion), static_cast<std::uint64_t>(world));
  for (const Part& p : parts)
    h = mix(mix(mix(mix(mix(h, p.first), p.n), to_string(p.spec)), p.strategy->name), p.scheduled ? 1U : 0U);
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
