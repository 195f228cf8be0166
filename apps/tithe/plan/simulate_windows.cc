// SPDX-License-Identifier: Apache-2.0
// Local steps in the simulator: each fragment's exchange is simulated alone, and the time that `delay` iterations of
// computation do not hide is spread over the window.
#include "simulate_windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::cli {

void add_windows(CLI::App& app, SimulateArgs& args) {
  app.add_option("--every", args.every,
                 "local steps: iterations between two exchanges of a fragment (docs/guide/local_steps.md)")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--fragments", args.fragments,
                 "with --every: parts of the model, exchanged one after the other")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--delay", args.delay, "with --every: delay of an exchange in iterations")
      ->check(CLI::Range(0, 1'000'000));
}

std::vector<std::size_t> fragments_of(const bench::ModelList& model, std::size_t fragments) {
  const std::vector<bench::ModelTensor>& all = model.tensors;
  const auto total = static_cast<double>(model.values());
  std::vector<std::size_t> runs(1);
  double done = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto n = static_cast<double>(all[i].values);
    const bool full =
        done + n / 2 > total * static_cast<double>(runs.size()) / static_cast<double>(fragments);
    const bool needed = all.size() - i <= fragments - runs.size();
    if (runs.back() > 0 && runs.size() < fragments && (full || needed)) runs.push_back(0);
    ++runs.back();
    done += n;
  }
  return runs;
}

Status check_fragments(const SimulateArgs& args, const bench::ModelList& model) {
  if (static_cast<std::size_t>(args.fragments) <= model.tensors.size()) return {};
  return {Code::kInvalid, fmt::format("--fragments {}: {} has {} tensors", args.fragments, model.model,
                                      model.tensors.size())};
}

Status check_windows(const SimulateArgs& args) {
  if (args.every == 0)
    return args.fragments == 1 && args.delay == 0
               ? Status{}
               : Status(Code::kInvalid, "--fragments and --delay are for local steps: give --every");
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
  TITHE_TRY(check_fragments(args, scene.model));
  const double compute =
      (scene.model.forward_ms + scene.model.backward_ms()) / 1e3 / speed_of(scene, cluster);
  args.every = 0;
  Scene part = scene;
  part.model.forward_ms = 0;
  Answer mean{setting, cluster.world(), cluster.rates()[0], compute, {}};
  mean.outcome.bytes.resize(1);
  auto next = scene.model.tensors.begin();
  for (const std::size_t tensors : fragments_of(scene.model, static_cast<std::size_t>(args.fragments))) {
    part.model.tensors.assign(next, next + static_cast<std::ptrdiff_t>(tensors));
    next += static_cast<std::ptrdiff_t>(tensors);
    for (bench::ModelTensor& t : part.model.tensors) t.ready_ms = 0;
    Result<Answer> exchange = simulate_one(part, setting, cluster, args, false);
    if (!exchange.ok()) return exchange.status();
    const sim::Outcome& one = exchange->outcome;
    mean.outcome.exposed += std::max(0.0, one.step - delay * compute) / every;
    mean.outcome.bytes[0] += (one.bytes.empty() ? 0.0 : one.bytes[0]) / every;
    mean.outcome.encoded += one.encoded / every;
    mean.outcome.merged += one.merged / every;
    mean.outcome.processor += one.processor / every;
    mean.outcome.max_link_busy += one.max_link_busy / every;
    mean.outcome.busiest = one.busiest;
    mean.outcome.ranks = one.ranks;
    mean.exchange = std::max(mean.exchange, one.step);
    for (const Spec& spec : exchange->specs)
      if (std::ranges::find(mean.specs, spec) == mean.specs.end()) mean.specs.push_back(spec);
  }
  mean.outcome.step = compute + mean.outcome.exposed;
  return mean;
}

std::string windows_line(const SimulateArgs& args) {
  if (args.every == 0) return {};
  return fmt::format(
      "a step is the mean iteration of local steps: every {} an exchange of each of {} fragment{}, {} "
      "behind\n",
      args.every, args.fragments, args.fragments == 1 ? "" : "s", args.delay);
}

std::string windows_text(const SimulateArgs& args, std::span<const Answer> answers) {
  if (args.every == 0) return {};
  std::string text = windows_line(args);
  for (const Answer& a : answers)
    text += fmt::format("{}: the longest exchange takes {:.1f} ms, of which {} iterations hide {:.1f} ms\n",
                        a.setting.label, a.exchange * 1e3, args.delay,
                        std::min(a.exchange, args.delay * a.compute) * 1e3);
  return text;
}

}  // namespace tithe::cli
