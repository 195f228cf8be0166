// SPDX-License-Identifier: Apache-2.0
// The verb `tithe replay`: its options, and its ranks as processes or threads.
#include "replay.h"

#include <fmt/format.h>

#include "codec_options.h"
#include "engine/peers/session_config.h"
#include "link_options.h"
#include "local_ranks.h"

namespace tithe::cli {
namespace {

Result<bench::ModelList> model_of(const ReplayArgs& args) {
  if (args.model.empty() != args.n.has_value())
    return Status(Code::kInvalid, "give either --model NAME, or --n VALUES for one tensor");
  if (!args.n.has_value()) return bench::open_model(args.model);
  return bench::ModelList{.model = kOneTensor,
                          .tensors = {{.name = kOneTensor, .values = *args.n, .row = *args.n}}};
}

Result<std::optional<ShapedLink>> link_of(ReplayArgs& args) {
  if (args.link == "none" && args.set_link) return Status(Code::kInvalid, "--tell-link: requires --link");
  Result<std::optional<ShapedLink>> link =
      shaped_link(args.link, true, args.queue_bytes, args.card, args.delay_ms);
  if (!link.ok()) return link;
  if (args.link.find('+') != std::string::npos && !args.set_link)
    return Status(Code::kInvalid,
                  "--link: the cost of a frame is only for the session, with --tell-link; the kernel shapes "
                  "only the rate");
  if (args.set_link) args.session.link = args.link;
  return link;
}

// Completes --transport and returns its kind. Without a link, ranks may be threads.
Result<const TransportKind*> transport_of(ReplayArgs& args, bool has_link) {
  const bool has_card = args.card != kCardModes[0];
  if (has_card && args.transport.empty()) args.transport = "tcp";
  const Result<TransportChoice> choice = choose_transport(args.transport);
  if (!choice.ok()) return choice.status();
  args.threads = choice->kind->open == nullptr && !has_link;
  if (!args.threads)
    if (const Status s = process_transport(args.transport, has_link, has_card); !s.ok()) return s;
  for (std::size_t i = 0; i < choice->values.size(); ++i)
    args.cards_may_round |= choice->kind->options[i].name == "lossy_card" && choice->values[i] == "on";
  return choice->kind;
}

Result<Report> replay(ReplayArgs& args) {
  TITHE_TRY(read_choices(args.choices_file, args.session));
  const Result<bench::ModelList> model = model_of(args);
  if (!model.ok()) return model.status();
  if (args.keeps_ledger()) args.session.average = false;  // the ledger compares with the sum
  const Result<std::optional<ShapedLink>> link = link_of(args);
  if (!link.ok()) return link.status();
  const Result<const TransportKind*> transport = transport_of(args, link->has_value());
  if (!transport.ok()) return transport.status();
  const Result<Hosts> hosts = Hosts::parse(args.session.hosts, args.ranks);
  if (!hosts.ok()) return hosts.status();
  if (link->has_value() && hosts->count(args.ranks) > kMaxHosts)
    return Status(Code::kInvalid, fmt::format("--ranks: at most {} emulated hosts", kMaxHosts));
  const Result<Choices> choices = engine::choices_of(args.session, args.ranks, *hosts);
  if (!choices.ok()) return choices.status();

  Result<RankBoard> board = open_board(args.ranks, numbers_needed(args, *model));
  if (!board.ok()) return board.status();
  const RankProgress follower(*board, "steps", static_cast<std::uint64_t>(args.steps) + kWarmUpSteps);
  std::vector<std::unique_ptr<Transport>> transports;  // of threads
  if (args.threads) transports = (*transport)->open_threads(args.ranks, {});
  const RankWork work = [&](Rank me, std::string* plan) -> Status {
    if (args.threads)
      return run_rank(args, *model, me, std::move(transports[static_cast<std::size_t>(me)]), *board, plan);
    Result<std::unique_ptr<Transport>> mine = connect_ranks(args.transport, *hosts, *link, me, *board);
    return mine.ok() ? run_rank(args, *model, me, std::move(*mine), *board, plan) : mine.status();
  };
  const Result<std::string> plan =
      args.threads ? run_threads(*board, work) : run_processes(*board, *hosts, *link, work);
  if (!plan.ok()) return plan.status();
  return report_of(args, *model, *choices, *hosts, *board, *plan);
}

Run declare_replay(CLI::App& app) {
  auto args = std::make_shared<ReplayArgs>();
  app.add_option("--model", args->model,
                 "a name of data/models/, or the path of such a file; bert_base:scale=0.1 is a tenth");
  app.add_option("--n", args->n, "values of one tensor, called gradient, without compute, instead of a model")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 32));
  app.add_option("--ranks", args->ranks, "ranks of one job, each a process; with --transport loop a thread")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--link", args->link,
                 "none, or the rate of each rank's link, e.g. 1Gb/s, which makes ranks emulated hosts and "
                 "requires root")
      ->capture_default_str();
  app.add_option("--hosts", args->session.hosts,
                 "the ranks that share a host: 4x2, 3+1 (docs/reference/strategies.md); empty: with a link "
                 "each rank has its own");
  add_queue_and_card(app, args->queue_bytes, args->card);
  add_delay(app, args->delay_ms);
  app.add_flag("--tell-link", args->set_link,
               "set the session's link, so that it determines the sizes of parts");
  app.add_option("--transport", args->transport, "as `tithe transports` lists them, with its options");
  add_codec_and_strategy(app, args->session.codec, args->session.strategy);
  app.add_option("--servers", args->session.servers,
                 "number of ranks, the last ones, that only sum for the others")
      ->check(CLI::Range(0, kMaxRanks))
      ->capture_default_str();
  app.add_option("--choices", args->choices_file, "a file of rules (docs/guide/choices.md)");
  app.add_option("--lanes", args->session.lanes,
                 "compute threads per rank; 0: the calling thread does all; not given: the session chooses")
      ->check(CLI::Range(0, 64));
  app.add_option("--pacer", args->session.pacer,
                 "limit of bytes in flight: off, or window=BYTES (docs/guide/pacing.md)")
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
  app.add_option("--compute-scale", args->compute_scale, "factor on the times of forward and backward")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--hand-over", args->hand_over,
                 "ready: each bucket when it is ready; end: all after backward; turns: each after the "
                 "previous result")
      ->check(CLI::IsMember({"ready", "end", "turns"}))
      ->capture_default_str();
  return [args] { return replay(*args); };
}

}  // namespace

const Verb replay_verb = {
    .name = "replay",
    .doc = "time training steps of a model or of one tensor between local ranks, and check the laws",
    .declare = declare_replay};

}  // namespace tithe::cli
