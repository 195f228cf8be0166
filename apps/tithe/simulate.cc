// SPDX-License-Identifier: Apache-2.0
// tithe simulate: what a training step would take on a cluster that need not exist, by the engine's own steps.
#include <fmt/format.h>

#include <cmath>

#include "file_io.h"
#include "progress.h"
#include "simulate_setting.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr double kBitsPerByte = 8;

Json json_of(const Answer& a) {
  return {{"setting", a.setting.label},
          {"ranks", a.world},
          {"step_ms", a.outcome.step * 1e3},
          {"compute_ms", a.compute * 1e3},
          {"exposed_ms", a.outcome.exposed * 1e3},
          {"efficiency", a.efficiency()},
          {"bytes_sent_per_rank", a.outcome.bytes.empty() ? 0.0 : a.outcome.bytes[0]},
          {"encode_ms", a.outcome.encoded * 1e3},
          {"merge_ms", a.outcome.merged * 1e3},
          {"cpu_s_per_rank", a.outcome.processor},
          {"busiest_link", a.outcome.busiest},
          {"busiest_link_ms", a.outcome.carried_most * 1e3},
          {"ranks_simulated", a.outcome.ranks}};
}

std::string line_of(const Answer& a) {
  return fmt::format("{:<28} {:>10.3f} {:>10.3f} {:>6.1f} % {:>11.3f} {:>9.3f} {:>9.3f} {:>10.3f}  {}\n",
                     a.setting.label, a.outcome.step * 1e3, a.outcome.exposed * 1e3, 100 * a.efficiency(),
                     (a.outcome.bytes.empty() ? 0.0 : a.outcome.bytes[0]) / 1e6, a.outcome.encoded * 1e3,
                     a.outcome.merged * 1e3, a.outcome.carried_most * 1e3, a.outcome.busiest);
}

constexpr std::string_view kHead =
    "setting                         step, ms    exposed   effic.    sent, MB   enc, ms   mrg, ms   link, ms "
    " busiest "
    "link\n";

std::string scene_text(const Scene& scene, const sim::Cluster& cluster) {
  return fmt::format("{}, {} tensors, {} values; {} ranks on {} hosts of {}\ncosts are {}\n",
                     scene.model.model, scene.model.tensors.size(), scene.model.values(), cluster.world(),
                     cluster.hosts().size(), cluster.name(), scene.source);
}

