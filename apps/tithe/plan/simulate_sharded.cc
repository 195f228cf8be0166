// SPDX-License-Identifier: Apache-2.0
#include "simulate_sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <utility>

#include "advisor/sim/sharded_step.h"
#include "advisor/sim/step_timeline.h"
#include "base/text.h"
#include "plan/allowance.h"

namespace tithe::cli {
namespace {

// Bits per bf16 weight of a lossless payload: differences at a learning rate of 3e-4, and codec zip.
constexpr double kDeltaBits = 2.4, kZipBits = 11;
// Of differences between equal weights, and bytes of a payload that do not depend on the number of weights.
constexpr double kUnchangedBits = 0.02, kDeltaTail = 3300;
constexpr std::size_t kMinDelta = 4096;  // weights per rank; smaller parts use zip (fsdp_delta.py)

// The codec of weights. bits > 0: a payload of this size, made and read beside the lanes of the session.
struct Weights {
  std::string codec;
  double bits = 0;
};

Result<Weights> parse_weights(const std::string& text) {
  if (text == "uncompressed") return Weights{"bf16"};
  if (text == "zip") return Weights{text, kZipBits};
  if (text == sim::kDeltaCosts) return Weights{text, kDeltaBits};
  constexpr std::string_view kWithBits = "delta:bits=";
  if (!text.starts_with(kWithBits)) return Weights{text};
  Weights weights{std::string(sim::kDeltaCosts)};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + kWithBits.size(), end, weights.bits);
  if (error != std::errc{} || at != end || !(weights.bits > 0 && weights.bits <= 16))
    return Status(Code::kInvalid, fmt::format("--weights '{}': bits must be a number above 0 and at most 16",
                                              printable(text, 60)));
  return weights;
}

std::string_view unit_of(std::string_view name) {
  for (std::size_t from = 0; from < name.size();) {
    const std::size_t end = std::min(name.find('.', from), name.size());
    if (end > from &&
        std::ranges::all_of(name.substr(from, end - from), [](char c) { return c >= '0' && c <= '9'; }))
      return name.substr(0, end);
    from = end + 1;
  }
  return {};  // the root
}

// The values of a tensor that each rank owns, padding included.
std::size_t piece_of(const bench::ModelTensor& t, std::size_t world) {
  const std::size_t row = t.row == t.values ? 1 : t.row;  // a vector is cut between its values
  return (t.values / row + world - 1) / world * row;
}

// The units of a model, and the computation of each in backward.
struct Units {
  std::vector<std::vector<const bench::ModelTensor*>> tensors;
  std::vector<bool> root;
  std::vector<sim::UnitCompute> backward;
};

Units units_of(const bench::ModelList& model) {
  Units units;
  std::map<std::string_view, std::size_t> numbers;
  double before = 0;
  for (const bench::ModelTensor& t : model.tensors) {
    const auto [at, fresh] = numbers.try_emplace(unit_of(t.name), units.tensors.size());
    if (fresh) {
      units.tensors.emplace_back();
      units.root.push_back(at->first.empty());
    }
    units.tensors[at->second].push_back(&t);
    if (units.backward.empty() || units.backward.back().unit != at->second)
      units.backward.push_back({at->second, 0});
    units.backward.back().seconds += (t.ready_ms - before) / 1e3;
    before = t.ready_ms;
  }
  return units;
}

// Simulates rounds and adds their costs to an answer. Equal rounds are simulated once.
class Rounds {
 public:
  Rounds(const Scene& scene, const Setting& setting, const sim::Cluster& cluster, const SimulateArgs& args,
         Answer& sum)
      : scene_(scene),
        setting_(setting),
        cluster_(cluster),
        args_(args),
        sum_(sum),
        world_(static_cast<std::size_t>(cluster.world())) {}

  Status open() {
    Result<Weights> weights = parse_weights(setting_.weights);
    if (!weights.ok()) return weights.status();
    weights_ = *std::move(weights);
    Result<Choices> gradients = choices_of(scene_, setting_, cluster_, args_.set_link);
    if (!gradients.ok()) return gradients.status();
    gradients_ = *std::move(gradients);
    Setting gathers = setting_;
    gathers.session.codec = weights_.bits > 0 ? "fp32" : weights_.codec;
    gathers.session.choices.clear();
    gathers.session.min_values = 0;
    Result<Choices> values = choices_of(scene_, gathers, cluster_, args_.set_link);
    if (!values.ok()) return values.status();
    values_ = *std::move(values);
    return {};
  }

