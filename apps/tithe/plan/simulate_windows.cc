// SPDX-License-Identifier: Apache-2.0
#include "simulate_windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::cli {
namespace {

// Runs of tensors, in order, as even in values as whole tensors allow, as tithe.torch.LocalSteps cuts a model.
std::vector<std::vector<bench::ModelTensor>> cut(const bench::ModelList& model, std::size_t fragments) {
  const std::vector<bench::ModelTensor>& all = model.tensors;
  const auto total = static_cast<double>(model.values());
  std::vector<std::vector<bench::ModelTensor>> runs(1);
  double done = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto n = static_cast<double>(all[i].values);
    const bool full =
        done + n / 2 > total * static_cast<double>(runs.size()) / static_cast<double>(fragments);
    const bool needed = all.size() - i <= fragments - runs.size();
    if (!runs.back().empty() && runs.size() < fragments && (full || needed)) runs.emplace_back();
    runs.back().push_back(all[i]);
    runs.back().back().ready_ms = 0;
    done += n;
  }
  return runs;
}

}  // namespace

Status check_windows(const SimulateArgs& args) {
  if (args.every == 0)
    return args.fragments == 1 && args.delay == 0
               ? Status{}
               : Status(Code::kInvalid, "--fragments, --delay: of local steps; say --every");
  if (args.every % args.fragments != 0)
    return {Code::kInvalid,
            fmt::format("--fragments {} does not divide --every {}", args.fragments, args.every)};
  if (args.delay > 0 && args.delay >= args.every / args.fragments)
    return {Code::kInvalid,
            fmt::format("--delay {}: the next exchange begins after {} iterations, at most {}", args.delay,
                        args.every / args.fragments, args.every / args.fragments - 1)};
  if (!args.trace.empty()) return {Code::kInvalid, "--trace: of one step, not of --every"};
  return {};
}

Result<Answer> simulate_windows(const Scene& scene, const Setting& setting, const sim::Cluster& cluster,
                                SimulateArgs args) {
  const auto every = static_cast<double>(args.every), delay = static_cast<double>(args.delay);
  const auto fragments = static_cast<std::size_t>(args.fragments);
  if (fragments > scene.model.tensors.size())
    return Status(Code::kInvalid, fmt::format("--fragments {}: {} has {} tensors", fragments,
                                              scene.model.model, scene.model.tensors.size()));
  const double compute =
      (scene.model.forward_ms + scene.model.backward_ms()) / 1e3 / speed_of(scene, cluster);
  args.every = 0;
  Scene part = scene;
  part.model.forward_ms = 0;
  Answer mean{setting, cluster.world(), cluster.rates()[0], compute, {}};
  mean.outcome.bytes.resize(1);
  for (std::vector<bench::ModelTensor>& tensors : cut(scene.model, fragments)) {
    part.model.tensors = std::move(tensors);
    Result<Answer> exchange = simulate_one(part, setting, cluster, args, false);
    if (!exchange.ok()) return exchange.status();
    const sim::Outcome& one = exchange->outcome;
    mean.outcome.exposed += std::max(0.0, one.step - delay * compute) / every;
    mean.outcome.bytes[0] += (one.bytes.empty() ? 0.0 : one.bytes[0]) / every;
    mean.outcome.encoded += one.encoded / every;
    mean.outcome.merged += one.merged / every;
    mean.outcome.processor += one.processor / every;
    mean.outcome.carried_most += one.carried_most / every;
    mean.outcome.busiest = one.busiest;
    mean.outcome.ranks = one.ranks;
    mean.exchange = std::max(mean.exchange, one.step);
    for (const Spec& spec : exchange->specs)
      if (std::ranges::find(mean.specs, spec) == mean.specs.end()) mean.specs.push_back(spec);
  }
  mean.outcome.step = compute + mean.outcome.exposed;
  return mean;
}

std::string windows_text(const SimulateArgs& args, std::span<const Answer> answers) {
  if (args.every == 0) return {};
  std::string text = fmt::format(
      "a step is the mean iteration of local steps: every {} an exchange of each of {} fragment{}, {} "
      "behind\n",
      args.every, args.fragments, args.fragments == 1 ? "" : "s", args.delay);
  for (const Answer& a : answers)
    text += fmt::format("{}: the longest exchange takes {:.1f} ms, of which {} iterations hide {:.1f} ms\n",
                        a.setting.label, a.exchange * 1e3, args.delay,
                        std::min(a.exchange, args.delay * a.compute) * 1e3);
  return text;
}

}  // namespace tithe::cli
