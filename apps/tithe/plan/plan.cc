// SPDX-License-Identifier: Apache-2.0
// tithe plan: decides what to compress, with which codec, strategy and part size, from measured costs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "advisor/planner/why.h"
#include "advisor/planner/windows.h"
#include "codec_advice.h"
#include "engine/peers/session_config.h"
#include "file_io.h"
#include "output.h"
#include "plan_page.h"
#include "plan_sharded.h"
#include "progress.h"
#include "simulate_sharded.h"
#include "simulate_windows.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr std::string_view kPolicy = "timeline";

struct PlanArgs {
  SimulateArgs scene;
  std::vector<std::string> allow, compare;
  std::string optimizer, policy{kPolicy}, out, html;
  bool why = false;
};

// The job with buckets as DistributedDataParallel fills them.
planner::Job job_of(const Scene& scene, double bucket_cap_mb, int lanes) {
  planner::Job job;
  const double speed = speed_of(scene, scene.cluster), forward = scene.model.forward_ms / 1e3 / speed;
  job.compute = forward + scene.model.backward_ms() / 1e3 / speed;
  job.lanes = lanes;
  for (const bench::TensorSpan bucket : bench::buckets_of(scene.model, bucket_cap_mb)) {
    for (const bench::ModelTensor& t : bucket)
      job.tensors.push_back({t.name, t.values, t.row, forward + t.ready_ms / 1e3 / speed});
    job.bucket_ends.push_back(job.tensors.size());
  }
  return job;
}

// The codecs of --allow.
Result<std::vector<Allowance>> allowed_by(const std::vector<std::string>& allow) {
  std::vector<Allowance> out;
  for (const std::string& text : allow) {
    const Result<Allowance> one = parse_allowance(text);
    if (!one.ok()) return Status(one.status().code(), "--allow: " + one.status().what());
    out.push_back(*one);
  }
  return out;
}

// The codecs of --optimizer.
Result<std::vector<Allowance>> studied_under(const std::string& optimizer) {
  std::vector<Allowance> out;
  if (optimizer.empty()) return out;
  const Result<std::vector<std::string_view>> near = within_noise(optimizer);
  if (!near.ok()) return Status(near.status().code(), "--optimizer: " + near.status().what());
  for (const std::string_view spec : *near)
    if (Result<Allowance> one = parse_allowance(spec); one.ok() && !always_allowed(one->codec))
      out.push_back(*std::move(one));
  return out;
}

Result<planner::PlanQuery> question_of(const PlanArgs& args, const Scene& scene,
                                       std::vector<Allowance> allowed, const std::vector<Allowance>& study) {
  planner::PlanQuery q{{}, scene.cluster, scene.costs, std::move(allowed)};
  q.allowed.insert(q.allowed.end(), study.begin(), study.end());
  q.job = job_of(scene, args.scene.bucket_cap_mb, args.scene.session.lanes.value_or(0));
  return q;
}

// One query per fragment of local steps; none without --every.
std::vector<planner::PlanQuery> slices_of(const planner::PlanQuery& whole, const planner::Windows& windows,
                                          const Scene& scene, const SimulateArgs& args) {
  std::vector<planner::PlanQuery> out;
  if (args.every == 0) return out;
  std::size_t first = 0;
  for (const std::size_t tensors : fragments_of(scene.model, static_cast<std::size_t>(args.fragments))) {
    out.push_back(slice_of(whole, first, first + tensors, windows));
    first += tensors;
  }
  return out;
}

