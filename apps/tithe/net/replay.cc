// SPDX-License-Identifier: Apache-2.0
// tithe replay: training steps of a model that is not there. The engine, the transport and the network are what a job
// has; the model is its list of tensors, and compute is the time that the list says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "codec_options.h"
#include "engine/peers/session_config.h"
#include "file_io.h"
#include "link_options.h"
#include "rank_processes.h"
#include "replay_rank.h"
#include "verb.h"

namespace tithe::cli {
namespace {

Result<std::optional<ShapedLink>> link_of(ReplayArgs& args) {
  if (args.link == "none" && args.tell_link)
    return Status(Code::kInvalid, "--tell-link: there is no link to tell of: give --link");
  Result<std::optional<ShapedLink>> link =
      shaped_link(args.link, true, args.queue_bytes, args.card, args.delay_ms);
  if (!link.ok()) return link;
  if (args.link.find('+') != std::string::npos && !args.tell_link)
    return Status(
        Code::kInvalid,
        "--link: what a frame costs is for the session, with --tell-link; the kernel shapes the rate "
        "alone");
  if (args.tell_link) args.session.link = args.link;
  return link;
}

struct Median {
  double middle = 0, low = 0, high = 0;  // median and quartiles
};
Median median_of(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  const auto at = [&](double q) {
    return v[static_cast<std::size_t>(std::lround(q * static_cast<double>(v.size() - 1)))];
  };
  return {at(0.5), at(0.25), at(0.75)};
}

// Parts and values by what they travel as, from a plan's lines `part 0: 100 values from 0, fp32 by gather (why)`.
struct Share {
  std::size_t parts = 0, values = 0;
};
std::map<std::string, Share> shares_of(const std::string& plan) {
  std::map<std::string, Share> out;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    std::size_t part = 0, n = 0, from = 0;
    int read = 0;
    if (std::sscanf(line.c_str(), "part %zu: %zu values from %zu, %n", &part, &n, &from, &read) < 3 ||
        read == 0)
      continue;
    const std::string as = line.substr(static_cast<std::size_t>(read));
    Share& share = out[as.substr(0, as.find(" ("))];
    ++share.parts;
    share.values += n;
  }
  return out;
}

Report report_of(const ReplayArgs& args, const bench::ModelList& model, const Hosts& hosts, SyncBoard& board,
                 const std::string& plan) {
  const double compute = compute_ms(model, args);
  std::vector<double> steps;
  double late = 0, cpu = 0, sent = 0, wire = 0;
  for (int k = 0; k < args.steps; ++k) {
    double slowest = 0;
    for (Rank r = 0; r < args.ranks; ++r) {
      const StepNumbers& of = numbers_of(board, args.steps, r, k);
      slowest = std::max(slowest, of.step_ms);
      late = std::max(late, of.late_ms);
      cpu += of.cpu_s / args.ranks / args.steps;
      sent = std::max(sent, of.bytes_sent);
      wire = std::max(wire, of.wire_bytes);
    }
    steps.push_back(slowest);
  }
  const Median step = median_of(steps);
  const double exposed = std::max(step.middle - compute, 0.0);
  const bool turns = args.hand_over == "turns";  // there buckets wait for each other on purpose
  const bool on_links = args.link != "none";

  Json plan_json = Json::array();
  std::string plan_line;
  for (const auto& [as, share] : shares_of(plan)) {
    plan_json.push_back({{"as", as}, {"parts", share.parts}, {"values", share.values}});
    plan_line +=
        fmt::format("{}{} ({} part{}, {:.3f}M values)", plan_line.empty() ? "" : "; ", as, share.parts,
                    share.parts == 1 ? "" : "s", static_cast<double>(share.values) / 1e6);
  }
  Json buckets = Json::array();
  for (const bench::TensorSpan bucket : buckets_of(model, args)) buckets.push_back(bucket.size());
  Report report;
  report.json = {{"model", args.model},
                 {"tensors", model.tensors.size()},
                 {"values", model.values()},
                 {"buckets", buckets},
                 {"ranks", args.ranks},
                 {"hosts", on_links ? Json(hosts.text(args.ranks)) : Json(nullptr)},
                 {"link", args.link},
                 {"card", args.card},
                 {"delay_ms", args.delay_ms},
                 {"transport", args.transport},
                 {"steps", args.steps},
                 {"hand_over", args.hand_over},
                 {"forward_ms", forward_ms(model, args)},
                 {"compute_ms", compute},
                 {"step_ms", step.middle},
                 {"step_spread_ms", {step.low, step.high}},
                 {"exposed_ms", exposed},
                 {"late_ms", turns ? Json(nullptr) : Json(late)},
                 {"bytes_sent_per_rank", static_cast<std::uint64_t>(sent)},
                 {"wire_bytes_per_host", on_links ? Json(static_cast<std::uint64_t>(wire)) : Json(nullptr)},
                 {"cpu_s_per_rank", cpu},
                 {"plan", plan_json}};
  report.text = fmt::format(
      "{}, {} tensors, {} values in {} bucket{}; {} ranks on {}, {}\n"
      "compute     {:.3f} ms per step (forward {:.3f})\n"
      "step        {:.3f} ms (median of {}; quartiles {:.3f} .. {:.3f})\n"
      "exposed     {:.3f} ms in which a rank waits for others\n"
      "sent        {:.0f} bytes per rank and step{}\n"
      "processor   {:.6f} s per rank and step\n"
      "late        {}\n"
      "plan        {}\n",
      args.model, model.tensors.size(), model.values(), buckets.size(), buckets.size() == 1 ? "" : "s",
      args.ranks, args.transport,
      on_links ? fmt::format("{} hosts with a link of {} each", hosts.count(args.ranks), args.link)
               : "this machine's own memory or loopback",
      compute, forward_ms(model, args), step.middle, args.steps, step.low, step.high, exposed, sent,
      on_links ? fmt::format(", {:.0f} per host on the wire", wire) : "", cpu,
      turns ? "buckets in turns" : fmt::format("{:.3f} ms at most, a bucket after it was ready", late),
      plan_line);
  return report;
}

Result<Report> replay(ReplayArgs& args) {
  if (!args.choices_file.empty()) {
    const Result<std::vector<std::uint8_t>> text =
        read_file(args.choices_file, kMostChoicesBytes / kReadPerValue);
    if (!text.ok()) return text.status();
    args.session.choices.assign(text->begin(), text->end());
  }
  const Result<bench::ModelList> model = bench::open_model(args.model);
  if (!model.ok()) return model.status();
  const Result<std::optional<ShapedLink>> link = link_of(args);
  if (!link.ok()) return link.status();
  if (args.card != kCardModes[0] && args.transport.empty()) args.transport = "tcp";
  TITHE_TRY(process_transport(args.transport, link->has_value(), args.card != kCardModes[0]));
  const Result<Hosts> hosts = Hosts::parse(args.session.hosts, args.ranks);
  if (!hosts.ok()) return hosts.status();
  if (link->has_value() && hosts->count(args.ranks) > kMostHosts)
    return Status(Code::kInvalid, fmt::format("--ranks: at most {} emulated hosts", kMostHosts));
  if (const Result<Choices> choices = engine::choices_of(args.session, args.ranks, *hosts); !choices.ok())
    return choices.status();

  if (const auto place = rank_place(); place.has_value() && place->rank == kSwitch)
    be_switch(*place, *hosts, **link);
  if (const auto place = rank_place())
    be_rank(*place, [&](SyncBoard& board, std::string* answer) {
      return replay_as_rank(args, *model, *hosts, *link, place->rank, board, answer);
    });
  Result<SyncBoard> board = SyncBoard::create(args.ranks, numbers_needed(args.ranks, args.steps));
  if (!board.ok()) return board.status();
  const RankProgress follower(*board, "steps", static_cast<std::uint64_t>(args.steps) + kWarmUpSteps);
  const Result<std::string> plan = run_ranks(*link, *board);
  if (!plan.ok()) return plan.status();
  return report_of(args, *model, *hosts, *board, *plan);
}

Run declare_replay(CLI::App& app) {
  auto args = std::make_shared<ReplayArgs>();
  app.add_option("--model", args->model,
                 "one of models/, or the path of such a file; bert_base:scale=0.1 is a tenth")
      ->required();
  app.add_option("--ranks", args->ranks, "ranks of one job, each a process")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  app.add_option(
         "--link", args->link,
         "none, or the rate of each rank's link, e.g. 1Gb/s: ranks are emulated hosts then, which takes "
         "root")
      ->capture_default_str();
  app.add_option("--hosts", args->session.hosts,
                 "which ranks share a host: 4x2, 3+1 (docs/reference/strategies.md); empty: with a link each "
                 "has its own");
  add_queue_and_card(app, args->queue_bytes, args->card);
  add_delay(app, args->delay_ms);
  app.add_flag("--tell-link", args->tell_link,
               "tell the session the link, so that sizes of parts follow from it");
  app.add_option("--transport", args->transport, "as `tithe transports` lists them, with its options");
  add_codec_and_strategy(app, args->session.codec, args->session.strategy);
  app.add_option("--choices", args->choices_file, "a file of rules (docs/guide/choices.md)");
  app.add_option("--lanes", args->session.lanes,
                 "compute threads per rank; 0: the calling thread does all; as a session has them")
      ->check(CLI::Range(0, 64));
  app.add_option("--pacer", args->session.pacer,
                 "how many bytes may be under way: off, or window=BYTES (docs/guide/pacing.md)")
      ->capture_default_str();
  app.add_option("--min-values", args->session.min_values, "smaller tensors are sent uncompressed")
      ->capture_default_str();
  app.add_option("--part-values", args->session.part_values, "larger tensors are cut into parts")
      ->capture_default_str();
  app.add_option("--steps", args->steps, "timed steps")->check(CLI::Range(1, 100000))->capture_default_str();
  app.add_option("--bucket-cap-mb", args->bucket_cap_mb,
                 "bucket capacity in MiB, as DistributedDataParallel has it; 0: a bucket per tensor")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--compute-scale", args->compute_scale, "forward and backward take so many times as long")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option(
         "--hand-over", args->hand_over,
         "ready: a bucket when it is; end: all after backward; turns: each after the result of the one "
         "before")
      ->check(CLI::IsMember({"ready", "end", "turns"}))
      ->capture_default_str();
  return [args] { return replay(*args); };
}

}  // namespace

const Verb replay_verb = {
    .name = "replay",
    .doc = "run training steps of a model's list of tensors, on emulated hosts or on this machine",
    .declare = declare_replay};

}  // namespace tithe::cli
