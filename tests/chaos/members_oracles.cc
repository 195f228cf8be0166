// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "chaos/members.h"
#include "support/ledger.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;
using testing::same_bits;
using testing::text;
using testing::Values;

// The common results of a round's members, and each member's record of the round.
using Key = std::pair<std::uint64_t, int>;  // epoch and step
struct Round {
  std::map<int, const CommittedRound*> by_process;
};

class Judge {
 public:
  Judge(const Job& job, const JobOutcome& result) : job_(job), result_(result) {
    for (std::size_t p = 0; p < result.outcomes.size(); ++p)
      for (const CommittedRound& d : result.outcomes[p].committed_rounds) {
        Round& round = rounds_[{d.epoch, d.step}];
        if (!round.by_process.emplace(static_cast<int>(p), &d).second)
          fails("one", fmt::format("process {} has committed step {} of epoch {} twice", p, d.step, d.epoch));
      }
  }

  std::vector<Violation> run() {
    if (result_.hung) fails("returns", "the world hung: it was ended");
    if (!result_.clash.empty()) fails("lent", result_.clash);
    for (const auto& [key, round] : rounds_) judge(key, round);
    judge_one();
    for (std::size_t p = 0; p < result_.outcomes.size(); ++p) judge(static_cast<int>(p), result_.outcomes[p]);
    judge_sums();
    judge_prompt();
    return std::move(violations_);
  }

 private:
  void fails(std::string oracle, std::string text) {
    violations_.push_back({std::move(oracle), std::move(text)});
  }
  const MemberOutcome& outcome(int p) const { return result_.outcomes[static_cast<std::size_t>(p)]; }
  std::string name(int p) const { return job_.processes[static_cast<std::size_t>(p)].name; }

  void judge(const Key& key, const Round& round) {
    const std::string where = fmt::format("epoch {}, step {}", key.first, key.second);
    const CommittedRound& first = *round.by_process.begin()->second;
    for (const auto& [p, d] : round.by_process) {
      if (d->members != first.members)
        return fails("one", fmt::format("{}: members {} and {}", where, first.members, d->members));
      if (std::ranges::find(d->members, p) == d->members.end())
        fails("one", fmt::format("{}: process {} is none of the members {}", where, p, d->members));
      if (d->dropped != first.dropped || !same_bits(d->result, first.result))
        fails("identity", fmt::format("{}: process {} has another result", where, p));
      if (d->dropped) fails("identity", fmt::format("{}: dropped, and every value was finite", where));
    }
    if (round.by_process.size() != first.members.size()) return;  // a process was lost during the commit
    std::vector<Values> grads, before, after;
    for (const auto& [p, d] : round.by_process) {
      grads.emplace_back();
      for (std::size_t t = 0; t < job_.scenario.tensors.size(); ++t)
        grads.back().push_back(job_.gradient(t, p, key.first, key.second));
      before.push_back(d->before);
      after.push_back(d->after);
    }
    const Traits traits = job_.scenario.law.traits();
    const bool exact = traits.exact_ledger && job_.scenario.data == testing::Data::kDyadic;
    const testing::Imbalance off = testing::imbalance(grads, before, first.result, after, traits, exact);
    if (!(off.times <= (exact ? 0 : 1)))
      fails("ledger", fmt::format("{}: tensor {}, value {}: put in {}, came out or kept {}, allowed {}",
                                  where, off.tensor, off.value, off.put_in, off.came_out, off.allowed));
  }

  // A step in two epochs: the members of the earlier one were lost directly after it.
  void judge_one() {
    for (const auto& [key, round] : rounds_)
      for (const auto& [later, again] : rounds_) {
        if (later.second != key.second || later.first <= key.first) continue;
        for (const auto& [p, d] : round.by_process)
          for (const CommittedRound& other : outcome(p).committed_rounds)
            if (other.life == d->life && other.step > d->step)
              fails("one",
                    fmt::format("step {} was done in epochs {} and {}, and process {} of the first continued",
                                key.second, key.first, later.first, p));
      }
  }