  Result<sim::Seconds> reduce(const std::vector<const bench::ModelTensor*>& tensors) {
    std::vector<PlanTensor> bucket;
    std::deque<std::vector<std::size_t>> bounds;
    for (const bench::ModelTensor* t : tensors) {
      const std::size_t piece = piece_of(*t, world_);
      bucket.push_back({t->name, piece * world_, t->row,
                        bounds.emplace_back(equal_bounds(piece * world_, 0, cluster_.world()))});
    }
    return round(make_plan(bucket, *gradients_, RoundKind::kReduceScatter), sum_.gradient_bytes);
  }

  // unchanged: no weight has changed since the previous gather.
  Result<sim::Seconds> gather(const std::vector<const bench::ModelTensor*>& tensors, bool unchanged) {
    std::size_t part = 0;
    for (const bench::ModelTensor* t : tensors) part += piece_of(*t, world_);
    std::size_t values = part;
    sim::Seconds beside = 0;
    if (weights_.bits > 0) {
      const bool delta = weights_.codec == sim::kDeltaCosts && part >= kMinDelta;
      const double bits = delta ? (unchanged ? kUnchangedBits : weights_.bits) : kZipBits;
      const double bytes = (delta ? kDeltaTail : 0) + bits / 8 * static_cast<double>(part);
      values = static_cast<std::size_t>(std::ceil(bytes / sizeof(float)));
      const std::string codec(delta ? sim::kDeltaCosts : "zip");
      const auto known = scene_.costs.codecs.find(codec);
      const sim::CodecCosts costs =
          known != scene_.costs.codecs.end() ? known->second : sim::default_costs().codecs.at(codec);
      const sim::Seconds encode = costs.encode.at(static_cast<double>(part));
      const sim::Seconds decode = costs.store.at(static_cast<double>(part * (world_ - 1)));
      sum_.outcome.encoded += encode;
      sum_.outcome.merged += decode;
      sum_.outcome.processor += encode + decode;
      beside = encode + decode;
    }
    const std::vector<std::size_t> bounds = equal_bounds(values * world_, 0, cluster_.world());
    const PlanTensor whole[] = {{"weights", values * world_, values * world_, bounds}};
    Result<sim::Seconds> time = round(make_plan(whole, *values_, RoundKind::kAllGather), sum_.weight_bytes);
    if (time.ok()) *time += beside;
    return time;
  }

 private:
  Result<sim::Seconds> round(Plan plan, double& bytes) {
    if (const Status fits = check_kind(plan); !fits.ok())
      return Status(fits.code(), fmt::format("{}: {}", setting_.label, fits.what()));
    auto known = std::ranges::find(known_, plan, &std::pair<Plan, sim::Outcome>::first);
    if (known == known_.end()) {
      sim::Workload work;
      work.lanes = setting_.session.lanes.value_or(0);
      work.buckets.push_back({.plan = plan});
      Result<sim::Outcome> outcome =
          sim::run(cluster_, scene_.costs, work, false, sim::Extent::kNeeded, sim::kNever, &drawn_);
      if (!outcome.ok())
        return Status(outcome.status().code(),
                      fmt::format("{}: {}", setting_.label, outcome.status().what()));
      for (const Part& part : plan.parts)
        if (std::ranges::find(sum_.specs, part.spec) == sum_.specs.end()) sum_.specs.push_back(part.spec);
      known_.emplace_back(std::move(plan), *std::move(outcome));
      known = known_.end() - 1;
    }
    const sim::Outcome& one = known->second;
    sim::Outcome& all = sum_.outcome;
    bytes += one.bytes[0];
    all.bytes[0] += one.bytes[0];
    all.encoded += one.encoded;
    all.merged += one.merged;
    all.processor += one.processor;
    all.max_link_busy += one.max_link_busy;
    if (one.max_link_busy > longest_) {
      longest_ = one.max_link_busy;
      all.busiest = one.busiest;
    }
    all.ranks = one.ranks;
    all.lanes = one.lanes;
    return one.step;
  }

  const Scene& scene_;
  const Setting& setting_;
  const sim::Cluster& cluster_;
  const SimulateArgs& args_;
  Answer& sum_;
  const std::size_t world_;
  Weights weights_;
  std::optional<Choices> gradients_, values_;
  std::deque<std::pair<Plan, sim::Outcome>> known_;
  sim::TimelineCache drawn_;
  sim::Seconds longest_ = 0;
};

}  // namespace

