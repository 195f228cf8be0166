// SPDX-License-Identifier: Apache-2.0
#include "planner/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

namespace tithe::planner {
namespace {

bool too_many(const Question& question) { return question.job.tensors.size() > kMostConfirmed; }

// A step under an assignment: simulated, or estimated where tensors are too many.
Result<sim::Outcome> step_of(Board& board, const Assignment& assignment) {
  const Question& q = board.question();
  if (!too_many(q)) return simulate(q, board.rules(assignment, {}));
  sim::Outcome out;
  out.step = board.judge(assignment);
  out.exposed = out.step - q.job.compute;
  out.bytes = {board.last_times().up * q.cluster.rates()[0] / q.cluster.hosts()[0].ranks};
  out.busiest = "host 0 up";
  return out;
}

// What a search found is an estimate's; so what stands close to it is simulated too.
class Confirm {
 public:
  explicit Confirm(Board& board) : board_(board) {
    constexpr std::size_t kWorth = 12'000;  // tensors that are simulated in all
    most_ = std::clamp<std::size_t>(kWorth / board.question().job.tensors.size(), 12, 40);
  }

  // The number of the candidate; of one that is there already, that one's.
  Result<std::size_t> add(std::string label, const Assignment& assignment) {
    for (std::size_t c = 0; c < seen_.size(); ++c)
      if (seen_[c].assignment == assignment) return c;
    Result<sim::Outcome> out = step_of(board_, assignment);
    if (!out.ok()) return out.status();
    seen_.push_back({std::move(label), assignment, std::move(*out)});
    return seen_.size() - 1;
  }
  bool spent() const { return seen_.size() >= most_; }
  std::vector<Candidate>& seen() { return seen_; }

  // What the other policies would do, so that none of them has the shorter step.
  Status others() {
    const std::pair<const Policy*, const char*> all[] = {{&secopa_policy, ""},
                                                         {&dragonn_policy, ""},
                                                         {&threshold_policy, "256KB"},
                                                         {&threshold_policy, "1MB"},
                                                         {&threshold_policy, "4MB"}};
    for (const auto& [policy, argument] : all) {
      const Result<Assignment> decided = policy->decide(board_, argument);
      if (!decided.ok()) return decided.status();
      const Result<std::size_t> at = add(std::string(policy->name), *decided);
      if (!at.ok()) return at.status();
    }
    return {};
  }

  // Settings that are the same for all tensors, the best of the estimate first; of each codec at least one.
  Status uniform() {
    struct Guess {
      Seconds step;
      std::size_t option;
      Assignment assignment;
    };
    std::vector<Guess> guesses;
    for (std::size_t o = 0; o < board_.options().size(); ++o) {
      Assignment a = board_.uniform(static_cast<int>(o), kUsualPartValues);
      guesses.push_back({board_.judge(a), o, std::move(a)});
    }
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Guess& a, const Guess& b) { return a.step < b.step; });
    for (const Guess& g : guesses) {
      if (seen_.size() >= most_ * 2 / 3) return {};
      const Result<std::size_t> at = add(to_string(board_.options()[g.option]), g.assignment);
      if (!at.ok()) return at.status();
    }
    return {};
  }

  // One change for all of its tensors at a time, as long as that makes the step shorter by what is worth further rules.
  Result<std::size_t> neighbours(std::size_t of) {
    constexpr double kWorthRules = 0.995;
    for (bool better = true; better && !spent();) {
      better = false;
      for (const auto& [label, change] : changes()) {
        if (spent()) return of;
        Assignment other = seen_[of].assignment;
        for (std::size_t t = 0; t < other.size(); ++t) change(t, other[t]);
        const Result<std::size_t> at = add(seen_[of].label + label, other);
        if (!at.ok()) return at.status();
        if (seen_[*at].step() < kWorthRules * seen_[of].step()) {
          of = *at;
          better = true;
        }
      }
    }
    return of;
  }

