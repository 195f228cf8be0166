// SPDX-License-Identifier: Apache-2.0
#include "plan_sharded.h"

#include <fmt/format.h>

#include <algorithm>

#include "progress.h"
#include "simulate_sharded.h"

namespace tithe::cli {
namespace {

constexpr double kWorthLoss = 1.05;                     // a lossy plan must be this much shorter
constexpr std::size_t kWeights = std::size_t{1} << 20;  // values, for Traits::contraction
constexpr double kMostLost = 0.005;  // about as tithe.torch.attach(weights=); fp8 loses at most 0.0039
constexpr std::string_view kPlainGradients = "bf16:feedback=none", kPlainWeights = "uncompressed";

struct Candidate {
  std::string codec;
  bool lossy = false;
};
struct Candidates {
  std::vector<Candidate> gradients{{std::string(kPlainGradients)}};
  std::vector<Candidate> weights{{std::string(kPlainWeights)}, {"zip"}, {"delta"}};
};

// True if a reduce-scatter would keep a residual on every rank (docs/reference/sharded_rounds.md, Feedback).
bool keeps_residual(const Spec& spec) {
  const Choices choices = Choices::of({.spec = spec, .min_values = 0, .world = 2});
  const PlanTensor tensor[] = {{"w", 2, 2}};
  const Plan plan = make_plan(tensor, choices, RoundKind::kReduceScatter);
  return !spec.codec->traits.lossless && plan.parts[0].spec.feedback.kind != Feedback::kNone;
}

Status add(Candidates& to, const Allowance& a, bool requested) {
  const std::string codec = to_string(a.codec);
  if (a.match.starts_with("weights")) {
    const auto contraction = a.codec.codec->traits.contraction;
    if (const double lost = contraction ? contraction(a.codec.settings, kWeights) : 1; lost > kMostLost)
      return {
          Code::kInvalid,
          fmt::format("--allow '{}': weights are gathered without error feedback, and {} may lose {:.2g} of "
                      "their energy (at most {:.2g} is allowed): allow fp8, or leave it out for 'delta', "
                      "which loses nothing",
                      to_string(a), codec, lost, kMostLost)};
    to.weights.push_back({codec, !always_allowed(a.codec)});
    return {};
  }
  if (!a.match.empty())
    return {
        Code::kInvalid,
        fmt::format("--allow '{}': --sharded chooses one codec for all gradients: allow a codec without a "
                    "pattern, or 'weights.*: CODEC'",
                    to_string(a))};
  if (!keeps_residual(a.codec)) {
    to.gradients.push_back({codec, !always_allowed(a.codec)});
  } else if (requested) {
    return {Code::kInvalid,
            fmt::format(
                "--allow {}: a reduce-scatter would keep a residual of 8 bytes per parameter of the whole "
                "model on every rank: allow {}, or add feedback=none",
                codec, kShardedGradients)};
  }
  return {};
}

struct Tried {
  Candidate gradients, weights;
  Answer answer;
  bool lossy() const { return gradients.lossy || weights.lossy; }
  double step() const { return answer.outcome.step; }
};

Result<std::vector<Tried>> try_all(const Scene& scene, const SimulateArgs& args,
                                   const Candidates& candidates) {
  std::vector<Tried> tried;
  for (const Candidate& g : candidates.gradients)
    for (const Candidate& w : candidates.weights) {
      progress("settings", tried.size(), candidates.gradients.size() * candidates.weights.size());
      Setting setting{{}, args.session};
      setting.session.codec = g.codec;
      set_weights(setting, w.codec);
      Result<Answer> answer = simulate_sharded(scene, setting, scene.cluster, args);
      if (!answer.ok()) return answer.status();
      tried.push_back({g, w, *std::move(answer)});
    }
  return tried;
}

std::string line_of(const Tried& t, double plain) {
  return fmt::format("{:<32} {:<20} {:>12.3f} {:>10.2f} {:>12.3f} {:>12.3f}\n", t.gradients.codec,
                     t.weights.codec, t.step() * 1e3, plain / t.step(), t.answer.gradient_bytes / 1e6,
                     t.answer.weight_bytes / 1e6);
}

}  // namespace

Result<Report> plan_sharded(const Scene& scene, const SimulateArgs& args, std::span<const Allowance> allowed,
                            std::span<const Allowance> study) {
  Candidates candidates;
  for (const Allowance& a : allowed) TITHE_TRY(add(candidates, a, true));
  for (const Allowance& a : study) TITHE_TRY(add(candidates, a, false));
  Result<std::vector<Tried>> made = try_all(scene, args, candidates);
  if (!made.ok()) return made.status();
  std::vector<Tried>& tried = *made;
  const double plain = tried[0].step();  // of FSDP2's own collectives
  std::ranges::stable_sort(tried, {}, &Tried::step);
  const auto lossless = std::ranges::find_if(tried, [](const Tried& t) { return !t.lossy(); });
  const Tried& best = lossless->step() <= kWorthLoss * tried[0].step() ? *lossless : tried[0];

  Report report;
  report.text = fmt::format("step {:.1f} ms: {:.2f} times as fast as bf16 gradients and weights\n",
                            best.step() * 1e3, plain / best.step());
  report.text += scene_text(scene, scene.cluster);
  if (allowed.empty() && study.empty())
    report.text +=
        "allowed: bf16 gradients and lossless weights; --allow CODEC allows more for gradients, --allow "
        "'weights.*: CODEC' for weights\n";
  report.text += fmt::format("\ntithe.torch.attach(model, codec=\"{}\", weights=\"{}\")\n\n",
                             best.gradients.codec, best.weights.codec);
  report.text += fmt::format("{:<32} {:<20} {:>12} {:>10} {:>12} {:>12}\n", "gradients", "weights",
                             "step, ms", "times bf16", "gradients, MB", "weights, MB");
  Json list = Json::array();
  for (const Tried& t : tried) {
    report.text += line_of(t, plain);
    list.push_back({{"gradients", t.gradients.codec},
                    {"weights", t.weights.codec},
                    {"lossy", t.lossy()},
                    {"step_ms", t.step() * 1e3},
                    {"exposed_ms", t.answer.outcome.exposed * 1e3},
                    {"gradient_bytes", t.answer.gradient_bytes},
                    {"weight_bytes", t.answer.weight_bytes}});
  }
  report.json = {
      {"model", args.model},           {"cluster", scene.cluster.name()}, {"costs_measured", scene.measured},
      {"costs", scene.source},         {"sharded", args.sharded},         {"gradients", best.gradients.codec},
      {"weights", best.weights.codec}, {"step_ms", best.step() * 1e3},    {"gain", plain / best.step()},
      {"tried", std::move(list)}};
  return report;
}

}  // namespace tithe::cli
