// SPDX-License-Identifier: Apache-2.0
// tithe profile: what codecs, steps, messages and links cost here, for the simulator and the planner.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "file_io.h"
#include "link_options.h"
#include "local_ranks.h"
#include "output.h"
#include "plan/allowance.h"
#include "profile_rank.h"
#include "tithe/connect.h"
#include "tithe/seam/catalogue.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr int kMaxProfiled = 64;

std::string leaving(const LongMessages& rule) {
  if (rule.protocol == SendProtocol::kEager) return "at once";
  return fmt::format(
      "{}, above {} bytes",
      rule.protocol == SendProtocol::kPosted ? "when their receive is posted" : "when asked for", rule.above);
}

// Codecs that exist, and those that every plan tries and compares with. None: all codecs.
Status complete(std::vector<std::string>& codecs) {
  if (codecs.empty()) return {};
  std::vector<std::string> all;
  for (const Spec& spec : default_codecs()) all.push_back(to_string(spec));
  for (const std::string& name : codecs) {
    const Result<Spec> spec = parse_spec(name);
    if (!spec.ok()) return spec.status();
    if (std::ranges::find(all, to_string(*spec)) == all.end()) all.push_back(to_string(*spec));
  }
  codecs = std::move(all);
  return {};
}

std::string text_of(const sim::Profile& p, const ProfileArgs& args) {
  std::size_t failed = 0;
  double least = 0, most = 0, latency = 0;
  for (const sim::MeasuredLink& l : p.links) {
    if (!l.failed.empty()) {
      ++failed;
      continue;
    }
    least = least == 0 ? l.bytes_per_second : std::min(least, l.bytes_per_second);
    most = std::max(most, l.bytes_per_second);
    latency += l.latency;
  }
  std::string text = fmt::format(
      "{}: {} ranks at once on {}, {}; spread {:.0f} %\n"
      "step        {:.2f} us; {:.2f} us to begin a bucket\n"
      "message     {:.2f} us to hand over, as much to take, {:.2f} us where the lane slept; "
      "{:.3f} ns per byte beside them\n"
      "cores       {:.2f} us to wake a lane; {:.2f} ms until a busy core is given up\n"
      "checksum    {:.3f} ns per byte\n"
      "links       {} of {} measured; {:.1f} us; {:.1f} to {:.1f} MB/s alone, {:.1f} while all send{}\n"
      "long        messages leave {}; {:.2f} of a link's rate where several ranks send to one\n"
      "codecs      {}, 256 to {} values\n"
      "assumed     {}\n",
      args.out, p.ranks, p.machine, p.transport, 100 * p.spread, p.costs.step * 1e6, p.costs.bucket * 1e6,
      p.costs.post * 1e6, p.costs.turn * 1e6, p.costs.send_byte * 1e9, p.costs.wake * 1e6,
      p.costs.slice * 1e3, p.costs.checksum_byte * 1e9, p.links.size() - failed, p.links.size(),
      latency * 1e6 / static_cast<double>(std::max<std::size_t>(1, p.links.size() - failed)), least / 1e6,
      most / 1e6, p.together_bytes_per_second / 1e6,
      p.mutual_bytes_per_second > 0 ? fmt::format(", {:.1f} to each other", p.mutual_bytes_per_second / 1e6)
                                    : "",
      leaving(p.costs.long_messages), p.costs.many_to_one, p.costs.codecs.size(), args.max_values,
      p.assumed.empty() ? "nothing" : fmt::format("{}", fmt::join(p.assumed, ", ")));
  for (const sim::MeasuredLink& l : p.links)
    if (!l.failed.empty()) text += fmt::format("link {} to {}: {}\n", l.from, l.to, l.failed);
  return text;
}

// Writes what rank 0 answered.
Result<Report> written(const ProfileArgs& args, const std::string& answer) {
  const Result<sim::Profile> p = sim::parse_profile(answer, args.out);
  if (!p.ok()) return p.status();
  const std::string file = sim::to_json(*p);
  TITHE_TRY(write_file(args.out, file));
  if (!args.cluster.empty()) {
    const Result<std::string> text =
        sim::cluster_text(*p, std::filesystem::path(args.cluster).stem().string());
    if (!text.ok()) return text.status();
    TITHE_TRY(write_file(args.cluster, *text));
  }
  Report report;
  report.json = Json::parse(file);
  report.json["out"] = args.out;
  report.text = text_of(*p, args);
  return report;
}

