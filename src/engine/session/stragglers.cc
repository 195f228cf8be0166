// SPDX-License-Identifier: Apache-2.0
#include "engine/session/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "engine/peers/session_config.h"

namespace tithe::engine {
namespace {

constexpr std::uint32_t kMaxWithout = 64;  // the most stored results per rank

Status not_straggling(std::string_view text) {
  return {Code::kInvalid,
          fmt::format("stragglers={}: must be off, or share=0.25 (report a rank that takes 25 % longer than "
                      "the median), optionally followed by ,without=4,ranks=1,level=100: the most rounds in "
                      "a row without a rank (1 to {}), the most ranks missing at once, and the interval of "
                      "rounds at which all ranks wait for each other",
                      printable(text, 80), kMaxWithout)};
}
// The number, or nullopt if the text is not a number in least .. most, or not whole where `whole` requires it.

std::optional<double> number_in(std::string_view text, double least, double most, bool whole) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size() || !(value >= least && value <= most))
    return std::nullopt;
  if (whole && value != static_cast<double>(static_cast<std::uint32_t>(value))) return std::nullopt;
  return value;
}

}  // namespace

Result<Stragglers> parse_stragglers(std::string_view text) {
  if (text == "off") return Stragglers{.share = 0};
  std::optional<double> share, without, ranks, level;
  const struct {
    std::string_view name;
    std::optional<double>* into;
    double least, most;
  } known[] = {{"share", &share, 0.01, 1000},
               {"without", &without, 1, kMaxWithout},
               {"ranks", &ranks, 1, 1 << 16},
               {"level", &level, 3, 1e9}};
  for (const auto& [name, value] : settings_in(text)) {
    const auto* const of = std::ranges::find(known, name, [](const auto& k) { return k.name; });
    if (of == std::end(known) || *of->into) return not_straggling(text);
    *of->into = number_in(value, of->least, of->most, of->into != &share);
    if (!*of->into) return not_straggling(text);
  }
  if ((ranks || level) && !without) return not_straggling(text);
  return Stragglers{.share = share.value_or(Stragglers{}.share),
                    .without = static_cast<std::uint32_t>(without.value_or(0)),
                    .ranks = static_cast<int>(ranks.value_or(1)),
                    .level = static_cast<std::uint32_t>(level.value_or(0))};
}

Status check_stragglers(const Stragglers& stragglers, const SessionOptions& options) {
  if (!stragglers.proxied()) return {};
  const auto refused = [](Code code, std::string_view what) {
    return Status(code, fmt::format("stragglers with without=: {}", what));
  };
  if (options.lanes == 0)
    return refused(Code::kInvalid, "a straggler proxy needs a lane: set lanes=1 or more");
  if (options.undo)
    return refused(Code::kUnsupported, "a late rank cannot undo a round that it has not reached: set undo=0");
  if (options.servers > 0)
    return refused(Code::kUnsupported, "servers have no gradients that could be late: set servers=0");
  if (options.schedule != "none")
    return refused(Code::kUnsupported,
                   "a late rank reports to the schedule later than other ranks: set schedule=none");
  if (automatic(options))
    return refused(Code::kUnsupported,
                   "codec auto measures the gradients of each round, and late gradients arrive in another "
                   "round: name a codec");
  return {};
}

Status check_stragglers(const Stragglers& stragglers, const Choices& choices) {
  if (!stragglers.proxied()) return {};
  for (const Choice& c : choices.all()) {
    const Codec& codec = *c.spec.codec;
    const FeedbackPolicy& feedback = c.spec.feedback;
    std::string_view why;
    if (codec.traits.votes)
      why = "counts every rank as a vote, and a straggler proxy has no vote";
    else if (feedback.kind == Feedback::kMomentum)
      why = "adds momentum when a gradient arrives: use the optimizer's momentum";
    else if (feedback.clip > 0)
      why = "clips a gradient when it arrives: set clip=0";
    else if (feedback.kind == Feedback::kNone && !codec.traits.lossless)
      why = "keeps no residual (feedback=none), and a late gradient waits in the residual";
    if (!why.empty())
      return {Code::kUnsupported, fmt::format("stragglers with without=: {} {}", to_string(c.spec), why)};
  }
  return {};
}

// The cost of a straggler in a round is its time minus the second longest time, because all ranks wait for the
// slowest. Over a window, the rank with the longest total time is the candidate; it counts if it exceeds the median
// by both thresholds.
bool StragglerDetector::take(std::span<const std::uint64_t> away_ns) {
  if (share_ == 0 || away_ns.size() != sums_.size() || sums_.size() < 2) return false;
  std::size_t last = 0;
  std::uint64_t next = 0;
  for (std::size_t r = 0; r < sums_.size(); ++r) {
    sums_[r].away += away_ns[r];
    if (r > 0 && away_ns[r] > away_ns[last]) {
      next = away_ns[last];
      last = r;
    } else if (r > 0) {
      next = std::max(next, away_ns[r]);
    }
  }
  sums_[last].cost += away_ns[last] - next;
  if (++rounds_ < kLateWindow) return false;
  const auto slowest = std::ranges::max_element(sums_, {}, &Sum::away);
  for (std::size_t r = 0; r < sums_.size(); ++r) means_[r] = sums_[r].away / rounds_;
  const auto median = means_.begin() + static_cast<std::ptrdiff_t>((means_.size() - 1) / 2);
  std::ranges::nth_element(means_, median);
  Straggler late{.rank = static_cast<Rank>(slowest - sums_.begin()),
                 .own_ns = slowest->away / rounds_,
                 .cost_ns = slowest->cost / rounds_};
  const auto more = static_cast<double>(late.own_ns - *median);
  late.share = more / static_cast<double>(std::max<std::uint64_t>(*median, 1));
  const bool counts =
      late.share >= share_ && more >= static_cast<double>(std::chrono::nanoseconds(kMinLate).count());
  found_ = counts ? late : Straggler{};
  std::ranges::fill(sums_, Sum{});
  rounds_ = 0;
  return true;
}

}  // namespace tithe::engine
