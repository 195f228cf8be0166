// SPDX-License-Identifier: Apache-2.0
#include "simulate_setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/nearest.h"
#include "engine/chosen.h"
#include "file_io.h"
#include "measure/cluster_files.h"

namespace tithe::cli {
namespace {

// Of a step and a frame where nothing was measured: bench/results/engine.md, and what choices assume of frames.
sim::Costs assumed_costs() {
  sim::Costs costs = sim::usual_costs();
  costs.step = 0.5e-6;
  costs.post = costs.complete = 3e-6;
  costs.wake = costs.turn = 8e-6;
  costs.check_byte = 0.05e-9;
  costs.copy_value = 0.3e-9;
  costs.eager_bytes = 8192;
  return costs;
}

Result<sim::Cluster> open_cluster(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) return sim::Cluster::read(name);
  std::vector<std::string_view> names;
  for (const bench::ClusterFile& f : bench::cluster_files()) {
    if (f.name == name) return sim::Cluster::parse(f.text, fmt::format("clusters/{}.toml", f.name));
    names.push_back(f.name);
  }
  return Status(Code::kInvalid, fmt::format("unknown cluster '{}': {}; or the path of a .toml file", name,
                                            suggest(name, names)));
}

}  // namespace

Result<Scene> scene_of(const SimulateArgs& args) {
  Scene scene;
  Result<bench::ModelList> model = bench::open_model(args.model);
  if (!model.ok()) return model.status();
  scene.model = std::move(*model);
  scene.costs = assumed_costs();
  if (!args.cluster.empty() && !args.link.empty())
    return Status(Code::kInvalid, "--cluster and --link: give one of them");
  std::optional<sim::Profile> profile;
  if (!args.profile.empty()) {
    Result<sim::Profile> read = sim::read_profile(args.profile);
    if (!read.ok()) return read.status();
    if (!args.foreign_profile) TITHE_TRY(sim::belongs_here(*read, args.profile));
    profile = std::move(*read);
    scene.costs = profile->costs;
    scene.measured = true;
  }
  Result<sim::Cluster> cluster =
      Status(Code::kInvalid, "give --cluster, or --link and --ranks, or a --profile with links");
  if (!args.cluster.empty()) {
    cluster = open_cluster(args.cluster);
  } else if (!args.link.empty()) {
    const Result<Link> link = parse_link(args.link);
    if (!link.ok()) return Status(link.status().code(), "--link: " + link.status().what());
    if (!link->known()) return Status(Code::kInvalid, "--link: a rate is needed, such as 1Gb/s");
    if (args.ranks < 1) return Status(Code::kInvalid, "--link: give --ranks too");
    constexpr int kUsualCores = 8;
    cluster = profile ? sim::Cluster::flat(args.ranks, link->bytes_per_second, link->seconds_per_frame,
                                           profile->cores, profile->one_machine)
                      : sim::Cluster::flat(args.ranks, link->bytes_per_second, link->seconds_per_frame,
                                           kUsualCores);
  } else if (profile) {
    cluster = sim::cluster_of(*profile);
  }
  if (!cluster.ok()) return cluster.status();
  if (args.ranks > 0) cluster = cluster->sized(args.ranks);
  if (!cluster.ok()) return cluster.status();
  scene.cluster = std::move(*cluster);
  return scene;
}

Result<std::vector<Setting>> settings_of(const SimulateArgs& args) {
  SessionOptions own = args.session;
  if (!args.choices_file.empty()) {
    const Result<std::vector<std::uint8_t>> text =
        read_file(args.choices_file, kMostChoicesBytes / kReadPerValue);
    if (!text.ok()) return text.status();
    own.choices.assign(text->begin(), text->end());
  }
  std::vector<Setting> out;
  out.push_back(
      {args.choices_file.empty() ? fmt::format("{}@{}", own.codec, own.strategy) : args.choices_file, own});
  for (const std::string& other : args.compare) {
    Setting s{other, args.session};
    s.session.choices.clear();
    const std::size_t at = other.rfind('@');
    s.session.codec = other.substr(0, at);
    if (at != std::string::npos) s.session.strategy = other.substr(at + 1);
    out.push_back(std::move(s));
  }
  return out;
}

Result<sim::Workload> workload_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                  double bucket_cap_mb) {
  const Result<Choices> choices = engine::choices_of(setting.session, cluster.world(), cluster.shared());
  if (!choices.ok())
    return Status(choices.status().code(), fmt::format("{}: {}", setting.label, choices.status().what()));
  const double speed = scene.cluster.speed();
  sim::Workload work;
  const double forward = scene.model.forward_ms / 1e3 / speed;
  work.compute = forward + scene.model.backward_ms() / 1e3 / speed;
  work.lanes = setting.session.lanes;
  constexpr std::size_t kFirstBucket = 1 << 20;
  const auto cap = static_cast<std::size_t>(bucket_cap_mb * (1 << 20));
  for (const bench::TensorSpan bucket : bench::buckets_of(scene.model, std::min(kFirstBucket, cap), cap)) {
    std::vector<PlanTensor> tensors;
    for (const bench::ModelTensor& t : bucket) tensors.push_back({t.name, t.values, t.row});
    work.buckets.push_back({forward + bucket.back().ready_ms / 1e3 / speed, make_plan(tensors, *choices)});
  }
  return work;
}