// One of the ranks that a launcher has started.
Result<Report> as_launched(ProfileArgs& args) {
  if (args.link != "none" || !args.hosts.empty() || args.delay_ms > 0)
    return Status(Code::kInvalid,
                  "--launched measures real hosts: --link, --hosts and --delay-ms are for emulated hosts");
  Result<Launch> launch = launch_from_environment();
  if (!launch.ok()) return launch.status();
  if (launch->world > kMaxProfiled)
    return Status(Code::kInvalid,
                  fmt::format("--launched: {} ranks, at most {} are allowed: start one for each host",
                              launch->world, kMaxProfiled));
  if (args.port > 0) launch->port = args.port;
  args.ranks = launch->world;
  TITHE_TRY(complete(args.codecs));
  TITHE_TRY(process_transport(args.transport, false));
  // The other ranks wait for rank 0, so it sends them its failure.
  const std::array files{args.out, args.cluster};
  const Status able = launch->rank == 0 ? check_folders(files) : Status{};
  std::string answer;
  TITHE_TRY(profile_as_launched(args, *launch, able, &answer));
  if (launch->rank == 0) return written(args, answer);
  return Report{
      .text = fmt::format("rank {} of {}: measured; rank 0 has the file\n", launch->rank, launch->world),
      .json = {{"rank", launch->rank}, {"ranks", launch->world}}};
}

// Ranks that a launcher started and that then each start four of their own were not meant.
Status not_launched(bool ranks_option) {
  if (ranks_option) return {};
  const bool any = std::getenv("RANK") != nullptr || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr ||
                   std::getenv("PMI_RANK") != nullptr;
  const Result<Launch> launch = any ? launch_from_environment() : Status(Code::kInvalid, "no launcher");
  if (!launch.ok() || launch->world == 1) return {};
  return {
      Code::kInvalid,
      fmt::format("a launcher has started this as rank {} of {}: give --launched to measure between these "
                  "ranks, or --ranks to measure on this machine alone",
                  launch->rank, launch->world)};
}

Result<Report> profile(ProfileArgs& args, bool ranks_option) {
  if (args.launched) return as_launched(args);
  if (!is_rank_process()) TITHE_TRY(not_launched(ranks_option));
  const Result<std::optional<ShapedLink>> link =
      shaped_link(args.link, false, kSwitchQueueBytes, kCardModes[0], args.delay_ms);
  if (!link.ok()) return link.status();
  const Result<Hosts> hosts = Hosts::parse(args.hosts, args.ranks);
  if (!hosts.ok()) return hosts.status();
  if (!args.hosts.empty() && !link->has_value())
    return Status(Code::kInvalid,
                  "--hosts: for emulated hosts: give --link; without it all ranks share this machine");
  TITHE_TRY(complete(args.codecs));
  TITHE_TRY(process_transport(args.transport, link->has_value()));
  if (!is_rank_process()) TITHE_TRY(check_folders(std::array{args.out, args.cluster}));

  Result<RankBoard> board = open_board(args.ranks, profile_numbers(args.ranks));
  if (!board.ok()) return board.status();
  const RankProgress follower(*board, "codecs",
                              args.codecs.empty() ? all_codecs().size() : args.codecs.size());
  const Result<std::string> answer = run_processes(*board, *hosts, *link, [&](Rank me, std::string* text) {
    return profile_as_rank(args, *hosts, *link, me, *board, text);
  });
  if (!answer.ok()) return answer.status();
  return written(args, *answer);
}

Run declare_profile(CLI::App& app) {
  auto args = std::make_shared<ProfileArgs>();
  CLI::Option* ranks = app.add_option("--ranks", args->ranks, "ranks that measure at once, each a process")
                           ->check(CLI::Range(1, kMaxProfiled))
                           ->capture_default_str();
  app.add_option("--link", args->link,
                 "none, or the rate of each rank's link, e.g. 1Gb/s, which makes ranks emulated hosts")
      ->capture_default_str();
  app.add_option("--hosts", args->hosts,
                 "the ranks that share a host: 2x2, 3+1 (docs/reference/strategies.md); empty: with a link "
                 "each rank has its own");
  add_delay(app, args->delay_ms);
  app.add_option("--transport", args->transport, "as `tithe transports` lists them, with its options");
  app.add_option(
      "--codec", args->codecs,
      "measure this codec, with its parameters; may be given several times; fp32, bf16 and zip are "
      "always measured. Without it: all codecs at their defaults");
  app.add_option("--most-values", args->max_values, "values of the largest tensor in the timing of a codec")
      ->check(CLI::Range(std::size_t{256}, std::size_t{1} << 26))
      ->capture_default_str();
  app.add_option("--lanes", args->lanes, "compute threads per rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  add_output(app, "-o,--out", args->out, "the file to write")->capture_default_str();
  add_output(app, "--cluster", args->cluster,
             "also write a cluster file of the measured links, for simulate and plan --cluster");
  app.add_flag("--launched", args->launched,
               "this process is a rank that torchrun, mpirun or srun started, on several hosts")
      ->excludes(ranks);
  app.add_option("--port", args->port,
                 "the port of the rendezvous, instead of MASTER_PORT, which torchrun uses")
      ->check(CLI::Range(1, 65535));
  return [args, ranks] { return profile(*args, ranks->count() > 0); };
}

}  // namespace

const Verb profile_verb = {
    .name = "profile",
    .doc = "measure the costs of codecs, steps, messages and links here, for simulate and plan",
    .declare = declare_profile};

}  // namespace tithe::cli
