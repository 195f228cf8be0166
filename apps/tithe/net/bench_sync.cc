// SPDX-License-Identifier: Apache-2.0
// tithe bench sync: time whole rounds between ranks on this machine, and check them against the laws. Ranks are threads
// or processes of this program; the transport decides.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <thread>

#include "codec_options.h"
#include "engine/peers/session_config.h"
#include "engine/program/tagging.h"
#include "file_io.h"
#include "link_options.h"
#include "rank_processes.h"
#include "sync_rank.h"
#include "tithe/seam/spec.h"
#include "verb.h"

namespace tithe::cli {
namespace {

constexpr double kRounding = 1.0 / (1 << 23);  // one unit in the last place of an fp32 value, over the value

Result<SyncOutcome> as_threads(const TransportKind& kind, const SyncArgs& args, SyncBoard& board) {
  std::vector<std::unique_ptr<Transport>> transports = kind.open_threads(args.ranks, {});
  SyncOutcome outcome;
  std::vector<std::thread> ranks;
  for (Rank r = 0; r < args.ranks; ++r)
    ranks.emplace_back([&, r] {
      static_cast<void>(
          run_rank(r, std::move(transports[static_cast<std::size_t>(r)]), args, board, &outcome));
    });
  for (std::thread& rank : ranks) rank.join();
  if (const Status s = board.failure(); !s.ok()) return s;
  return outcome;
}

Result<std::optional<ShapedLink>> link_of(const SyncArgs& args) {
  Result<std::optional<ShapedLink>> link = shaped_link(args.link, false, args.queue_bytes, args.card);
  if (link.ok() && link->has_value() && args.ranks > kMostHosts)
    return Status(Code::kInvalid, fmt::format("--ranks: at most {} emulated hosts", kMostHosts));
  return link;
}

Status run_as_rank(const SyncArgs& args, const std::optional<ShapedLink>& link, Rank me, SyncBoard& board,
                   SyncOutcome* outcome) {
  if (link.has_value()) {
    TITHE_TRY(enter_host(me, *link));
    keep_ucx_on_link();
    if (!board.barrier()) return {Code::kCancelled, "another rank failed"};
  }
  Result<std::unique_ptr<Transport>> transport =
      open_transport(args.transport, {.rank = me, .world = args.ranks, .all_gather = board.all_gather(me)});
  if (!transport.ok()) return transport.status();
  return run_rank(me, std::move(*transport), args, board, outcome);
}

// Rank 0's findings, on their way between processes.
std::string to_text(const SyncOutcome& outcome) {
  return Json{{"seconds", outcome.seconds},
              {"bytes_sent", outcome.bytes_sent},
              {"wire_bytes", outcome.wire_bytes},
              {"identical", outcome.identical},
              {"apart", outcome.apart},
              {"plan", outcome.plan},
              {"ledger_error", outcome.ledger_error}}
      .dump();
}

Result<SyncOutcome> as_processes(const std::optional<ShapedLink>& link, SyncBoard& board) {
  const Result<std::string> answer = run_ranks(link, board);
  if (!answer.ok()) return answer.status();
  const Json json = Json::parse(*answer, nullptr, false);
  if (json.is_discarded()) return Status(Code::kIo, "rank 0 gave no whole answer");
  SyncOutcome outcome;
  outcome.seconds = json["seconds"].get<std::vector<double>>();
  outcome.bytes_sent = json["bytes_sent"];
  outcome.wire_bytes = json["wire_bytes"];
  outcome.identical = json["identical"];
  outcome.apart = json["apart"].is_null() ? std::nan("") : json["apart"].get<double>();
  outcome.plan = json["plan"];
  outcome.ledger_error = json["ledger_error"].is_null() ? std::nan("") : json["ledger_error"].get<double>();
  return outcome;
}

// The meaning of the ledger's error. Where sums are rounded, each addition may be off by half a unit in the last place.
std::string ledger_verdict(const Spec& spec, const SyncOutcome& outcome, const SyncArgs& args) {
  if (outcome.ledger_error == 0) return "exact: nothing was lost";
  const std::string off = fmt::format("off by at most {:.3g} of the largest value", outcome.ledger_error);
  if (outcome.ledger_error <= kRounding * (args.ranks + 2)) return off + ": within rounding, ok";
  if (args.rounds_on_the_way()) return off + ": what is rounded on the way is lost with checksum=headers";
  if (spec.feedback.kind == Feedback::kNone) return off + ": what is not sent is lost with feedback=none";
  return off + ": MORE than rounding";
}

std::string identity_verdict(const SyncOutcome& outcome, const SyncArgs& args) {
  if (outcome.identical) return "yes: all ranks hold the same bits after every round";
  if (!args.rounds_on_the_way()) return "NO: ranks hold different results";
  return fmt::format("no, as checksum=headers has it: values differ from rank 0's by at most {:.3g}",
                     outcome.apart);
}

// The parts that are sent uncompressed, from the lines of a plan: `part 0: 100 values from 0, fp32 by gather (why)`.
std::string plan_verdict(const std::string& plan, const Spec& spec) {
  std::size_t parts = 0, raw = 0;
  std::istringstream lines(plan);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("part ")) continue;
    ++parts;
    raw += line.find("are sent uncompressed") != std::string::npos;
  }
  if (raw == 0) return fmt::format("{} part{}, all as {}", parts, parts == 1 ? "" : "s", to_string(spec));
  return fmt::format("{} part{}; {} below min_values ({}) travel{} as fp32, not as {}", parts,
                     parts == 1 ? "" : "s", raw, SessionOptions{}.min_values, raw == 1 ? "s" : "",
                     to_string(spec));
}

