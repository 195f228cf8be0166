// SPDX-License-Identifier: Apache-2.0
// Resolves the options of `tithe simulate` to a model, a cluster, costs and settings, and simulates one setting.
#include "simulate_setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "advisor/measure/embedded_files.h"
#include "base/nearest.h"
#include "base/text.h"
#include "codec/typical.h"
#include "codec_options.h"
#include "engine/peers/session_config.h"
#include "simulate_sharded.h"
#include "simulate_windows.h"
#include "tithe/connect.h"

namespace tithe::cli {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr std::string_view kNone = "none";

Result<sim::Cluster> open_cluster(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".toml")) return sim::Cluster::read(name);
  std::vector<std::string_view> names;
  for (const bench::EmbeddedFile& f : bench::cluster_files()) {
    if (f.name == name) return sim::Cluster::parse(f.text, fmt::format("data/clusters/{}.toml", f.name));
    names.push_back(f.name);
  }
  return Status(Code::kInvalid, fmt::format("unknown cluster '{}': {}; or the path of a .toml file", name,
                                            suggest(name, names)));
}

// --hosts "4x8": hosts, and ranks per host. Without it, each rank has its own host.
Result<sim::Cluster> of_link(const Link& link, const SimulateArgs& args,
                             const std::optional<sim::Profile>& profile) {
  int hosts = args.ranks, each = 1;
  if (!args.hosts.empty()) {
    char rest = 0;
    if (std::sscanf(args.hosts.c_str(), "%dx%d%c", &hosts, &each, &rest) != 2 || hosts < 1 || each < 1 ||
        hosts > kMaxRanks / each)
      return Status(Code::kInvalid, fmt::format("--hosts: '{}': hosts and ranks on each, such as 4x8",
                                                printable(args.hosts, 60)));
    if (args.ranks > 0 && args.ranks != hosts * each)
      return Status(Code::kInvalid,
                    fmt::format("--hosts {} has {} ranks, and --ranks is {}: remove one of them", args.hosts,
                                hosts * each, args.ranks));
  }
  if (hosts < 1)
    return Status(Code::kInvalid, "--link: give --ranks too, each on a host of its own; or --hosts 4x8");
  constexpr int kDefaultCores = 8;
  const int cores = profile ? profile->cores : kDefaultCores;
  sim::Cluster::Inside inside{.ranks = each};
  if (link.inside_bytes_per_second > 0) inside.bytes_per_second = link.inside_bytes_per_second;
  if (link.inside_seconds_per_frame > 0) inside.latency = link.inside_seconds_per_frame;
  return sim::Cluster::flat(hosts, inside, link.bytes_per_second, link.seconds_per_frame, cores,
                            profile && profile->one_machine)
      .with_name(args.link);
}

// The simulation's time grows with the square of the number of parts.
Status check_parts(const Scene& scene, const Choices& choices) {
  constexpr std::size_t kMaxSimulatedParts = 1 << 14;  // some twenty seconds
  double parts = 0;
  for (const bench::ModelTensor& t : scene.model.tensors)
    parts += static_cast<double>(choices.parts(choices.choice(t.name, t.values), t.values));
  if (parts <= kMaxSimulatedParts) return {};
  return {
      Code::kInvalid,
      fmt::format("{} values in {:.0f} parts: at most {} are simulated; ask for larger parts (part_values in "
                  "--choices, docs/guide/choices.md) or a model of fewer values",
                  scene.model.values(), parts, kMaxSimulatedParts)};
}

}  // namespace

Result<Scene> scene_of(const SimulateArgs& args) {
  Scene scene;
  Result<bench::ModelList> model = bench::open_model(args.model);
  if (!model.ok()) return model.status();
  scene.model = std::move(*model);
  scene.costs = sim::assumed_costs();
  if (!args.cluster.empty() && !args.link.empty())
    return Status(Code::kInvalid, "--cluster and --link: give one of them");
  if (!args.hosts.empty() && args.link.empty())
    return Status(Code::kInvalid,
                  "--hosts requires --link: a --cluster and a --profile have their own hosts");
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
    if (!link->known()) return Status(Code::kInvalid, "--link: must be a rate, such as 1Gb/s");
    cluster = of_link(*link, args, profile);
  } else if (profile) {
    cluster = sim::cluster_of(*profile);
    if (cluster.ok()) cluster = cluster->with_name("the profile");
  }
  if (!cluster.ok()) return cluster.status();
  if (args.ranks > 0) cluster = cluster->sized(args.ranks);
  if (!cluster.ok()) return cluster.status();
  TITHE_TRY(sim::check_ranks(*cluster));  // before strategies are examined
  scene.cluster = std::move(*cluster);
  scene.source = "assumed, not measured here: give a --profile (tithe profile) of the machines";
  if (profile) {
    scene.source = "the profile's";
  } else if (scene.cluster.states_costs()) {
    scene.costs = scene.cluster.costs(std::move(scene.costs));
    scene.source = fmt::format("from {}", scene.cluster.name());
  }
  if (!args.transport.empty()) {
    const std::string name = args.transport.substr(0, args.transport.find(':'));
    std::vector<std::string_view> names;
    for (const TransportKind* kind : all_transports()) names.push_back(kind->name);
    if (find_transport(name) == nullptr)
      return Status(Code::kInvalid, fmt::format("--transport: unknown transport '{}': {}",
                                                printable(name, 60), suggest(name, names)));
    scene.costs.long_messages = long_messages_of(name);
  }
  return scene;
}