// The plans of all policies; --policy comes first.
struct Plans {
  std::vector<planner::Planned> of;
  std::vector<planner::WindowsPlan> windows;  // with --every: the plans that these are the means of
};
Result<Plans> plans_of(const PlanArgs& args, const planner::PlanQuery& query,
                       std::span<const planner::PlanQuery> slices, const planner::Windows& windows) {
  std::vector<std::string> policies{args.policy};
  policies.insert(policies.end(), args.compare.begin(), args.compare.end());
  Plans plans;
  for (std::size_t k = 0; k < policies.size(); ++k) {
    progress("policies", k, policies.size());
    const auto failed = [&](const Status& s) {
      return Status(s.code(), fmt::format("{}: {}", policies[k], s.what()));
    };
    if (slices.empty()) {
      Result<planner::Planned> p = planner::plan(query, policies[k], k == 0 ? nullptr : plans.of.data());
      if (!p.ok()) return failed(p.status());
      plans.of.push_back(std::move(*p));
    } else {
      Result<planner::WindowsPlan> p =
          planner::plan_windows(query, slices, windows, policies[k], k == 0 ? nullptr : plans.windows.data());
      if (!p.ok()) return failed(p.status());
      plans.of.push_back(p->mean);
      plans.windows.push_back(std::move(*p));
    }
  }
  return plans;
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

std::string table_of(const planner::Planned& p, const planner::PlanQuery& q) {
  std::string text =
      fmt::format("{:<40} {:>14} {:<28} {:>10} {:>8}\n", "tensors", "values", "codec", "by", "parts of");
  std::vector<std::size_t> tensors(p.rules.size()), values(p.rules.size());
  SessionOptions options;
  options.codec = "fp32";
  options.rules = p.rules;
  options.link = q.cluster.link_text(q.costs);
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

std::string_view bound_text(std::string_view by) {
  if (by == "uplink" || by == "downlink" || by == "latency") return "the network";
  if (by == "links inside hosts") return "the network inside hosts";
  if (by == "the lanes") return "encoding and merging on the cores";
  return by == "compute" ? "computing: communication is hidden" : "the engine";
}

// "144 of 589824 values, such as encoder.0.weight"
std::string members_text(const planner::PlanQuery& q, const std::vector<std::size_t>& tensors) {
  std::size_t least = kMaxValues, most = 0;
  for (const std::size_t t : tensors) {
    least = std::min(least, q.job.tensors[t].n);
    most = std::max(most, q.job.tensors[t].n);
  }
  const std::string& first = q.job.tensors[tensors[0]].key;
  if (tensors.size() == 1) return fmt::format("{}, {} values", first, most);
  return fmt::format("{} of {}{} values, such as {}", tensors.size(), least,
                     least == most ? "" : fmt::format(" to {}", most), first);
}

// "+0.014"; a change that rounds to zero is shown as "+0.000".
std::string change_text(double ms) {
  const std::string text = fmt::format("{:+.3f}", ms);
  return text == "-0.000" ? "+0.000" : text;
}

// The text of --why: the bottleneck, then for each class of tensors the change of the step with another choice.
Result<std::string> why_text(const planner::PlanQuery& q, const planner::Planned& p, Json& json) {
  const Result<planner::Bounds> bounds = planner::bounds_of(q, p);
  if (!bounds.ok()) return bounds.status();
  const bool named = bounds->by == "uplink" || bounds->by == "downlink" || bounds->by == "latency";
  std::string text = fmt::format(
      "the step is bound by {}{}: {:.3f} ms; with twice the bandwidth {:.3f}, half the latency {:.3f}, twice "
      "the cores "
      "{:.3f}, without communication {:.3f}\n",
      bound_text(bounds->by), named ? fmt::format(" ({})", bounds->by) : "", bounds->step * 1e3,
      bounds->twice_bandwidth * 1e3, bounds->half_latency * 1e3, bounds->twice_cores * 1e3,
      bounds->no_communication * 1e3);
  json["bound_by"] = bounds->by;
  json["twice_bandwidth_ms"] = bounds->twice_bandwidth * 1e3;
  json["half_latency_ms"] = bounds->half_latency * 1e3;
  json["twice_cores_ms"] = bounds->twice_cores * 1e3;
  json["no_communication_ms"] = bounds->no_communication * 1e3;
  const Result<planner::Reasons> reasons = planner::reasons_of(q, p);
  if (!reasons.ok()) return reasons.status();
  text +=
      fmt::format("\nwhat the step would gain or lose, ms, if these tensors alone had another choice ({}):\n",
                  p.estimated ? "estimated" : "simulated in the whole");
  Json list = Json::array();
  for (const planner::Reason& r : reasons->rows) {
    text += fmt::format("{}: {}\n   ", members_text(q, r.tensors), r.choice);
    Json alternatives = Json::array();
    for (const planner::Alternative& a : r.alternatives) {
      const bool far = a.step == sim::kNever;
      const double change = (a.step - p.outcome.step) * 1e3;
      alternatives.push_back({{"option", a.option},
                              {"step_ms", far ? Json(nullptr) : Json(a.step * 1e3)},
                              {"change_ms", far ? Json(nullptr) : Json(change)}});
      text += far ? fmt::format(" {} more than {:+.3f} ", a.option, p.outcome.step * 1e3)
                  : fmt::format(" {} {} ", a.option, change_text(change));
    }
    text += r.alternatives.empty() ? " no other is allowed\n" : "\n";
    std::size_t values = 0;
    for (const std::size_t t : r.tensors) values += q.job.tensors[t].n;
    list.push_back({{"tensors", r.tensors.size()},
                    {"first", q.job.tensors[r.tensors[0]].key},
                    {"values", values},
                    {"choice", r.choice},
                    {"alternatives", std::move(alternatives)}});
  }
  if (reasons->left_out > 0)
    text += fmt::format("{} smaller tensors were not looked at\n", reasons->left_out);
  json["why"] = std::move(list);
  return text;
}

Result<Report> run_plan(const PlanArgs& args) {
  TITHE_TRY(check_windows(args.scene));
  TITHE_TRY(check_sharded(args.scene));
  if (!args.scene.sharded.empty() && (args.why || !args.html.empty() || !args.out.empty() ||
                                      !args.compare.empty() || args.policy != kPolicy))
    return Status(
        Code::kInvalid,
        "--sharded: the plan is the codec and the weights of attach(): leave --why, --html, --out, --compare "
        "and --policy out");
  if (args.scene.fragments > 1 && (args.why || !args.html.empty()))
    return Status(Code::kInvalid, "--why and --html show one exchange: leave --fragments out");
  TITHE_TRY(check_folders(std::array{args.out, args.html}));
  const Result<Scene> scene = scene_of(args.scene);
  if (!scene.ok()) return scene.status();
  const Result<std::vector<Allowance>> allowed = allowed_by(args.allow),
                                       study = studied_under(args.optimizer);
  if (!allowed.ok()) return allowed.status();
  if (!study.ok()) return study.status();
  if (!args.scene.sharded.empty()) return plan_sharded(*scene, args.scene, *allowed, *study);
  const Result<planner::PlanQuery> query = question_of(args, *scene, *allowed, *study);
  if (!query.ok()) return query.status();
  TITHE_TRY(check_fragments(args.scene, scene->model));
  const planner::Windows windows{static_cast<double>(args.scene.every),
                                 static_cast<double>(args.scene.fragments),
                                 static_cast<double>(args.scene.delay)};
  const std::vector<planner::PlanQuery> slices = slices_of(*query, windows, *scene, args.scene);
  const Result<Plans> made = plans_of(args, *query, slices, windows);
  if (!made.ok()) return made.status();
  const std::vector<planner::Planned>& plans = made->of;
  const planner::Planned& best = plans[0];
  // Pictures and reasons show one exchange: with --every, that of one window.
  const planner::PlanQuery& shown_question = slices.empty() ? *query : slices[0];
  const planner::Planned& shown = slices.empty() ? best : made->windows[0].slices[0];
  Report report;
  report.text = best.verdict + "\n" + scene_text(*scene, scene->cluster) + windows_line(args.scene);
  report.json = {{"model", args.scene.model},
                 {"cluster", scene->cluster.name()},
                 {"costs_measured", scene->measured},
                 {"costs", scene->source}};
  if (args.scene.every > 0)
    report.json.update(
        {{"every", args.scene.every}, {"fragments", args.scene.fragments}, {"delay", args.scene.delay}});
  std::vector<std::string> names;
  for (const Allowance& one : query->allowed) names.push_back(to_string(one));
  report.json["allowed"] = names;
  if (!args.optimizer.empty())
    report.text += fmt::format(
        "allowed: fp32, bf16 and zip; and the codecs that train like fp32 under {} (docs/start/choosing.md): "
        "{}\n",
        args.optimizer, fmt::join(names, ", "));
  else if (args.allow.empty())
    report.text +=
        "allowed: fp32, bf16 and zip alone; --allow CODEC or --optimizer NAME allows more codecs "
        "(docs/start/choosing.md)\n";
  std::string why;
  if (args.why) {
    Result<std::string> text = why_text(shown_question, shown, report.json);
    if (!text.ok()) return text.status();
    why = *std::move(text);
    report.text += why;
  }
  report.text += "\n" + table_of(best, *query);
  Json rules = Json::array();
  for (const Rule& r : best.rules) rules.push_back(json_of(r));
  Json list = Json::array();
  for (const planner::Planned& p : plans)
    list.push_back({{"policy", p.policy},
                    {"step_ms", p.outcome.step * 1e3},
                    {"bf16", p.bf16.name},
                    {"bf16_ms", p.bf16.step * 1e3},
                    {"fp32", p.fp32.name},
                    {"fp32_ms", p.fp32.step * 1e3},
                    {"single", p.single.name},
                    {"single_ms", p.single.step * 1e3},
                    {"lossless_ms", p.lossless * 1e3},
                    {"gain", p.gain()},
                    {"compute_ms", query->job.compute * 1e3},
                    {"bytes_sent_per_rank", p.outcome.bytes[0]},
                    {"simulated", p.simulated},
                    {"judged", p.judged},
                    {"estimated", p.estimated},
                    {"verdict", p.verdict}});
  report.json["plans"] = std::move(list);
  report.json["rules"] = std::move(rules);
  if (plans.size() > 1) {
    report.text +=
        fmt::format("\n{:<28} {:>12} {:>14} {:>14}\n", "policy", "step, ms", "times bf16's", "sent, MB");
    for (const planner::Planned& p : plans)
      report.text += fmt::format("{:<28} {:>12.3f} {:>14.2f} {:>14.3f}\n", p.policy, p.outcome.step * 1e3,
                                 p.bf16.step / p.outcome.step, p.outcome.bytes[0] / 1e6);
  }
  if (!args.html.empty()) {
    const Result<std::string> page = plan_page(fmt::format("{} on {} ranks of {}", scene->model.model,
                                                           scene->cluster.world(), scene->cluster.name()),
                                               shown_question, shown, why);
    if (!page.ok()) return page.status();
    TITHE_TRY(write_file(args.html, *page));
  }
  if (!args.out.empty()) {
    const std::string text = to_json(best.rules) + "\n";
    TITHE_TRY(write_file(args.out, text));
  }
  return report;
}

Run declare_plan(CLI::App& app) {
  auto args = std::make_shared<PlanArgs>();
  app.add_option("--model", args->scene.model,
                 "a name of data/models/, or the path of such a file; :scale=0.1 behind it shrinks it")
      ->required();
  app.add_option("--cluster", args->scene.cluster, "a name of data/clusters/, or the path of a .toml file");
  app.add_option("--link", args->scene.link,
                 "instead of --cluster: the link of each host, such as 1Gb/s; needs --ranks or --hosts");
  app.add_option("--hosts", args->scene.hosts,
                 "with --link: hosts and ranks on each, such as 4x8; without it each rank has a host");
  app.add_option("--ranks", args->scene.ranks,
                 "number of ranks: the first ranks of the cluster, or more hosts of its kind")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--profile", args->scene.profile,
                 "a file that `tithe profile` wrote: costs of steps, and links");
  app.add_flag("--foreign-profile", args->scene.foreign_profile,
               "take a profile of another machine or version");
  app.add_option("--lanes", args->scene.session.lanes,
                 "compute threads per rank; without it as many as its host's cores leave free")
      ->check(CLI::Range(1, 64));
  add_windows(app, args->scene);
  add_sharded(app, args->scene);
  app.add_option("--bucket-cap-mb", args->scene.bucket_cap_mb,
                 "capacity of DistributedDataParallel's buckets, in MiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--policy", args->policy,
                 "the policy: timeline, secopa, dragonn, threshold:BYTES, bf16, fp32 (docs/guide/plan.md)")
      ->capture_default_str();
  app.add_option("--compare", args->compare, "further policies to compare with");
  app.add_option("--allow", args->allow,
                 "a codec to allow in addition to fp32, bf16 and zip; 'PATTERN: CODEC' for tensors by key");
  app.add_option("--optimizer", args->optimizer,
                 "the optimizer of the job, as in docs/start/choosing.md, such as AdamW: allows the codecs "
                 "that train like fp32 under it");
  app.add_flag("--why", args->why,
               "print the bound of the step, and the step with another choice for similar tensors");
  add_output(app, "-o,--out", args->out, "write the plan as a file of rules (docs/guide/choices.md)");
  add_output(app, "--html", args->html, "write its timeline as a page, beside the one without compression");
  return [args] { return run_plan(*args); };
}

}  // namespace

const Verb plan_verb = {.name = "plan",
                        .doc = "choose codecs, strategies and part sizes from measured costs",
                        .declare = declare_plan};

}  // namespace tithe::cli
