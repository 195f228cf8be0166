// SPDX-License-Identifier: Apache-2.0
// tithe simulate: predicts a training step on a cluster that need not exist, with the engine's own programs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "advisor/measure/truth_band.h"
#include "codec_options.h"
#include "file_io.h"
#include "output.h"
#include "progress.h"
#include "simulate_setting.h"
#include "simulate_sharded.h"
#include "simulate_windows.h"
#include "verb.h"

namespace tithe::cli {
std::pair<double, double> band_ms(const Answer& answer) {
  static const bench::TruthBand band = bench::truth_band(bench::truth_cases());
  const sim::Seconds step = answer.outcome.step;
  // A step is never shorter than its computation, which is given.
  return {std::max(answer.compute, step * band.low) * 1e3, step * band.high * 1e3};
}

namespace {

Json json_of(const Answer& a) {
  const auto [low, high] = band_ms(a);
  return {{"setting", a.setting.label},
          {"ranks", a.world},
          {"step_ms", a.outcome.step * 1e3},
          {"step_ms_between", {low, high}},
          {"compute_ms", a.compute * 1e3},
          {"exposed_ms", a.outcome.exposed * 1e3},
          {"efficiency", a.efficiency()},
          {"bytes_sent_per_rank", a.outcome.bytes.empty() ? 0.0 : a.outcome.bytes[0]},
          {"encode_ms", a.outcome.encoded * 1e3},
          {"merge_ms", a.outcome.merged * 1e3},
          {"cpu_s_per_rank", a.outcome.processor},
          {"busiest_link", a.outcome.busiest},
          {"busiest_link_ms", a.outcome.max_link_busy * 1e3},
          {"gradient_bytes", a.gradient_bytes > 0 ? Json(a.gradient_bytes) : Json()},  // of sharded models
          {"weight_bytes", a.weight_bytes > 0 ? Json(a.weight_bytes) : Json()},
          {"lanes", a.outcome.lanes},  // compute lanes of a rank
          {"ranks_simulated", a.outcome.ranks},
          {"exchange_ms", a.exchange > 0 ? Json(a.exchange * 1e3) : Json()}};  // of local steps
}

constexpr std::size_t kMinLabelWidth = 28;
std::size_t label_width(std::span<const Setting> settings) {
  std::size_t width = kMinLabelWidth;
  for (const Setting& s : settings) width = std::max(width, s.label.size());
  return width;
}

std::string line_of(const Answer& a, std::size_t label) {
  const auto [low, high] = band_ms(a);
  return fmt::format(
      "{:<{}} {:>10.3f} {:>21} {:>10.3f} {:>6.1f} % {:>11.3f} {:>9.3f} {:>9.3f} {:>10.3f}  {}\n",
      a.setting.label, label, a.outcome.step * 1e3, fmt::format("{:.1f} to {:.1f}", low, high),
      a.outcome.exposed * 1e3, 100 * a.efficiency(),
      (a.outcome.bytes.empty() ? 0.0 : a.outcome.bytes[0]) / 1e6, a.outcome.encoded * 1e3,
      a.outcome.merged * 1e3, a.outcome.max_link_busy * 1e3, a.outcome.busiest);
}

constexpr std::string_view kHead =
    "    step, ms       8 of 10 between    exposed   effic.    sent, MB   enc, "
    "ms   mrg, ms   link, ms "
    " busiest "
    "link\n";

// Notes on assumed payload sizes, and on the origin of the ranges.
std::string notes(const Scene& scene, std::span<const Answer> answers) {
  std::string text;
  if (const std::vector<std::string> sizes = assumed_sizes(scene, answers); !sizes.empty())
    text += fmt::format("sizes of {} depend on the gradients: those of bell-shaped ones are assumed\n",
                        fmt::join(sizes, ", "));
  const bench::TruthBand band = bench::truth_band(bench::truth_cases());
  return text + fmt::format(
                    "8 of 10 measured steps took {:.2f} to {:.2f} times their prediction ({} cases, "
                    "lab/results/truth.md)\n",
                    band.low, band.high, band.cases);
}

// The same text on one line.
std::string scene_line(std::string text) {
  text.pop_back();
  text.replace(text.find('\n'), 1, "; ");
  return text;
}

Result<Report> one(const Scene& scene, const std::vector<Setting>& settings, const SimulateArgs& args) {
  Report report;
  const std::string about = scene_text(scene, scene.cluster);
  const std::size_t label = label_width(settings);
  report.text = about + fmt::format("{:<{}}{}", "setting", label, kHead);
  report.json = {{"model", args.model},
                 {"cluster", scene.cluster.name()},
                 {"costs_measured", scene.measured},
                 {"costs", scene.source}};
  Json list = Json::array();
  std::vector<Answer> answers;
  for (std::size_t k = 0; k < settings.size(); ++k) {
    progress("settings", k, settings.size());
    const bool events = k == 0 && !args.trace.empty();
    Result<Answer> answer = simulate_one(scene, settings[k], scene.cluster, args, events);
    if (!answer.ok()) return answer.status();
    if (events) TITHE_TRY(write_file(args.trace, chrome_trace(*answer)));
    report.text += line_of(*answer, label);
    list.push_back(json_of(*answer));
    answers.push_back(std::move(*answer));
  }
  report.json["settings"] = std::move(list);
  report.json["assumed_sizes"] = assumed_sizes(scene, answers);
  report.text += windows_text(args, answers) + sharded_text(args, answers) + notes(scene, answers);
  const std::string title = fmt::format("{} on {}", scene.model.model, scene.cluster.name());
  if (!args.html.empty()) TITHE_TRY(write_file(args.html, compare_page(title, scene_line(about), answers)));
  return report;
}

// Sets the points of a sweep.
void set_points(const Scene& scene, const SimulateArgs& args, Sweep& sweep) {
  if (args.sweep == "bandwidth") {
    sweep.at = {0.1, 0.3, 1, 3, 10, 30, 100};
    sweep.unit = "Gbit/s of a host's link";
  } else if (args.sweep == "ranks") {
    for (int n = 2; n <= std::max(2, scene.cluster.world()); n *= 2) sweep.at.push_back(n);
    sweep.unit = "ranks";
  } else {
    sweep.at = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3};
    sweep.unit = "ratio";
  }
}

Result<Answer> simulate_point(const Scene& scene, Setting setting, const SimulateArgs& args, double at) {
  sim::Cluster cluster = scene.cluster;
  if (args.sweep == "bandwidth") cluster = cluster.with_rate(at * 1e9 / 8);
  if (args.sweep == "ranks") {
    const Result<sim::Cluster> sized = cluster.sized(static_cast<int>(at));
    if (!sized.ok()) return sized.status();
    cluster = *sized;
  }
  if (args.sweep == "ratio") {
    const std::string name = setting.session.codec.substr(0, setting.session.codec.find(':'));
    setting.session.codec = fmt::format("{}:ratio={}", name, at);
  }
  return simulate_one(scene, setting, cluster, args, false);
}

// A warning for each setting whose step a faster link would hardly shorten.
std::string beside_the_link(const Scene& scene, const Sweep& sweep) {
  constexpr double kBound = 0.5;    // of the exposed time: the link is busy for less
  constexpr double kLittle = 0.05;  // of the computation
  const auto bound = [&](const Answer& a) {
    return a.outcome.exposed > kLittle * a.compute && a.outcome.max_link_busy < kBound * a.outcome.exposed;
  };
  std::string text;
  for (std::size_t s = 0; s < sweep.answers[0].size(); ++s) {
    std::size_t from = sweep.at.size();
    while (from > 0 && bound(sweep.answers[from - 1][s])) --from;
    if (from == sweep.at.size()) continue;
    const sim::Outcome& last = sweep.answers.back()[s].outcome;
    text += fmt::format(
        "warning: {} from {:g} Gbit/s on: costs beside the link bound the step. At {:g} Gbit/s communication "
        "adds {:.1f} ms to computing, and the busiest link works for {:.1f} ms\n",
        sweep.answers[0][s].setting.label, sweep.at[from], sweep.at.back(), last.exposed * 1e3,
        last.max_link_busy * 1e3);
  }
  if (text.empty()) return text;
  const sim::Cluster& cluster = scene.cluster;
  text += fmt::format("beside the link: {:.2f} ns per byte that a rank sends or receives",
                      (scene.costs.send_byte + scene.costs.receive_byte) * 1e9 / 2);
  if (cluster.hosts().size() > 1 && cluster.machine_cores().size() == 1)
    text += fmt::format(", and {} ranks share {} cores", cluster.world(), cluster.machine_cores()[0]);
  return text +
         "; --profile of the hosts themselves, or --cluster with cores of their own, has other costs\n";
}

// Simulates all settings at all points of the sweep.
Result<Report> swept(const Scene& scene, const std::vector<Setting>& settings, const SimulateArgs& args) {
  Sweep sweep;
  set_points(scene, args, sweep);
  Report report;
  const std::string about = scene_text(scene, scene.cluster);
  report.text = about + fmt::format("{:<14}", sweep.unit.substr(0, sweep.unit.find(' ')));
  for (const Setting& s : settings) report.text += fmt::format(" {:>24}", s.label + ", ms");
  report.text += '\n';
  Json list = Json::array();
  for (std::size_t k = 0; k < sweep.at.size(); ++k) {
    report.text += fmt::format("{:<14.4g}", sweep.at[k]);
    Json settings_json = Json::array();
    sweep.answers.emplace_back();
    for (const Setting& s : settings) {
      progress("points", sweep.answers.back().size() + k * settings.size(),
               sweep.at.size() * settings.size());
      Result<Answer> answer = simulate_point(scene, s, args, sweep.at[k]);
      if (!answer.ok()) return answer.status();
      report.text +=
          fmt::format(" {:>16.3f} ({:>3.0f} %)", answer->outcome.step * 1e3, 100 * answer->efficiency());
      settings_json.push_back(json_of(*answer));
      sweep.answers.back().push_back(std::move(*answer));
    }
    list.push_back({{"at", sweep.at[k]}, {"settings", std::move(settings_json)}});
    report.text += '\n';
  }
  report.json = {{"model", args.model},
                 {"cluster", scene.cluster.name()},
                 {"costs_measured", scene.measured},
                 {"sweep", args.sweep},
                 {"points", list}};
  report.text += windows_text(args, sweep.answers.back()) + sharded_text(args, sweep.answers.back()) +
                 notes(scene, sweep.answers.back());
  if (args.sweep == "bandwidth")
    if (const std::string warning = beside_the_link(scene, sweep); !warning.empty()) {
      report.text += warning;
      report.json["warning"] = warning;
    }
  const std::string title = fmt::format("{} on {}: {}", scene.model.model, scene.cluster.name(), args.sweep);
  if (!args.html.empty()) TITHE_TRY(write_file(args.html, sweep_page(title, scene_line(about), sweep)));
  return report;
}

Result<Report> simulate(const SimulateArgs& args) {
  if (!args.trace.empty() && !args.sweep.empty())
    return Status(Code::kInvalid, "--trace: of one step, not of a --sweep");
  TITHE_TRY(check_windows(args));
  TITHE_TRY(check_sharded(args));
  TITHE_TRY(check_folders(std::array{args.html, args.trace}));
  const Result<Scene> scene = scene_of(args);
  if (!scene.ok()) return scene.status();
  const Result<std::vector<Setting>> settings = settings_of(args);
  if (!settings.ok()) return settings.status();
  return args.sweep.empty() ? one(*scene, *settings, args) : swept(*scene, *settings, args);
}

Run declare_simulate(CLI::App& app) {
  auto args = std::make_shared<SimulateArgs>();
  app.add_option("--model", args->model,
                 "a name of data/models/, or the path of such a file; :scale=0.1 behind it shrinks it")
      ->required();
  app.add_option("--cluster", args->cluster, "a name of data/clusters/, or the path of a .toml file");
  app.add_option("--link", args->link,
                 "instead of --cluster: the link of each host, such as 1Gb/s; needs --ranks or --hosts");
  app.add_option("--hosts", args->hosts,
                 "with --link: hosts and ranks on each, such as 4x8; without it each rank has a host");
  app.add_option("--tell-link", args->set_link,
                 "the link= of the sessions; without it the cluster's; none: not known");
  app.add_option("--transport", args->transport,
                 "transport whose rule for long messages holds; without it the profile's, or ucx's over TCP");
  app.add_option("--ranks", args->ranks,
                 "number of ranks: the first ranks of the cluster, or more hosts of its kind")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--profile", args->profile, "a file that `tithe profile` wrote: costs of steps, and links");
  app.add_flag("--foreign-profile", args->foreign_profile, "take a profile of another machine or version");
  add_codec_and_strategy(app, args->session.codec, args->session.strategy);
  app.add_option("--choices", args->choices_file, "a file of rules (docs/guide/choices.md)");
  app.add_option("--compare", args->compare, "further settings to compare with: CODEC, or CODEC@STRATEGY");
  app.add_option("--lanes", args->session.lanes,
                 "compute threads per rank; without it as many as its host's cores leave free")
      ->check(CLI::Range(1, 64));
  app.add_option("--servers", args->session.servers,
                 "number of ranks, the last ones, that only sum for the others")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  add_windows(app, *args);
  add_sharded(app, *args);
  app.add_option("--weights", args->weights,
                 "with --sharded: the codec of weights: delta, delta:bits=3, zip, uncompressed, or a codec")
      ->capture_default_str();
  app.add_option("--bucket-cap-mb", args->bucket_cap_mb,
                 "capacity of DistributedDataParallel's buckets, in MiB")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app.add_option("--sweep", args->sweep, "simulate over a range of this: bandwidth, ranks or ratio")
      ->check(CLI::IsMember({"bandwidth", "ranks", "ratio"}));
  add_output(app, "--html", args->html,
             "also write an HTML page: the sweep's curves, or the parts of the step");
  add_output(app, "--trace", args->trace, "write rank 0's step in Chrome's trace format (Perfetto opens it)");
  const CLI::Option* codec = app.get_option("--codec");
  return [args, codec] {
    if (!args->sharded.empty() && codec->count() == 0) args->session.codec = kShardedGradients;
    return simulate(*args);
  };
}

}  // namespace

const Verb simulate_verb = {.name = "simulate",
                            .doc = "predict a training step on a cluster, with the engine's steps",
                            .declare = declare_simulate};

}  // namespace tithe::cli
