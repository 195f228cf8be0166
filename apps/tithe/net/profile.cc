// SPDX-License-Identifier: Apache-2.0
// tithe profile: what codecs, steps, messages and links cost here, for the simulator and the planner.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "file_io.h"
#include "link_options.h"
#include "output.h"
#include "profile_rank.h"
#include "rank_processes.h"
#include "tithe/seam/catalogue.h"
#include "verb.h"

namespace tithe::cli {
namespace {

std::string leaving(const LongMessages& rule) {
  if (rule.leave == Leaves::kAtOnce) return "at once";
  return fmt::format("{}, above {} bytes",
                     rule.leave == Leaves::kPosted ? "when their receive is posted" : "when asked for",
                     rule.above);
}

Result<Report> profile(ProfileArgs& args) {
  const Result<std::optional<ShapedLink>> link =
      shaped_link(args.link, false, kSwitchQueueBytes, kCardModes[0], args.delay_ms);
  if (!link.ok()) return link.status();
  const Result<Hosts> hosts = Hosts::parse(args.hosts, args.ranks);
  if (!hosts.ok()) return hosts.status();
  if (!args.hosts.empty() && !link->has_value())
    return Status(Code::kInvalid,
                  "--hosts: of emulated hosts: give --link; else all ranks share this machine");
  bool has_fp32 = args.codecs.empty();
  for (const std::string& name : args.codecs) {
    const Result<Spec> spec = parse_spec(name);
    if (!spec.ok()) return spec.status();
    has_fp32 = has_fp32 || to_string(*spec) == "fp32";
  }
  // Raw values travel as fp32, and every plan is held against it: a profile without it would serve for nothing.
  if (!has_fp32) args.codecs.insert(args.codecs.begin(), "fp32");
  const std::size_t codecs = args.codecs.empty() ? all_codecs().size() : args.codecs.size();
  TITHE_TRY(process_transport(args.transport, link->has_value()));
  // Nothing is measured for a file that cannot be written.
  for (const std::string& file : {args.out, args.cluster}) {
    if (file.empty() || rank_place()) continue;
    const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
    if (!std::filesystem::is_directory(folder))
      return Status(Code::kIo, fmt::format("{}: there is no such folder", folder.string()));
  }

  if (const auto place = rank_place(); place.has_value() && place->rank == kSwitch)
    be_switch(*place, *hosts, **link);
  if (const auto place = rank_place())
    be_rank(*place, [&](SyncBoard& board, std::string* answer) {
      return profile_as_rank(args, *link, place->rank, board, answer);
    });
  Result<SyncBoard> board = SyncBoard::create(args.ranks, profile_numbers(args.ranks));
  if (!board.ok()) return board.status();
  const RankProgress follower(*board, "codecs", codecs);
  const Result<std::string> answer = run_ranks(*link, *board);
  if (!answer.ok()) return answer.status();
  const Result<sim::Profile> read = sim::parse_profile(*answer, args.out);
  if (!read.ok()) return read.status();
  const sim::Profile& p = *read;
  const std::string file = sim::to_json(p);
  TITHE_TRY(write_file(args.out, {reinterpret_cast<const std::uint8_t*>(file.data()), file.size()}));

  if (!args.cluster.empty()) {
    const Result<std::string> text =
        sim::cluster_text(p, std::filesystem::path(args.cluster).stem().string());
    if (!text.ok()) return text.status();
    TITHE_TRY(write_file(args.cluster, {reinterpret_cast<const std::uint8_t*>(text->data()), text->size()}));
  }

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
  Report report;
  report.json = Json::parse(sim::to_json(p));
  report.json["out"] = args.out;
  report.text = fmt::format(
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
      p.costs.slice * 1e3, p.costs.check_byte * 1e9, p.links.size() - failed, p.links.size(),
      latency * 1e6 / static_cast<double>(std::max<std::size_t>(1, p.links.size() - failed)), least / 1e6,
      most / 1e6, p.together_bytes_per_second / 1e6,
      p.mutual_bytes_per_second > 0 ? fmt::format(", {:.1f} to each other", p.mutual_bytes_per_second / 1e6)
                                    : "",
      leaving(p.costs.long_messages), p.costs.many_to_one, p.costs.codecs.size(), args.most_values,
      p.assumed.empty() ? "nothing" : fmt::format("{}", fmt::join(p.assumed, ", ")));
  for (const sim::MeasuredLink& l : p.links)
    if (!l.failed.empty()) report.text += fmt::format("link {} to {}: {}\n", l.from, l.to, l.failed);
  return report;
}

Run declare(CLI::App& app) {
  auto args = std::make_shared<ProfileArgs>();
  app.add_option("--ranks", args->ranks, "that measure at once, each a process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--link", args->link,
                 "none, or the rate of each rank's link, e.g. 1Gb/s: ranks are emulated hosts then")
      ->capture_default_str();
  app.add_option(
      "--hosts", args->hosts,
      "which ranks share a host: 2x2, 3+1 (docs/strategies.md); empty: with a link each has its own");
  add_delay(app, args->delay_ms);
  app.add_option("--transport", args->transport, "as `tithe transports` lists them, with its options");
  app.add_option("--codec", args->codecs,
                 "with its parameters; several; fp32 is always measured; without it all codecs");
  app.add_option("--most-values", args->most_values, "of a codec's curve")
      ->check(CLI::Range(std::size_t{256}, std::size_t{1} << 26))
      ->capture_default_str();
  app.add_option("--lanes", args->lanes, "compute threads per rank")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  add_output(app, "-o,--out", args->out, "the file")->capture_default_str();
  add_output(app, "--cluster", args->cluster,
             "also a cluster's file of what was measured, for simulate and plan --cluster; to be edited");
  return [args] { return profile(*args); };
}

}  // namespace

const Verb profile_verb = {.name = "profile",
                           .doc = "what codecs, steps, messages and links cost here, for simulate",
                           .declare = declare};

}  // namespace tithe::cli
