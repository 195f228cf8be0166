// SPDX-License-Identifier: Apache-2.0
// Advice for a running job: a plan like decide()'s, plus one with kHint allowed, as numbers and as text.
#include "advisor/auto/step_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tithe/seam/catalogue.h"

namespace tithe::automatic {
namespace {

std::string allowed_text(const AutoQuery& auto_query) { return to_string(AutoSpec{auto_query.allowed}); }

std::vector<std::string> lines_of(const Advice& a, const AutoQuery& auto_query) {
  const double now = a.step * 1e3, waits = std::max(0.0, a.step - a.compute) * 1e3;
  std::vector<std::string> out;
  if (a.bytes_per_second == 0) {
    out.push_back(
        fmt::format("Do not compress: communication is hidden. A step takes {:.1f} ms, its computing {:.1f}.",
                    now, a.compute * 1e3));
    out.emplace_back("Keep the current settings: fewer bytes would not shorten the step.");
    out.emplace_back("A faster network would not help either; less computing per step would.");
    return out;
  }
  const Seconds best = a.stays ? a.step : a.planned;
  const bool hint = a.hinted > 0 && a.hinted < planner::kWorthLosing * best;
  const std::string why = fmt::format(
      "A step takes {:.1f} ms, {:.1f} of them after the last gradient is ready: each link transfers about "
      "{}.",
      now, waits, rate_text(a.bytes_per_second));
  const std::string bf16 = fmt::format("{}, the best bf16, takes {:.1f} ms", a.bf16_by, a.bf16 * 1e3);
  const std::string use =
      a.stays
          ? fmt::format("Keep the current settings: no allowed codec ({}) shortens the step by 2 %; {}.",
                        allowed_text(auto_query), bf16)
          : fmt::format(
                "Use codec=\"{}\", or the plan as choices=FILE: {:.1f} ms, {:.2f} times as fast as now; {}.",
                allowed_text(auto_query), a.planned * 1e3, a.step / a.planned, bf16);
  // Whether to compress at all comes before how.
  if (!a.compresses && !hint) {
    out.push_back(fmt::format("Do not compress: compression would not shorten the step by 5 %. {}", use));
    out.push_back(why);
  } else {
    out.push_back(why);
    out.push_back(use);
  }
  std::string last = fmt::format("No network could shorten the step below {:.1f} ms.", a.no_network * 1e3);
  if (hint)
    last += fmt::format(" If {} is allowed too (docs/start/choosing.md), the step takes {:.1f} ms.", kHint,
                        a.hinted * 1e3);
  out.push_back(std::move(last));
  return out;
}

}  // namespace

// Like decide(): fits the link rate, then plans for it. Plans once more with kHint allowed, unless it already is.
Result<Advice> advise(const AutoQuery& auto_query) {
  const Result<planner::PlanQuery> fastest = query_at(auto_query, kFastest);
  if (!fastest.ok()) return fastest.status();
  TITHE_TRY(planner::check(*fastest));
  const Result<sim::Outcome> least = planner::simulate(*fastest, auto_query.in_full);
  if (!least.ok()) return least.status();
  const Result<double> rate = rate_of(auto_query);
  if (!rate.ok()) return rate.status();
  Advice out{.step = auto_query.step,
             .compute = auto_query.job.compute,
             .no_network = std::min(auto_query.step, least->step),
             .bytes_per_second = *rate,
             .rules = auto_query.rules,
             .stays = true,
             .compresses = loses(auto_query.rules)};
  out.bf16 = out.planned = auto_query.step;
  if (*rate == 0) return out;
  Result<planner::PlanQuery> query = query_at(auto_query, *rate);
  if (!query.ok()) return query.status();
  Result<planner::Planned> planned = planner::plan(*query, "timeline");
  if (!planned.ok()) return planned.status();
  out.bf16 = planned->bf16.step;
  out.bf16_by = planned->bf16.name;
  out.planned = planned->outcome.step;
  out.stays = out.planned > planner::kWorthIt * auto_query.step;
  if (!out.stays) {
    out.rules = std::move(planned->rules);
    out.compresses = planned->compresses;
  }
  const Spec hint = *parse_spec(kHint);
  if (std::any_of(auto_query.allowed.begin(), auto_query.allowed.end(),
                  [&](const Allowance& a) { return a.codec == hint; }))
    return out;
  query->allowed.push_back({"", hint});
  const Result<planner::Planned> more = planner::plan(*query, "timeline");
  if (!more.ok()) return more.status();
  out.hinted = more->outcome.step;
  return out;
}

std::string to_json(const Advice& a, const AutoQuery& auto_query) {
  nlohmann::ordered_json out = {{"step_ms", a.step * 1e3},
                                {"compute_ms", a.compute * 1e3},
                                {"bf16", a.bf16_by},
                                {"bf16_ms", a.bf16 * 1e3},
                                {"plan_ms", a.planned * 1e3},
                                {"no_network_ms", a.no_network * 1e3},
                                {"bytes_per_second", a.bytes_per_second},
                                {"ranks", auto_query.world},
                                {"hosts", auto_query.hosts.text(auto_query.world)},
                                {"allowed", allowed_text(auto_query)},
                                {"stays", a.stays},
                                {"rules", nlohmann::ordered_json::parse(tithe::to_json(a.rules))},
                                {"lines", lines_of(a, auto_query)}};
  if (a.hinted > 0) out["hint"] = {{"codec", kHint}, {"step_ms", a.hinted * 1e3}};
  return out.dump();
}

}  // namespace tithe::automatic
