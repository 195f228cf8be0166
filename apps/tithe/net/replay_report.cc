// SPDX-License-Identifier: Apache-2.0
// The time of a step is that of its slowest rank, and the report has the median over the timed steps. The laws are
// checked in all steps, including warm-up.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/quantile.h"
#include "replay.h"

namespace tithe::cli {
namespace {

constexpr double kRounding = 1.0 / (1 << 23);  // one unit in the last place of an fp32 value, over the value

const char* plural(std::size_t n) { return n == 1 ? "" : "s"; }

// The measurements of the timed steps, and the checks of all steps.
struct Findings {
  std::vector<double> step_ms;                         // of the slowest rank in each step
  double late_ms = 0, bytes_sent = 0, wire_bytes = 0;  // maxima
  double cpu_s = 0;                                    // mean
  bool identical = true;
  double apart = 0;
  double ledger_error = 0;  // largest imbalance in a step over the largest |gradient + residual| in that step
};

void add_step(Findings& out, const ReplayArgs& args, RankBoard& board, int step) {
  const bool timed = step >= kWarmUpSteps;
  double slowest = 0, largest = 0, imbalance = 0;
  for (Rank r = 0; r < args.ranks; ++r) {
    const StepNumbers& of = numbers_of(board, args, r, step);
    out.identical = out.identical && of.result_hash == numbers_of(board, args, 0, step).result_hash;
    out.apart = max_or_nan(out.apart, of.apart);
    largest = std::max(largest, of.largest);
    imbalance = max_or_nan(imbalance, of.imbalance);
    if (!timed) continue;
    slowest = std::max(slowest, of.step_ms);
    out.late_ms = std::max(out.late_ms, of.late_ms);
    out.bytes_sent = std::max(out.bytes_sent, of.bytes_sent);
    out.wire_bytes = std::max(out.wire_bytes, of.wire_bytes);
    out.cpu_s += of.cpu_s / args.ranks / args.steps;
  }
  out.ledger_error = max_or_nan(out.ledger_error, imbalance == 0 ? 0 : imbalance / largest);
  if (timed) out.step_ms.push_back(slowest);
}

Findings findings_of(const ReplayArgs& args, RankBoard& board) {
  Findings out;
  for (int k = 0; k < kWarmUpSteps + args.steps; ++k) add_step(out, args, board, k);
  return out;
}

// The parts that share a codec and a strategy, from a plan's lines `part 0: 100 values from 0, fp32 by gather (why)`.
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

// False with momentum, decay or clipping, which change the gradient before it is added to the residual.
bool has_ledger(const ReplayArgs& args, const FeedbackPolicy& feedback) {
  return args.keeps_ledger() && feedback.kind <= Feedback::kResidual && feedback.clip == 0;
}

std::string identity_verdict(const Findings& found, const ReplayArgs& args) {
  if (found.identical) return "yes: all ranks hold the same bits after every step";
  if (!args.cards_may_round) return "NO: ranks hold different results";
  return fmt::format("no, as lossy_card=on allows: values differ from rank 0's by at most {:.3g}",
                     found.apart);
}

// Each rounded addition may be off by half a unit in the last place.
std::string ledger_verdict(const Findings& found, const ReplayArgs& args, const FeedbackPolicy& feedback) {
  if (!args.keeps_ledger()) return "not checked; --n checks it";
  if (!has_ledger(args, feedback)) return "not kept with momentum, decay or clipping";
  if (found.ledger_error == 0) return "exact: nothing was lost";
  const std::string off = fmt::format("off by at most {:.3g} of the largest value", found.ledger_error);
  if (found.ledger_error <= kRounding * (args.ranks + 2)) return off + ": within rounding, ok";
  if (args.cards_may_round) return off + ": the rounding of cards is lost with lossy_card=on";
  if (feedback.kind == Feedback::kNone) return off + ": unsent values are lost with feedback=none";
  return off + ": MORE than rounding";
}

Json json_of(const ReplayArgs& args, const bench::ModelList& model, const Hosts& hosts,
             const Findings& found) {
  const bool on_links = args.link != "none";
  Json buckets = Json::array();
  for (const bench::TensorSpan bucket : bench::buckets_of(model, args.bucket_cap_mb))
    buckets.push_back(bucket.size());
  return {
      {"model", args.model.empty() ? Json(nullptr) : Json(args.model)},
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
      {"compute_ms", compute_ms(model, args)},
      {"step_ms", median(found.step_ms)},
      {"step_spread_ms", {quantile(found.step_ms, 0.25), quantile(found.step_ms, 0.75)}},
      {"exposed_ms", std::max(median(found.step_ms) - compute_ms(model, args), 0.0)},
      {"late_ms", args.hand_over == "turns" ? Json(nullptr) : Json(found.late_ms)},
      {"bytes_sent_per_rank", static_cast<std::uint64_t>(found.bytes_sent)},
      {"wire_bytes_per_host", on_links ? Json(static_cast<std::uint64_t>(found.wire_bytes)) : Json(nullptr)},
      {"cpu_s_per_rank", args.threads ? Json(nullptr) : Json(found.cpu_s)}};
}

// The measurements as text; `json` holds them.
std::string text_of(const ReplayArgs& args, const Hosts& hosts, const Json& json) {
  const bool on_links = args.link != "none";
  const std::size_t tensors = json["tensors"], buckets = json["buckets"].size();
  return fmt::format(
      "{}{} tensor{}, {} values in {} bucket{}; {} ranks on {}, {}\n"
      "compute     {:.3f} ms per step (forward {:.3f})\n"
      "step        {:.3f} ms (median of {}; quartiles {:.3f} .. {:.3f})\n"
      "exposed     {:.3f} ms in which a rank waits for others\n"
      "sent        {} bytes per rank and step{}\n"
      "processor   {}\n"
      "late        {}\n",
      args.model.empty() ? "" : args.model + ", ", tensors, plural(tensors), std::size_t{json["values"]},
      buckets, plural(buckets), args.ranks, args.transport,
      on_links ? fmt::format("{} hosts with a link of {} each", hosts.count(args.ranks), args.link)
               : "this machine's own memory or loopback",
      double{json["compute_ms"]}, double{json["forward_ms"]}, double{json["step_ms"]}, args.steps,
      double{json["step_spread_ms"][0]}, double{json["step_spread_ms"][1]}, double{json["exposed_ms"]},
      std::uint64_t{json["bytes_sent_per_rank"]},
      on_links ? fmt::format(", {} per host on the wire", std::uint64_t{json["wire_bytes_per_host"]}) : "",
      args.threads ? "not measured: ranks are threads of one process"
                   : fmt::format("{:.6f} s per rank and step", double{json["cpu_s_per_rank"]}),
      json["late_ms"].is_null()
          ? "buckets in sequence"
          : fmt::format("{:.3f} ms at most, a bucket after it was ready", double{json["late_ms"]}));
}

}  // namespace

Report report_of(const ReplayArgs& args, const bench::ModelList& model, const Choices& choices,
                 const Hosts& hosts, RankBoard& board, const std::string& plan) {
  const Findings found = findings_of(args, board);
  Report report;
  report.json = json_of(args, model, hosts, found);
  report.text = text_of(args, hosts, report.json) + "plan        ";
  const char* between = "";
  report.json["plan"] = Json::array();
  for (const auto& [as, share] : shares_of(plan)) {
    report.json["plan"].push_back({{"as", as}, {"parts", share.parts}, {"values", share.values}});
    report.text += fmt::format("{}{} ({} part{}, {} values)", std::exchange(between, "; "), as, share.parts,
                               plural(share.parts), share.values);
  }

  const FeedbackPolicy feedback = choices.choice(kOneTensor, args.n.value_or(0)).spec.feedback;
  const bool ledger = has_ledger(args, feedback);
  report.json["identical"] = found.identical;
  report.json["apart"] = args.cards_may_round ? Json(found.apart) : Json(nullptr);
  report.json["ledger_error"] = ledger ? Json(found.ledger_error) : Json(nullptr);
  report.json["ledger_exact"] = ledger ? Json(found.ledger_error == 0) : Json(nullptr);
  report.text += fmt::format("\nidentical   {}\nledger      {}\n", identity_verdict(found, args),
                             ledger_verdict(found, args, feedback));
  report.failed = !found.identical && !args.cards_may_round;
  return report;
}

}  // namespace tithe::cli