 private:
  using Change = std::function<void(std::size_t, Decision&)>;
  std::vector<std::pair<std::string, Change>> changes() {
    std::vector<std::pair<std::string, Change>> out;
    for (const char* strategy : {"server", "ring", "gather"})
      out.emplace_back(fmt::format(", by {}", strategy), [this, strategy](std::size_t, Decision& d) {
        const int o = board_.find(board_.option(d.option).spec, strategy);
        if (!d.grouped && board_.option(o).strategy->name == strategy) d.option = o;
      });
    for (const std::size_t part : {std::size_t{1} << 20, std::size_t{1} << 18})
      out.emplace_back(fmt::format(", parts of {}", part), [part](std::size_t, Decision& d) {
        if (!d.grouped) d.part_values = part;
      });
    const std::vector<JobTensor>& tensors = board_.question().job.tensors;
    // What 16 bits are enough for between hosts, they are inside of one.
    if (static_cast<int>(board_.question().cluster.hosts().size()) < board_.question().cluster.world())
      out.emplace_back(", bf16 inside", [this](std::size_t t, Decision& d) {
        if (board_.option(d.option).strategy->between != nullptr && !d.grouped)
          d.rounded_inside = board_.base(t).codec->name == "bf16";
      });
    const std::size_t large = std::ranges::max(tensors, {}, &JobTensor::n).n;
    out.emplace_back(", large first", [&tensors, large](std::size_t t, Decision& d) {
      d.early = !d.grouped && tensors[t].n >= large / 4;
    });
    for (const std::size_t small : {std::size_t{1} << 14, std::size_t{1} << 16})
      out.emplace_back(fmt::format(", groups below {}", small),
                       [this, &tensors, small](std::size_t t, Decision& d) {
                         if (tensors[t].n < small) d = board_.grouped(t);
                       });
    return out;
  }

  Board& board_;
  std::size_t most_;
  std::vector<Candidate> seen_;
};

std::string verdict_of(const Planned& p) {
  const double step = p.outcome.step * 1e3;
  const std::string_view how = p.estimated ? ", estimated" : "";
  if (p.outcome.exposed <= 0.01 * p.outcome.step)
    return fmt::format("step {:.3f} ms{}: communication is hidden, nothing more can be gained", step, how);
  if (p.outcome.step > kWorthIt * p.bf16)
    return fmt::format("step {:.3f} ms{}: nothing that is allowed beats bf16", step, how);
  return fmt::format("step {:.3f} ms{} instead of {:.3f} with bf16, {:.2f} times as fast", step, how,
                     p.bf16 * 1e3, p.bf16 / p.outcome.step);
}

bool compresses(const Board& board, const Assignment& assignment) {
  return std::any_of(assignment.begin(), assignment.end(),
                     [&](const Decision& d) { return board.option(d.option).lossy; });
}

}  // namespace

Result<Planned> plan(const Question& question, std::string_view policy) {
  std::string_view argument;
  const Result<const Policy*> found = find_policy(policy, argument);
  if (!found.ok()) return found.status();
  Result<Board> made = Board::make(question);
  if (!made.ok()) return made.status();
  Board& board = *made;
  const Result<Assignment> decided = (*found)->decide(board, argument);
  if (!decided.ok()) return decided.status();

  Confirm confirm(board);
  const Result<Assignment> bf16 = bf16_policy.decide(board, {}), raw = raw_policy.decide(board, {});
  const Result<std::size_t> at_bf16 = confirm.add("bf16", *bf16);
  if (!at_bf16.ok()) return at_bf16.status();
  const Result<std::size_t> at_raw = confirm.add("raw", *raw);
  if (!at_raw.ok()) return at_raw.status();
  const Result<std::size_t> own = confirm.add(std::string(policy), *decided);
  if (!own.ok()) return own.status();
  std::size_t best = *own;
  if (*found == &timeline_policy) {
    TITHE_TRY(confirm.others());
    TITHE_TRY(confirm.uniform());
    const auto shortest = [&](bool lossy_too) {
      std::size_t at = *at_bf16;
      for (std::size_t c = 0; c < confirm.seen().size(); ++c)
        if (confirm.seen()[c].step() < confirm.seen()[at].step() &&
            (lossy_too || !compresses(board, confirm.seen()[c].assignment)))
          at = c;
      return at;
    };
    const Result<std::size_t> at_best = confirm.neighbours(shortest(true));
    if (!at_best.ok()) return at_best.status();
    best = *at_best;
    // What loses nothing stays, unless compressing is worth it.
    const std::size_t lossless = compresses(board, confirm.seen()[best].assignment) ? shortest(false) : best;
    if (confirm.seen()[best].step() > kWorthIt * confirm.seen()[lossless].step()) best = lossless;
  }

  Planned out;
  out.policy = std::string(policy);
  out.bf16 = confirm.seen()[*at_bf16].step();
  out.raw = confirm.seen()[*at_raw].step();
  out.assignment = confirm.seen()[best].assignment;
  out.judged = board.judged;
  out.rules = board.rules(out.assignment, {});
  out.outcome = confirm.seen()[best].outcome;
  out.estimated = too_many(question);
  out.looked_at = std::move(confirm.seen());
  out.verdict = verdict_of(out);
  return out;
}

