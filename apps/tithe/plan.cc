// SPDX-License-Identifier: Apache-2.0
// tithe plan: what to compress, with what, by whom and in which parts, decided from measured costs.
#include <fmt/format.h>

#include "engine/chosen.h"
#include "file_io.h"
#include "output.h"
#include "plan_page.h"
#include "planner/planner.h"
#include "progress.h"
#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {
namespace {

struct PlanArgs {
  SimulateArgs scene;
  std::vector<std::string> allow, compare;
  std::string policy = "timeline", out, html;
  bool why = false;
};

// Buckets as DistributedDataParallel fills them.
planner::Job job_of(const Scene& scene, double bucket_cap_mb, int lanes) {
  planner::Job job;
  const double speed = speed_of(scene, scene.cluster), forward = scene.model.forward_ms / 1e3 / speed;
  job.compute = forward + scene.model.backward_ms() / 1e3 / speed;
  job.lanes = lanes;
  constexpr std::size_t kFirstBucket = 1 << 20;
  const auto cap = static_cast<std::size_t>(bucket_cap_mb * (1 << 20));
  for (const bench::TensorSpan bucket : bench::buckets_of(scene.model, std::min(kFirstBucket, cap), cap)) {
    for (const bench::ModelTensor& t : bucket)
      job.tensors.push_back({t.name, t.values, t.row, forward + t.ready_ms / 1e3 / speed});
    job.bucket_ends.push_back(job.tensors.size());
  }
  return job;
}

Result<planner::Question> question_of(const PlanArgs& args, const Scene& scene) {
  planner::Question q{{}, scene.cluster, scene.costs, {}};
  for (const std::string& text : args.allow) {
    const Result<planner::Allowance> one = planner::parse_allowance(text);
    if (!one.ok()) return Status(one.status().code(), "--allow: " + one.status().what());
    q.allowed.push_back(*one);
  }
  q.job = job_of(scene, args.scene.bucket_cap_mb, args.scene.session.lanes);
  return q;
}

Json json_of(const Rule& rule) {
  Json out = {{"match", rule.match}};
  if (const std::string size = size_text(rule); !size.empty()) out["size"] = size;
  out["codec"] = to_string(*rule.codec);
  out["strategy"] = rule.strategy;
  out["part_values"] = rule.part_values;
  if (rule.inside) out["inside"] = to_string(*rule.inside);
  if (rule.priority != 0) out["priority"] = rule.priority;
  if (!rule.group.empty()) out["group"] = rule.group;
  return out;
}

std::string table_of(const planner::Planned& p, const planner::Question& q) {
  std::string text =
      fmt::format("{:<40} {:>14} {:<28} {:>10} {:>8}\n", "tensors", "values", "codec", "by", "parts of");
  std::vector<std::size_t> tensors(p.rules.size()), values(p.rules.size());
  SessionOptions options;
  options.codec = "fp32";
  options.rules = p.rules;
  const Result<Choices> choices = engine::choices_of(options, q.cluster.world(), q.cluster.shared());
  for (const planner::JobTensor& t : q.job.tensors) {
    const std::size_t r = choices->rule_of(t.key, t.n);
    ++tensors[r];
    values[r] += t.n;
  }
  for (std::size_t r = 0; r < p.rules.size(); ++r) {
    const Rule& rule = p.rules[r];
    std::string which = rule.match == "*" ? size_text(rule) : rule.match;
    if (which.empty()) which = "all";
    std::string codec = to_string(*rule.codec);
    if (rule.inside) codec += fmt::format(", {} inside", to_string(*rule.inside));
    if (rule.priority != 0) codec += ", first";
    text += fmt::format("{:<40} {:>14} {:<28} {:>10} {:>8}\n",
                        fmt::format("{} of {} values", tensors[r], which), values[r], codec, rule.strategy,
                        rule.group.empty() ? fmt::to_string(rule.part_values) : "group");
  }
  return text;
}

Result<std::string> why_text(const planner::Question& q, const planner::Planned& p, Json& json) {
  const Result<planner::Bounds> bounds = planner::bounds_of(q, p);
  if (!bounds.ok()) return bounds.status();
  std::string text = fmt::format(
      "\nthe step is bound by {}: {:.3f} ms; with twice the bandwidth {:.3f}, half the latency {:.3f}, twice "
      "the cores {:.3f}, "
      "without communication {:.3f}\n",
      bounds->by, bounds->step * 1e3, bounds->twice_bandwidth * 1e3, bounds->half_latency * 1e3,
      bounds->twice_cores * 1e3, bounds->no_communication * 1e3);
  json["bound_by"] = bounds->by;
  json["twice_bandwidth_ms"] = bounds->twice_bandwidth * 1e3;
  json["half_latency_ms"] = bounds->half_latency * 1e3;
  json["twice_cores_ms"] = bounds->twice_cores * 1e3;
  json["no_communication_ms"] = bounds->no_communication * 1e3;
  constexpr std::size_t kMostReasons = 50, kMostShown = 4;
  const Result<std::vector<planner::Reason>> reasons = planner::reasons_of(q, p, kMostReasons);
  if (!reasons.ok()) return reasons.status();
  text += fmt::format(
      "\nwhat each of the {} largest tensors would make of the step, alone with another choice (estimate):\n",
      reasons->size());
  Json list = Json::array();
  for (const planner::Reason& r : *reasons) {
    const planner::JobTensor& t = q.job.tensors[r.tensor];
    text += fmt::format("{:<40} {:>12}", t.key, t.n);
    Json alternatives = Json::array();
    std::size_t shown = 0;
    for (const planner::Alternative& a : r.alternatives) {
      alternatives.push_back({{"option", a.option}, {"step_ms", a.step * 1e3}, {"taken", a.taken}});
      if (shown++ < kMostShown || a.taken)
        text += fmt::format("  {}{} {:.3f}", a.taken ? "*" : "", a.option, a.step * 1e3);
    }
    text += '\n';
    list.push_back({{"tensor", t.key}, {"values", t.n}, {"alternatives", std::move(alternatives)}});
  }
  json["why"] = std::move(list);
  return text;
}

Result<Report> run_plan(const PlanArgs& args) {
  const Result<Scene> scene = scene_of(args.scene);
  if (!scene.ok()) return scene.status();
  const Result<planner::Question> question = question_of(args, *scene);
  if (!question.ok()) return question.status();
  const ProgressLine line("tithe plan");
  std::vector<std::string> policies{args.policy};
  policies.insert(policies.end(), args.compare.begin(), args.compare.end());
  std::vector<planner::Planned> plans;
  for (std::size_t k = 0; k < policies.size(); ++k) {
    progress("policies", k, policies.size());
    Result<planner::Planned> p = planner::plan(*question, policies[k]);
    if (!p.ok()) return Status(p.status().code(), fmt::format("{}: {}", policies[k], p.status().what()));
    plans.push_back(std::move(*p));
  }
  const planner::Planned& best = plans[0];
  Report report;
  report.text =
      fmt::format("{}, {} tensors, {} values; {} ranks on {} hosts of {}\ncosts are {}\n", scene->model.model,
                  scene->model.tensors.size(), scene->model.values(), scene->cluster.world(),
                  scene->cluster.hosts().size(), scene->cluster.name(), scene->source);
  report.json = {{"model", args.scene.model},
                 {"cluster", scene->cluster.name()},
                 {"costs_measured", scene->measured},
                 {"costs", scene->source}};
  if (args.allow.empty())
    report.text +=
        "allowed: fp32 and bf16 alone; --allow CODEC says what else may be lost (docs/choosing.md)\n";
  report.text += best.verdict + "\n\n" + table_of(best, *question);
  Json rules = Json::array();
  for (const Rule& r : best.rules) rules.push_back(json_of(r));
  Json list = Json::array();
  for (const planner::Planned& p : plans)
    list.push_back({{"policy", p.policy},
                    {"step_ms", p.outcome.step * 1e3},
                    {"bf16_ms", p.bf16 * 1e3},
                    {"raw_ms", p.raw * 1e3},
                    {"compute_ms", question->job.compute * 1e3},
                    {"bytes_sent_per_rank", p.outcome.bytes[0]},
                    {"simulated", p.looked_at.size()},
                    {"judged", p.judged},
                    {"estimated", p.estimated},
                    {"verdict", p.verdict}});
  report.json["plans"] = std::move(list);
  report.json["rules"] = std::move(rules);
  if (plans.size() > 1) {
    report.text +=
        fmt::format("\n{:<28} {:>12} {:>10} {:>14}\n", "policy", "step, ms", "of bf16", "sent, MB");
    for (const planner::Planned& p : plans)
      report.text += fmt::format("{:<28} {:>12.3f} {:>10.3f} {:>14.3f}\n", p.policy, p.outcome.step * 1e3,
                                 p.outcome.step / p.bf16, p.outcome.bytes[0] / 1e6);
  }
  if (args.why) {
    Result<std::string> why = why_text(*question, best, report.json);
    if (!why.ok()) return why.status();
    report.text += *why;
  }
  if (!args.html.empty()) {
    const Result<std::string> page = plan_page(fmt::format("{} on {} ranks of {}", scene->model.model,
                                                           scene->cluster.world(), scene->cluster.name()),
                                               *question, best);
    if (!page.ok()) return page.status();
    TITHE_TRY(write_file(args.html, {reinterpret_cast<const std::uint8_t*>(page->data()), page->size()}));
  }
  if (!args.out.empty()) {
    const std::string text = to_json(best.rules) + "\n";
    TITHE_TRY(write_file(args.out, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
  }
  return report;
}

Run declare(CLI::App& app) {
  auto args = std::make_shared<PlanArgs>();
  app.add_option("--model", args->scene.model,
                 "a name of models/, or the path of such a file; :scale=0.1 behind it shrinks it")
      ->required();
  app.add_option("--cluster", args->scene.cluster, "a name of clusters/, or the path of a .toml file");
  app.add_option("--link", args->scene.link,
                 "instead of a cluster: what each host has, such as 1Gb/s, with --ranks");
  app.add_option("--hosts", args->scene.hosts,
                 "with --link: hosts and ranks on each, such as 4x8; else each rank has its own");
  app.add_option("--ranks", args->scene.ranks, "so many of the cluster's ranks, or of its kind")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--profile", args->scene.profile, "what `tithe profile` wrote: costs of steps, and links");
  app.add_flag("--foreign-profile", args->scene.foreign_profile,
               "take a profile of another machine or version");
  app.add_option("--lanes", args->scene.session.lanes, "compute threads per rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--bucket-cap-mb", args->scene.bucket_cap_mb, "of DistributedDataParallel's buckets, in MiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--policy", args->policy,
                 "how to decide: timeline, secopa, dragonn, threshold:BYTES, bf16, raw (docs/plan.md)")
      ->capture_default_str();
  app.add_option("--compare", args->compare, "further policies, beside it");
  app.add_option("--allow", args->allow,
                 "a codec that may be used beside fp32 and bf16; 'PATTERN: CODEC' for tensors by key");
  app.add_flag("--why", args->why, "what bounds the step, and for each large tensor what else it could be");
  add_output(app, "-o,--out", args->out, "write the plan as a file of rules (docs/choices.md)");
  add_output(app, "--html", args->html, "write its timeline as a page, beside the one without compression");
  return [args] { return run_plan(*args); };
}

}  // namespace

const Verb plan_verb = {.name = "plan",
                        .doc = "what to compress, with what and how cut, from measured costs",
                        .declare = declare};

}  // namespace tithe::cli