// The strategy of the first part, as the ranks' plan has it: only they know who shares a host. Without a part: the
// chosen one.
std::string strategy_of(const std::string& plan, const Choice& choice) {
  constexpr std::string_view kBy = " by ";
  const std::size_t at = plan.find(kBy);
  if (at == std::string::npos) return std::string(choice.strategy_of(0).name);
  const std::size_t from = at + kBy.size();
  return plan.substr(from, plan.find_first_of(" ,", from) - from);
}

// The choice for the one tensor.
Result<Choice> choice_of(const SyncArgs& args) {
  const SessionOptions options{
      .codec = args.codec, .strategy = args.strategy, .choices = args.choices, .servers = args.servers};
  const Result<Cover> checksum = engine::parse_checksum(args.checksum, engine::Authenticate::kAuto);
  if (!checksum.ok()) return checksum.status();
  const Result<Hosts> hosts = Hosts::parse(args.hosts, args.ranks);
  if (!hosts.ok()) return hosts.status();
  const Result<Choices> choices = engine::choices_of(options, args.ranks, *hosts);
  if (!choices.ok()) return choices.status();
  if (*checksum == Cover::kHeader) TITHE_TRY(engine::check_plain(*choices, engine::automatic(options)));
  if (choices->rule_of(kSyncKey, args.n) < choices->rules().size()) return choices->choice(kSyncKey, args.n);
  return choices->all().back();  // that a small tensor is sent uncompressed is told beside it
}