void add_sharded(CLI::App& app, SimulateArgs& args) {
  app.add_option("--sharded", args.sharded,
                 "the model is sharded over all ranks by fully_shard(): zero3, or zero2 with "
                 "reshard_after_forward=False (docs/guide/sharded.md)")
      ->check(CLI::IsMember({"zero2", "zero3"}));
  app.add_option("--forward-prefetch", args.forward_prefetch,
                 "with --sharded: modules that forward gathers ahead (set_modules_to_forward_prefetch)")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
}

Status check_sharded(const SimulateArgs& args) {
  if (args.sharded.empty())
    return args.forward_prefetch == 0 && args.weights == SimulateArgs{}.weights
               ? Status{}
               : Status(Code::kInvalid,
                        "--weights and --forward-prefetch are for sharded models: give --sharded");
  if (args.every > 0)
    return {Code::kInvalid, "--sharded: local steps (--every) average whole models: leave one out"};
  if (args.session.servers > 0)
    return {Code::kInvalid, "--sharded: every rank owns weights: leave --servers out"};
  if (!args.trace.empty()) return {Code::kInvalid, "--sharded has no --trace: leave one out"};
  return {};
}

void set_weights(Setting& setting, const std::string& weights) {
  std::string& codec = setting.session.codec;
  const std::size_t plus = codec.rfind('+');
  setting.weights = plus == std::string::npos ? weights : codec.substr(plus + 1);
  if (plus != std::string::npos) codec.resize(plus);
  const std::string& strategy = setting.session.strategy;
  setting.label = setting.session.choices.empty() ? fmt::format("{}+{}@{}", codec, setting.weights, strategy)
                                                  : fmt::format("{}+{}", setting.label, setting.weights);
}

Result<Answer> simulate_sharded(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                const SimulateArgs& args) {
  if (cluster.has_devices())
    return Status(
        Code::kInvalid,
        fmt::format("--sharded: {} has devices, and tithe runs the collectives of fully_shard() over all "
                    "ranks on the CPU: choose a cluster without `device`",
                    cluster.name()));
  if (is_auto(setting.session.codec))
    return Status(Code::kInvalid, "--sharded: codec auto plans all-reduces: name a codec");
  const double speed = speed_of(scene, cluster);
  const double forward = scene.model.forward_ms / 1e3 / speed,
               backward = scene.model.backward_ms() / 1e3 / speed;
  Answer answer{setting, cluster.world(), cluster.rates()[0], forward + backward, {}};
  answer.outcome.bytes.resize(1);
  const Units units = units_of(scene.model);
  Rounds rounds(scene, setting, cluster, args, answer);
  TITHE_TRY(rounds.open());
  sim::ShardedStep step{.forward_prefetch = static_cast<std::size_t>(args.forward_prefetch)};
  for (std::size_t u = 0; u < units.tensors.size(); ++u) {
    sim::ShardedUnit unit{.keeps = args.sharded == "zero2" || units.root[u]};
    Result<sim::Seconds> time = rounds.gather(units.tensors[u], false);
    if (!time.ok()) return time.status();
    unit.gather = *time;
    if (!unit.keeps) time = rounds.gather(units.tensors[u], true);
    if (!time.ok()) return time.status();
    unit.regather = *time;  // unused if it keeps its weights
    time = rounds.reduce(units.tensors[u]);
    if (!time.ok()) return time.status();
    unit.reduce = *time;
    step.units.push_back(unit);
  }
  // Forward passes the tensors in the opposite order, and takes the same share of its time for each.
  step.backward = units.backward;
  for (sim::UnitCompute& c : step.backward) c.seconds /= speed;
  step.forward.assign(step.backward.rbegin(), step.backward.rend());
  for (sim::UnitCompute& c : step.forward)
    c.seconds =
        backward > 0 ? c.seconds * forward / backward : forward / static_cast<double>(step.forward.size());
  answer.outcome.step = sim::duration_of(step);
  answer.outcome.exposed = answer.outcome.step - answer.compute;
  return answer;
}

std::string sharded_text(const SimulateArgs& args, std::span<const Answer> answers) {
  if (args.sharded.empty()) return {};
  std::string text;
  for (const Answer& a : answers)
    text += fmt::format("{}: rank 0 sends {:.3f} MB of gradients and {:.3f} MB of weights\n", a.setting.label,
                        a.gradient_bytes / 1e6, a.weight_bytes / 1e6);
  return text;
}

}  // namespace tithe::cli