std::string scene_text(const Scene& scene, const sim::Cluster& cluster) {
  return fmt::format("{}, {} tensors, {} values; {} ranks on {} hosts of {}\ncosts are {}\n",
                     scene.model.model, scene.model.tensors.size(), scene.model.values(), cluster.world(),
                     cluster.hosts().size(), cluster.name(), scene.source);
}

Result<std::vector<Setting>> settings_of(const SimulateArgs& args) {
  SessionOptions own = args.session;
  TITHE_TRY(read_choices(args.choices_file, own));
  std::vector<Setting> out;
  out.push_back(
      {args.choices_file.empty() ? fmt::format("{}@{}", own.codec, own.strategy) : args.choices_file, own});
  for (const std::string& other : args.compare) {
    Setting s{other, args.session};
    s.session.choices.clear();
    read_setting(other, s.session.codec, s.session.strategy);
    out.push_back(std::move(s));
  }
  if (!args.sharded.empty())
    for (Setting& s : out) set_weights(s, args.weights);
  return out;
}

// Codecs with data-dependent sizes for which the costs have no measured share.
std::vector<std::string> assumed_sizes(const Scene& scene, std::span<const Answer> answers) {
  std::vector<std::string> out;
  for (const Answer& a : answers)
    for (const Spec& spec : a.specs) {
      const Result<const sim::CodecCosts*> costs = scene.costs.of(spec);
      const std::string name = to_string(spec);
      if (costs.ok() && (*costs)->typical == 0 && codec::size_varies(*spec.codec) &&
          std::ranges::find(out, name) == out.end())
        out.push_back(name);
    }
  return out;
}

double speed_of(const Scene& scene, const sim::Cluster& cluster) {
  const sim::Seconds known = cluster.compute(scene.model.model);
  const double model_step = (scene.model.forward_ms + scene.model.backward_ms()) / 1e3;
  return known > 0 && model_step > 0 ? model_step / known : cluster.speed();
}

Result<Choices> choices_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                           const std::string& set_link) {
  SessionOptions session = setting.session;
  if (set_link != kNone) session.link = set_link.empty() ? cluster.link_text(scene.costs) : set_link;
  Result<Choices> choices = engine::choices_of(session, cluster.world(), cluster.shared());
  if (!choices.ok())
    return Status(choices.status().code(), fmt::format("{}: {}", setting.label, choices.status().what()));
  return choices;
}

Result<sim::Workload> workload_of(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                  double bucket_cap_mb, const std::string& set_link) {
  if (setting.session.servers >= cluster.world())
    return Status(Code::kInvalid, fmt::format("--servers {}: at least one of {} ranks must not be a server",
                                              setting.session.servers, cluster.world()));
  const Result<Choices> choices = choices_of(scene, setting, cluster, set_link);
  if (!choices.ok()) return choices.status();
  TITHE_TRY(check_parts(scene, *choices));
  const double speed = speed_of(scene, cluster);
  sim::Workload work;
  const double forward = scene.model.forward_ms / 1e3 / speed;
  work.compute = forward + scene.model.backward_ms() / 1e3 / speed;
  work.lanes = setting.session.lanes.value_or(0);
  work.servers = setting.session.servers;
  for (const bench::TensorSpan bucket : bench::buckets_of(scene.model, bucket_cap_mb)) {
    std::vector<PlanTensor> tensors;
    for (const bench::ModelTensor& t : bucket) tensors.push_back({t.name, t.values, t.row});
    work.buckets.push_back({forward + bucket.back().ready_ms / 1e3 / speed, make_plan(tensors, *choices)});
  }
  return work;
}

Result<Answer> simulate_one(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                            const SimulateArgs& args, bool events) {
  if (args.every > 0) return simulate_windows(scene, setting, cluster, args);
  if (!args.sharded.empty()) return simulate_sharded(scene, setting, cluster, args);
  const Result<sim::Workload> work = workload_of(scene, setting, cluster, args.bucket_cap_mb, args.set_link);
  if (!work.ok()) return work.status();
  Result<sim::Outcome> outcome = sim::run(cluster, scene.costs, *work, events);
  if (!outcome.ok())
    return Status(outcome.status().code(), fmt::format("{}: {}", setting.label, outcome.status().what()));
  Answer answer{setting, cluster.world(), cluster.rates()[0], work->compute, std::move(*outcome)};
  for (const sim::Exchange& e : work->buckets)
    for (const Part& part : e.plan.parts)
      if (std::ranges::find(answer.specs, part.spec) == answer.specs.end()) answer.specs.push_back(part.spec);
  return answer;
}

std::string chrome_trace(const Answer& answer) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  constexpr std::string_view kNames[] = {"load", "own", "encode", "send", "recv", "check", "merge", "store"};
  for (const sim::Event& e : answer.outcome.events) {
    if (e.rank != 0) continue;
    const engine::Step& step = answer.outcome.step_of(e);
    const bool message = step.kind == engine::StepKind::kSend || step.kind == engine::StepKind::kRecv;
    list.push_back(
        {{"name", kNames[static_cast<std::size_t>(step.kind)]},
         {"ph", "X"},
         {"pid", e.rank},
         {"tid", message ? 100 + step.peer : e.lane},
         {"ts", e.begin * 1e6},
         {"dur", (e.end - e.begin) * 1e6},
         {"args", {{"bucket", e.bucket}, {"part", e.part}, {"chunk", step.chunk}, {"peer", step.peer}}}});
  }
  return nlohmann::ordered_json{{"traceEvents", std::move(list)}}.dump() + "\n";
}

}  // namespace tithe::cli