Result<Bounds> bounds_of(const Question& question, const Planned& planned) {
  Bounds out;
  out.step = planned.outcome.step;
  out.no_communication = question.job.compute;
  const auto with = [&](const sim::Cluster& cluster) -> Result<Seconds> {
    Question other = question;
    other.cluster = cluster;
    Result<Board> board = Board::make(other);
    if (!board.ok()) return board.status();
    const Result<sim::Outcome> o = step_of(*board, planned.assignment);
    if (!o.ok()) return o.status();
    return o->step;
  };
  struct Help {
    Seconds* step;
    std::string name;
    sim::Cluster cluster;
  };
  const std::string link = planned.outcome.busiest.ends_with("down") ? "downlink" : "uplink";
  for (const Help& h :
       {Help{&out.twice_bandwidth, link, question.cluster.with_rate(2 * question.cluster.rates()[0])},
        Help{&out.half_latency, "latency", question.cluster.with_latency(0.5)},
        Help{&out.twice_cores, "the lanes", question.cluster.with_cores(2)}}) {
    const Result<Seconds> step = with(h.cluster);
    if (!step.ok()) return step.status();
    *h.step = *step;
  }
  constexpr double kHelps = 0.97;
  out.by = "the engine";
  Seconds least = kHelps * out.step;
  if (planned.outcome.exposed <= 0.01 * out.step) {
    out.by = "compute";
    return out;
  }
  if (out.twice_bandwidth < least) {
    least = out.twice_bandwidth;
    out.by = link;
  }
  if (out.half_latency < least) {
    least = out.half_latency;
    out.by = "latency";
  }
  if (out.twice_cores < least) out.by = "the lanes";
  return out;
}

Result<std::vector<Reason>> reasons_of(const Question& question, const Planned& planned, std::size_t most) {
  Result<Board> board = Board::make(question);
  if (!board.ok()) return board.status();
  const std::vector<JobTensor>& tensors = question.job.tensors;
  std::vector<std::size_t> largest(tensors.size());
  for (std::size_t t = 0; t < largest.size(); ++t) largest[t] = t;
  std::stable_sort(largest.begin(), largest.end(),
                   [&](std::size_t a, std::size_t b) { return tensors[a].n > tensors[b].n; });
  largest.resize(std::min(most, largest.size()));
  std::vector<Reason> out;
  for (const std::size_t t : largest) {
    Reason reason{t, {}};
    Assignment other = planned.assignment;
    for (std::size_t o = 0; o < board->options().size(); ++o) {
      if (!board->allowed(t, static_cast<int>(o))) continue;
      Alternative a{to_string(board->options()[o]), std::numeric_limits<double>::infinity()};
      const Decision& is = planned.assignment[t];
      a.taken = is.option == static_cast<int>(o);
      for (const std::size_t part : {kUsualPartValues, std::size_t{1} << 20, std::size_t{1} << 18}) {
        other[t] = a.taken ? is : Decision{static_cast<int>(o), part, false};
        a.step = std::min(a.step, board->judge(other));
      }
      reason.alternatives.push_back(std::move(a));
    }
    std::stable_sort(reason.alternatives.begin(), reason.alternatives.end(),
                     [](const Alternative& a, const Alternative& b) { return a.step < b.step; });
    out.push_back(std::move(reason));
  }
  return out;
}

}  // namespace tithe::planner