  void judge(int p, const MemberOutcome& f) {
    const CommittedRound* last = nullptr;
    std::uint64_t booked = 0;
    for (const CommittedRound& d : f.committed_rounds) {
      const std::string where = fmt::format("process {}, epoch {}, step {}", p, d.epoch, d.step);
      const bool goes_on = last != nullptr && last->life == d.life;
      if (!goes_on) {
        for (const auto& v : d.before)
          if (std::ranges::any_of(v, [](float x) { return x != 0; }))
            fails("kept", where + ": it is new and has a residual");
      } else {
        if (!same_bits(last->after, d.before)) fails("kept", where + ": its residual has changed");
        if (d.step != last->step + 1) fails("one", where + fmt::format(": its last one was {}", last->step));
      }
      if (!goes_on) booked = d.ranks_lost - d.lost;  // in the time before it joined
      if (d.ranks_lost != booked + d.lost)
        fails("counted",
              where + fmt::format(": {} are lost, and {} are counted", d.lost, d.ranks_lost - booked));
      last = &d;
    }
    if (f.finished || f.dead) return;
    if (f.status.ok() || f.status.what().empty())
      fails("reports", fmt::format("process {} stopped without a reason", p));
    if (must_finish(p))
      fails("continues", fmt::format("process {} at step {}: {}", p, f.step, text(f.status)));
  }

  // True if more than half of all processes met no fault, and process p is one of them: it must finish all steps.
  bool must_finish(int p) const {
    std::set<int> struck;
    for (std::size_t k = 0; k < job_.faults.size(); ++k) {
      const Fault& f = job_.faults[k];
      using enum FaultKind;
      if (f.kind == kHalves) return false;
      // A process whose damaged frame claims another version is named as differing, and stays out.
      if (f.kind == kForge || (f.kind == kDamage && outcome(f.who).status.code() != Code::kMismatch))
        continue;
      if (f.kind == kCut && !f.heals) return false;
      struck.insert(f.who);
      if (f.kind == kCut) struck.insert(f.other);
    }
    for (std::size_t k = 0; k < job_.begin; ++k)  // the first epoch waits for all first members
      if (!result_.outcomes[k].opened) return false;
    for (std::size_t k = job_.begin; k < job_.processes.size(); ++k)  // a late joiner may be rejected
      struck.insert(static_cast<int>(k));
    const std::size_t well = job_.processes.size() - struck.size();
    return !struck.contains(p) && well > struck.size() && well >= static_cast<std::size_t>(job_.min_world);
  }

  void judge_sums() {
    // Processes that did the last step in an earlier epoch were lost directly after it.
    std::uint64_t latest = 0;
    for (const MemberOutcome& f : result_.outcomes)
      if (f.finished && !f.committed_rounds.empty())
        latest = std::max(latest, f.committed_rounds.back().epoch);
    const MemberOutcome* first = nullptr;
    for (const MemberOutcome& f : result_.outcomes) {
      if (!f.finished || f.committed_rounds.empty() || f.committed_rounds.back().epoch != latest) continue;
      if (first != nullptr && !same_bits(first->sums, f.sums))
        fails("identity", "two processes that ran to the end differ");
      if (first == nullptr) first = &f;
    }
  }

  // If the only faults are simultaneous kills, the survivors do the next step within a second.
  void judge_prompt() {
    if (job_.faults.empty() || job_.processes.size() != job_.begin) return;
    for (std::size_t k = 0; k < job_.faults.size(); ++k)
      if (job_.faults[k].kind != FaultKind::kKill || result_.struck[k] == 0 ||
          result_.struck_at[k] != result_.struck_at[0])
        return;
    for (std::size_t p = 0; p < result_.outcomes.size(); ++p) {
      if (!must_finish(static_cast<int>(p))) continue;
      for (const CommittedRound& d : result_.outcomes[p].committed_rounds)
        if (d.at > result_.struck_at[0]) {
          const auto took = d.at - result_.struck_at[0];
          const auto most = milliseconds(1000) + 2 * job_.between + 20 * job_.board_ms +
                            100 * job_.scenario.conditions.max_latency;
          if (took > most)
            fails("prompt", fmt::format("process {} did its next step {} ms after the kill, allowed are {}",
                                        p, std::chrono::duration_cast<milliseconds>(took).count(),
                                        std::chrono::duration_cast<milliseconds>(most).count()));
          break;
        }
    }
  }

  const Job& job_;
  const JobOutcome& result_;
  std::map<Key, Round> rounds_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> judge(const Job& job, const JobOutcome& result) { return Judge(job, result).run(); }

}  // namespace tithe::chaos