Result<Report> bench_sync(SyncArgs& args) {
  if (!args.choices_file.empty()) {
    const Result<std::vector<std::uint8_t>> text =
        read_file(args.choices_file, kMostChoicesBytes / kReadPerValue);
    if (!text.ok()) return text.status();
    args.choices.assign(text->begin(), text->end());
  }
  const Result<Choice> choice = choice_of(args);
  if (!choice.ok()) return choice.status();
  const Spec& spec = choice->spec;
  const Result<std::optional<ShapedLink>> link = link_of(args);
  if (!link.ok()) return link.status();
  if (args.transport.empty()) args.transport = link->has_value() ? "tcp" : "loop";
  if (link->has_value()) TITHE_TRY(process_transport(args.transport, true, args.card != kCardModes[0]));
  const Result<TransportChoice> transport = choose_transport(args.transport);
  if (!transport.ok()) return transport.status();
  if (const auto place = rank_place(); place.has_value() && place->rank == kSwitch) {
    const Result<Hosts> apart = Hosts::parse("", args.ranks);
    be_switch(*place, *apart, **link);
  }
  if (const auto place = rank_place())
    be_rank(*place, [&](SyncBoard& board, std::string* answer) {
      SyncOutcome outcome;
      TITHE_TRY(run_as_rank(args, *link, place->rank, board, &outcome));
      *answer = to_text(outcome);
      return Status{};
    });
  Result<SyncBoard> board = SyncBoard::create(args.ranks, args.n);
  if (!board.ok()) return board.status();
  std::optional<RankProgress> follower(std::in_place, *board, "rounds",
                                       static_cast<std::uint64_t>(args.rounds) + kWarmUpRounds);
  Result<SyncOutcome> outcome = transport->kind->open == nullptr ? as_threads(*transport->kind, args, *board)
                                                                 : as_processes(*link, *board);
  follower.reset();
  if (!outcome.ok()) return outcome.status();

  std::vector<double> sorted = outcome->seconds;
  std::sort(sorted.begin(), sorted.end());
  const auto quantile = [&](double q) {
    return sorted[static_cast<std::size_t>(std::lround(q * static_cast<double>(sorted.size() - 1)))];
  };
  // Momentum and clipping change the gradient before it is taken: what was put in is no longer what must come out.
  const bool ledger = spec.feedback.kind <= Feedback::kResidual && spec.feedback.clip == 0;
  const bool exact = outcome->ledger_error == 0;
  const std::string strategy = strategy_of(outcome->plan, *choice);
  Report report;
  report.json = {{"ranks", args.ranks},
                 {"transport", args.transport},
                 {"link", args.link},
                 {"card", args.card},
                 {"codec", to_string(spec)},
                 {"strategy", strategy},
                 {"n", args.n},
                 {"rounds", args.rounds},
                 {"lanes", args.lanes},
                 {"pacer", args.pacer},
                 {"checksum", args.checksum},
                 {"seconds_per_round", quantile(0.5)},
                 {"seconds_spread", {quantile(0.25), quantile(0.75)}},
                 {"bytes_sent_per_rank", outcome->bytes_sent},
                 {"wire_bytes_per_host", link->has_value() ? Json(outcome->wire_bytes) : Json(nullptr)},
                 {"plan", outcome->plan},
                 {"identical", outcome->identical},
                 {"apart", args.rounds_on_the_way() ? Json(outcome->apart) : Json(nullptr)},
                 {"ledger_error", ledger ? Json(outcome->ledger_error) : Json(nullptr)},
                 {"ledger_exact", ledger ? Json(exact) : Json(nullptr)}};
  report.text = fmt::format(
      "{}, {}, {} ranks on {}, {} values, {} rounds\n"
      "per round   {:.6f} s (median; quartiles {:.6f} .. {:.6f})\n"
      "sent        {} bytes per rank and round ({:.4f} bits per value){}\n"
      "plan        {}\n"
      "identical   {}\n"
      "ledger      {}\n",
      to_string(spec), strategy, args.ranks, args.transport, args.n, args.rounds, quantile(0.5),
      quantile(0.25), quantile(0.75), outcome->bytes_sent,
      args.n == 0 ? 0 : 8 * static_cast<double>(outcome->bytes_sent) / static_cast<double>(args.n),
      link->has_value() ? fmt::format(", {} per host on the wire", outcome->wire_bytes) : "",
      plan_verdict(outcome->plan, spec), identity_verdict(*outcome, args),
      ledger ? ledger_verdict(spec, *outcome, args) : "not kept with momentum or clipping");
  report.failed = !outcome->identical && !args.rounds_on_the_way();
  return report;
}

Run declare_bench_sync(CLI::App& app) {
  auto args = std::make_shared<SyncArgs>();
  app.add_option("--ranks", args->ranks, "ranks of one job, on this machine")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  app.add_option("--transport", args->transport, "as `tithe transports` lists them, with its options")
      ->default_str("loop");
  add_codec_and_strategy(app, args->codec, args->strategy);
  app.add_option("--hosts", args->hosts,
                 "which ranks share a host: 2x2, 3+1; without: as the transport finds it");
  app.add_option(
         "--link", args->link,
         "none, or the rate of each rank's link, e.g. 1Gb/s: ranks are emulated hosts then, which takes root")
      ->capture_default_str();
  add_queue_and_card(app, args->queue_bytes, args->card);
  app.add_option("--servers", args->servers, "number of ranks, the last ones, that only sum for the others")
      ->check(CLI::Range(0, kMostRanks))
      ->capture_default_str();
  app.add_option("--choices", args->choices_file,
                 "a file of rules (docs/guide/choices.md); the tensor is called gradient");
  app.add_option("--n", args->n, "values per rank")
      ->check(CLI::Range(std::size_t{0}, std::size_t{1} << 32))
      ->capture_default_str();
  app.add_option("--rounds", args->rounds, "timed rounds")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--lanes", args->lanes, "compute threads per rank; 0: the calling thread does all")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  app.add_option("--pacer", args->pacer,
                 "how many bytes may be under way: off, or window=BYTES (docs/guide/pacing.md)")
      ->capture_default_str();
  app.add_option("--checksum", args->checksum,
                 "what frames' checksums cover: frames, or headers, for fp32 through cards that round "
                 "(docs/inside/card.md)")
      ->capture_default_str();
  return [args] { return bench_sync(*args); };
}

}  // namespace

const Verb bench_sync_verb = {
    .name = "bench_sync",
    .doc = "time whole rounds between ranks on this machine, and check them against the laws",
    .declare = declare_bench_sync};

}  // namespace tithe::cli