Result<Answer> simulate_one(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                            const SimulateArgs& args, bool events) {
  const Result<sim::Workload> work = workload_of(scene, setting, cluster, args.bucket_cap_mb);
  if (!work.ok()) return work.status();
  Result<sim::Outcome> outcome = sim::run(cluster, scene.costs, *work, events);
  if (!outcome.ok())
    return Status(outcome.status().code(), fmt::format("{}: {}", setting.label, outcome.status().what()));
  return Answer{setting, cluster.world(), cluster.rates()[0], work->compute, std::move(*outcome)};
}

std::string chrome_trace(const Answer& answer) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  constexpr std::string_view kNames[] = {"load", "own", "encode", "send", "recv", "check", "merge", "store"};
  for (const sim::Event& e : answer.outcome.events) {
    if (e.rank != 0) continue;
    const engine::Step& step = answer.outcome.programs_of_rank_0[static_cast<std::size_t>(e.bucket)]
                                   .steps[static_cast<std::size_t>(e.step)];
    const bool message = step.kind == engine::StepKind::kSend || step.kind == engine::StepKind::kRecv;
    list.push_back(
        {{"name", kNames[static_cast<std::size_t>(step.kind)]},
         {"ph", "X"},
         {"pid", e.rank},
         {"tid", message ? 100 + step.peer : e.lane},
         {"ts", e.begin * 1e6},
         {"dur", (e.end - e.begin) * 1e6},
         {"args", {{"bucket", e.bucket}, {"part", step.part}, {"chunk", step.chunk}, {"peer", step.peer}}}});
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(list)}}.dump() + "\n";
}

std::string sweep_html(const std::string& title, const std::string& x, const std::vector<double>& at,
                       const std::vector<std::vector<Answer>>& answers) {
  constexpr double kWidth = 760, kHeight = 420, kLeft = 70, kBottom = 50, kTop = 20, kRight = 200;
  constexpr std::string_view kColors[] = {"#1b6ca8", "#c8553d", "#3d8c5f", "#8a5fa8", "#b8892b", "#5f6b73"};
  double most = 0;
  for (const auto& row : answers)
    for (const Answer& a : row) most = std::max(most, a.outcome.step * 1e3);
  const auto px = [&](double v) {
    const double low = std::log10(at.front()), high = std::log10(at.back());
    return kLeft + (high > low ? (std::log10(v) - low) / (high - low) : 0.5) * (kWidth - kLeft - kRight);
  };
  const auto py = [&](double ms) { return kHeight - kBottom - ms / most * (kHeight - kBottom - kTop); };
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
    return out;
  };
  std::string svg;
  for (int k = 0; k <= 4; ++k)
    svg += fmt::format(
        "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#ddd'/><text x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5:.3g}</text>\n",
        kLeft, kWidth - kRight, py(most * k / 4), kLeft - 8, py(most * k / 4) + 4, most * k / 4);
  for (const double v : at)
    svg += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:.3g}</text>\n", px(v),
                       kHeight - kBottom + 18, v);
  for (std::size_t s = 0; s < answers[0].size(); ++s) {
    const std::string_view color = kColors[s % std::size(kColors)];
    std::string points;
    for (std::size_t k = 0; k < at.size(); ++k)
      points += fmt::format("{:.1f},{:.1f} ", px(at[k]), py(answers[k][s].outcome.step * 1e3));
    svg += fmt::format(
        "<polyline points='{}' fill='none' stroke='{}' stroke-width='2'/>\n<text x='{}' y='{}' "
        "fill='{}'>{}</text>\n",
        points, color, kWidth - kRight + 12, kTop + 16 + 20 * static_cast<double>(s), color,
        escaped(answers[0][s].setting.label));
  }
  std::string rows;
  for (std::size_t k = 0; k < at.size(); ++k) {
    rows += fmt::format("<tr><td>{:.4g}</td>", at[k]);
    for (const Answer& a : answers[k])
      rows += fmt::format("<td>{:.3f}</td><td>{:.0f} %</td>", a.outcome.step * 1e3, 100 * a.efficiency());
    rows += "</tr>\n";
  }
  std::string heads;
  for (const Answer& a : answers[0])
    heads += fmt::format("<th>{}, ms</th><th>efficiency</th>", escaped(a.setting.label));
  return fmt::format(
      "<!doctype html><meta charset='utf-8'><title>{0}</title>\n<style>body{{font:14px "
      "system-ui,sans-serif;margin:2em}}"
      "text{{font-size:12px}}td,th{{padding:2px 10px;text-align:right}}</style>\n<h1>{0}</h1>\n"
      "<svg width='{1}' height='{2}' role='img'>{3}<text x='{4}' y='{5}' text-anchor='middle'>{6}</text>"
      "<text x='14' y='{7}' transform='rotate(-90 14 {7})' text-anchor='middle'>step, ms</text></svg>\n"
      "<table><tr><th>{6}</th>{8}</tr>\n{9}</table>\n",
      escaped(title), kWidth, kHeight, svg, (kLeft + kWidth - kRight) / 2, kHeight - 8, escaped(x),
      (kHeight - kBottom + kTop) / 2, heads, rows);
}

}  // namespace tithe::cli