Result<Report> one(const Scene& scene, const std::vector<Setting>& settings, const SimulateArgs& args) {
  Report report;
  report.text = scene_text(scene, scene.cluster) + std::string(kHead);
  report.json = {{"model", args.model},
                 {"cluster", scene.cluster.name()},
                 {"costs_measured", scene.measured},
                 {"costs", scene.source}};
  Json list = Json::array();
  for (std::size_t k = 0; k < settings.size(); ++k) {
    progress("settings", k, settings.size());
    const bool events = k == 0 && !args.trace.empty();
    const Result<Answer> answer = simulate_one(scene, settings[k], scene.cluster, args, events);
    if (!answer.ok()) return answer.status();
    if (events) {
      const std::string text = chrome_trace(*answer);
      TITHE_TRY(write_file(args.trace, {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
    }
    report.text += line_of(*answer);
    list.push_back(json_of(*answer));
  }
  report.json["settings"] = std::move(list);
  return report;
}

Result<Report> swept(const Scene& scene, const std::vector<Setting>& settings, const SimulateArgs& args) {
  std::vector<double> at;
  std::string unit;
  if (args.sweep == "bandwidth") {
    at = {0.1, 0.3, 1, 3, 10, 30, 100};
    unit = "Gbit/s of a host's link";
  } else if (args.sweep == "ranks") {
    for (int n = 2; n <= std::max(2, scene.cluster.world()); n *= 2) at.push_back(n);
    unit = "ranks";
  } else {
    at = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3};
    unit = "ratio";
  }
  Report report;
  report.text = scene_text(scene, scene.cluster) + fmt::format("{:<14}", unit.substr(0, unit.find(' ')));
  for (const Setting& s : settings) report.text += fmt::format(" {:>24}", s.label + ", ms");
  report.text += '\n';
  Json list = Json::array();
  std::vector<std::vector<Answer>> answers;
  for (std::size_t k = 0; k < at.size(); ++k) {
    progress("points", k, at.size());
    sim::Cluster cluster = scene.cluster;
    if (args.sweep == "bandwidth") cluster = cluster.with_rate(at[k] * 1e9 / kBitsPerByte);
    if (args.sweep == "ranks") {
      const Result<sim::Cluster> sized = cluster.sized(static_cast<int>(at[k]));
      if (!sized.ok()) return sized.status();
      cluster = *sized;
    }
    report.text += fmt::format("{:<14.4g}", at[k]);
    Json row = {{"at", at[k]}};
    Json settings_json = Json::array();
    answers.emplace_back();
    for (Setting s : settings) {
      if (args.sweep == "ratio") {
        const std::string name = s.session.codec.substr(0, s.session.codec.find(':'));
        s.session.codec = fmt::format("{}:ratio={}", name, at[k]);
      }
      Result<Answer> answer = simulate_one(scene, s, cluster, args, false);
      if (!answer.ok()) return answer.status();
      report.text +=
          fmt::format(" {:>16.3f} ({:>3.0f} %)", answer->outcome.step * 1e3, 100 * answer->efficiency());
      settings_json.push_back(json_of(*answer));
      answers.back().push_back(std::move(*answer));
    }
    row["settings"] = std::move(settings_json);
    list.push_back(std::move(row));
    report.text += '\n';
  }
  report.json = {
      {"model", args.model}, {"cluster", scene.cluster.name()}, {"sweep", args.sweep}, {"points", list}};
  if (!args.html.empty()) {
    const std::string page = sweep_html(
        fmt::format("{} on {}: {}", scene.model.model, scene.cluster.name(), args.sweep), unit, at, answers);
    TITHE_TRY(write_file(args.html, {reinterpret_cast<const std::uint8_t*>(page.data()), page.size()}));
  }
  return report;
}

Result<Report> simulate(const SimulateArgs& args) {
  if (!args.html.empty() && args.sweep.empty())
    return Status(Code::kInvalid, "--html: draws a --sweep: give one");
  if (!args.trace.empty() && !args.sweep.empty())
    return Status(Code::kInvalid, "--trace: of one step, not of a --sweep");
  const Result<Scene> scene = scene_of(args);
  if (!scene.ok()) return scene.status();
  const Result<std::vector<Setting>> settings = settings_of(args);
  if (!settings.ok()) return settings.status();
  const ProgressLine line("tithe simulate");
  return args.sweep.empty() ? one(*scene, *settings, args) : swept(*scene, *settings, args);
}

Run declare(CLI::App& app) {
  auto args = std::make_shared<SimulateArgs>();
  app.add_option("--model", args->model,
                 "a name of models/, or the path of such a file; :scale=0.1 behind it shrinks it")
      ->required();
  app.add_option("--cluster", args->cluster, "a name of clusters/, or the path of a .toml file");
  app.add_option("--link", args->link,
                 "instead of a cluster: what each host has, such as 1Gb/s, with --ranks");
  app.add_option("--ranks", args->ranks, "so many of the cluster's ranks, or of its kind")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--profile", args->profile, "what `tithe profile` wrote: costs of steps, and links");
  app.add_flag("--foreign-profile", args->foreign_profile, "take a profile of another machine or version");
  app.add_option("--codec", args->session.codec, "with its parameters, e.g. topk:ratio=0.01")
      ->capture_default_str();
  app.add_option("--strategy", args->session.strategy, "who sends what to whom (docs/strategies.md)")
      ->capture_default_str();
  app.add_option("--choices", args->choices_file, "a file of rules (docs/choices.md)");
  app.add_option("--compare", args->compare, "further settings to put beside it: CODEC, or CODEC@STRATEGY");
  app.add_option("--lanes", args->session.lanes, "compute threads per rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--servers", args->session.servers, "so many ranks, the last ones, only sum for the others")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--bucket-cap-mb", args->bucket_cap_mb, "of DistributedDataParallel's buckets, in MiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--sweep", args->sweep, "a table over it")
      ->check(CLI::IsMember({"bandwidth", "ranks", "ratio"}));
  app.add_option("--html", args->html, "also write the sweep as a page of its own, with its curves");
  app.add_option("--trace", args->trace, "write rank 0's step in Chrome's trace format (Perfetto opens it)");
  return [args] { return simulate(*args); };
}

}  // namespace

const Verb simulate_verb = {.name = "simulate",
                            .doc = "what a training step would take on a cluster, by the engine's own steps",
                            .declare = declare};

}  // namespace tithe::cli
