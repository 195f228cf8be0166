// SPDX-License-Identifier: Apache-2.0
#include "chaos/oracles.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/finite.h"
#include "support/ledger.h"
#include "support/ranks.h"

namespace tithe::chaos {
namespace {

using std::chrono::milliseconds;
using testing::same_bits;
using testing::text;
using testing::Values;

// Detection takes the timeout and a tenth; the failure report and the release of pending operations take the rest.
constexpr Nanoseconds kBound = kTimeout + kTimeout / 10 + milliseconds(2500);

std::size_t at(Rank r) { return static_cast<std::size_t>(r); }

bool all_nan(const Values& v) {
  return std::all_of(v.begin(), v.end(), [](const auto& t) {
    return std::all_of(t.begin(), t.end(), [](float f) { return std::isnan(f); });
  });
}

bool all_finite(const Values& v) {
  return std::all_of(v.begin(), v.end(), [](const auto& t) {
    return std::all_of(t.begin(), t.end(), [](float f) { return is_finite(f); });
  });
}

bool power_of_two(int n) { return (n & (n - 1)) == 0; }

// Faults after which a job may continue unaffected.
bool harmless(const Fault& f) {
  return f.kind == FaultKind::kNone || f.kind == FaultKind::kSlow ||
         (f.kind == FaultKind::kFreeze && f.lasts < kTimeout * 8 / 10);
}

}  // namespace

bool survives(const RunRecord& run_record, const Fault& fault, Rank r) {
  if (harmless(fault)) return true;
  // If the two cannot communicate, even through a third rank, they may report differently and differ by one commit.
  if (fault.kind == FaultKind::kLose || fault.kind == FaultKind::kCut)
    return run_record.ends.size() > 2 || (r != fault.who && r != fault.other);
  // The process with modified bytes stays to the end and gets the failure report.
  if (fault.kind == FaultKind::kDamage || fault.kind == FaultKind::kForge) return true;
  return r != fault.who && !run_record.ends[at(r)].left;
}

void Oracles::judge(const RunRecord& run_record, const Fault& fault, int from, int to) {
  if (run_record.hung) fails("returns", "the world hung: it was ended after 100 timeouts");
  if (!run_record.clash.empty()) fails("lent", run_record.clash);
  judge_ends(run_record, fault, to);
  judge_values(run_record, from, to);
  judge_states(run_record, fault);
  if (!run_record.gpu.empty()) fails("driver", run_record.gpu);
}

void Oracles::judge_baseline() { judge(baseline_, {}, 0, scenario_.rounds); }

void Oracles::judge_restored(const RunRecord& run_record, const RunRecord& before, int from, int to) {
  for (Rank r = 0; r < scenario_.world; ++r) {
    if (!run_record.refused[at(r)].empty())
      fails("saved", fmt::format("rank {}'s state was refused: {}", r, run_record.refused[at(r)]));
    const RankEnd& end = run_record.ends[at(r)];
    if (end.round >= 0)
      fails("continues",
            fmt::format("rank {}, {} of round {}: {}", r, end.where, end.round, text(end.status)));
  }
  before_ = &before;
  began_ = from;
  judge(run_record, {}, from, to);
  before_ = nullptr;
}

void Oracles::judge_ends(const RunRecord& run_record, const Fault& fault, int to) {
  const RankEnd* previous = nullptr;
  Rank speaker = 0;
  int first_failed = to;
  for (Rank r = 0; r < scenario_.world; ++r) {
    const RankEnd& end = run_record.ends[at(r)];
    if (!survives(run_record, fault, r) || end.round < 0) continue;
    first_failed = std::min(first_failed, end.round);
    if (previous != nullptr &&
        (previous->status.peer() != end.status.peer() || previous->status.code() != end.status.code()))
      fails(fault.kind == FaultKind::kLose || fault.kind == FaultKind::kCut ? "link" : "agreed",
            fmt::format("rank {}: {}; rank {}: {}", speaker, text(previous->status), r, text(end.status)));
    previous = &end;
    speaker = r;
  }
  for (Rank r = 0; r < scenario_.world; ++r) {
    const RankEnd& end = run_record.ends[at(r)];
    if (survives(run_record, fault, r) && end.committed > first_failed)
      fails("committed",
            fmt::format("rank {} has committed {} rounds, but another one failed in round {}: {}", r,
                        end.committed, first_failed, text(previous->status)));
    if (end.round < 0) {
      if (!end.left && end.committed != to)
        fails("returns", fmt::format("rank {} stopped without a reason", r));
      continue;
    }
    if (end.where == "open") fails("sound", fmt::format("rank {}: {}", r, text(end.status)));
    judge_blame(run_record, fault, r);
  }
}

void Oracles::judge_blame(const RunRecord& run_record, const Fault& fault, Rank r) {
  const RankEnd& end = run_record.ends[at(r)];
  const std::string report =
      fmt::format("rank {}, {} of round {}: {}", r, end.where, end.round, text(end.status));
  const bool closed = fault.kind == FaultKind::kClose && run_record.ends[at(fault.who)].left;
  if (harmless(fault) || (!run_record.struck && !closed)) return fails("sound", report);
  if (end.status.what().empty()) fails("named", report + " (no text)");
  if (run_record.struck) {
    const Time begun = run_record.struck_at +
                       (fault.kind == FaultKind::kFreeze && r == fault.who ? fault.lasts : Nanoseconds(0));
    if (end.at - begun > kBound)
      fails("returns", fmt::format("{} ({} ms after the fault)", report,
                                   std::chrono::duration_cast<milliseconds>(end.at - begun).count()));
  }
  const Rank peer = end.status.peer();
  const Code code = end.status.code();
  using enum FaultKind;
  switch (fault.kind) {
    case kKill:
    case kClose:
      if (r != fault.who && (peer != fault.who || code != Code::kPeerLost)) fails("named", report);
      break;
    case kVanish:
    case kFreeze:
      if (r != fault.who && (peer != fault.who || code != Code::kTimeout)) fails("named", report);
      break;
    case kLose:  // one of the two, or none
      if (peer != fault.who && peer != fault.other && peer != Status::kNoPeer) fails("named", report);
      break;
    case kCut:  // two ranks cannot tell a broken link from a dead peer; the others reach both
      if (code != Code::kTimeout || peer != (scenario_.world > 2 ? Status::kNoPeer
                                             : r == fault.who    ? fault.other
                                                                 : fault.who))
        fails("named", report);
      break;
    case kApart:  // a rank without any connection can only name its own link
      if (r == fault.who ? scenario_.world > 2 && peer != r && peer != Status::kNoPeer : peer != fault.who)
        fails("named", report);
      break;
    case kDamage:
    case kForge:
      if (peer != fault.who || (code != Code::kCorrupt && code != Code::kMismatch))
        fails("named", report + " (" + run_record.changed + ")");
      break;
    case kDriver:
      if (r != fault.who && (peer != fault.who || (code != Code::kIo && code != Code::kPeerLost)))
        fails("driver", report);
      break;
    default:
      break;
  }
}

bool Oracles::matches_baseline(const RunRecord& run_record, Rank r, int round) const {
  for (int k = 0; k <= round; ++k)
    if (record(before_ != nullptr && k < began_ ? *before_ : run_record, r, k).choices !=
        record(baseline_, r, k).choices)
      return false;
  return true;
}

void Oracles::judge_values(const RunRecord& run_record, int from, int to) {
  for (int round = from; round < to; ++round) judge_round(run_record, round);
}

void Oracles::judge_round(const RunRecord& run_record, int round) {
  const bool poisoned = round == scenario_.nan_round && scenario_.sends_nan();
  const bool scatters = scenario_.kind == RoundKind::kReduceScatter,
             gathers = scenario_.kind == RoundKind::kAllGather;
  const RankRound* first = nullptr;
  bool all = true;
  for (Rank r = 0; r < scenario_.world; ++r) {
    const RankRound& mine = record(run_record, r, round);
    if (!mine.committed) {
      all = false;
      continue;
    }
    const std::string where = fmt::format("rank {}, round {}", r, round);
    const RankRound& baseline = record(baseline_, r, round);
    if (poisoned && !mine.dropped) fails("honest", where + ": the round was not dropped");
    if (mine.dropped && !poisoned && round != scenario_.extreme_round)
      fails("honest", where + ": dropped, and every value was finite");
    if (mine.dropped && !all_nan(mine.result))
      fails("honest", where + ": dropped, but some values are not NaN");
    if (mine.dropped && round > 0 && record(run_record, r, round - 1).committed &&
        !same_bits(mine.residual, record(run_record, r, round - 1).residual))
      fails("honest", where + ": dropped, and the residuals changed");
    if (!mine.dropped && !all_finite(mine.result)) fails("finite", where + ": results");
    if (!all_finite(mine.residual)) fails("finite", where + ": residuals");
    if (first != nullptr && mine.choices != first->choices)
      fails("together", where + ": other choices than another rank's: " + mine.choices);
    if (baseline.committed && &run_record != &baseline_ && matches_baseline(run_record, r, round)) {
      if (mine.dropped != baseline.dropped || (!mine.dropped && !same_bits(mine.result, baseline.result)))
        fails("repeat", where + ": the result is not that of a baseline run");
      if (!same_bits(mine.residual, baseline.residual))
        fails("repeat", where + ": the residuals are not those of a baseline run");
    }
    if (first != nullptr && (mine.dropped != first->dropped ||
                             (!mine.dropped && !scatters && !same_bits(mine.result, first->result))))
      fails("identity", where + ": another result than another rank's");
    if (first == nullptr) first = &mine;
  }
  const bool scales = !scenario_.average || power_of_two(scenario_.world);
  if (!all || first->dropped || !scales || round == scenario_.extreme_round) return;
  if (scenario_.extreme_round >= 0 && round > scenario_.extreme_round)
    return;  // the residuals are as large as the values: nothing balances
  std::vector<Values> grads(at(scenario_.world)), before, after;
  for (Rank r = 0; r < scenario_.world; ++r) {
    for (std::size_t t = 0; t < scenario_.tensors.size(); ++t) {
      grads[at(r)].push_back(scenario_.gradient(t, r, round));
      for (std::size_t i = 0; gathers && i < grads[at(r)][t].size(); ++i)
        if (!scenario_.owns(t, r, i)) grads[at(r)][t][i] = 0;
    }
    after.push_back(record(run_record, r, round).residual);
    const RankRound* last = round == 0 ? nullptr : &record(run_record, r, round - 1);
    if (last != nullptr && !last->committed && scenario_.propose_at >= 0) return;
    if (last != nullptr && !last->committed)
      last = &record(baseline_, r, round - 1);  // a restored job's first
    before.push_back(last != nullptr ? last->residual : grads[at(r)]);
    if (last == nullptr)
      for (auto& v : before.back()) std::fill(v.begin(), v.end(), 0.0F);
  }
  Values result = first->result;
  for (Rank r = 0; scatters && r < scenario_.world; ++r)
    for (std::size_t t = 0; t < result.size(); ++t)
      for (std::size_t i = 0; i < result[t].size(); ++i)
        if (scenario_.owns(t, r, i)) result[t][i] = record(run_record, r, round).result[t][i];
  if (scenario_.average && !gathers)
    for (auto& v : result)
      for (float& x : v) x *= static_cast<float>(scenario_.world);
  const Traits traits = scenario_.law.traits();
  const bool exact = traits.exact_ledger && scenario_.data == testing::Data::kDyadic;
  const testing::Imbalance off = testing::imbalance(grads, before, result, after, traits, exact);
  if (!(off.times <= (exact ? 0 : 1)))
    fails("ledger",
          fmt::format(
              "round {}, tensor {}, value {}: the ranks put in {}, the result and what they keep is {}, "
              "allowed are {}",
              round, off.tensor, off.value, off.put_in, off.came_out, off.allowed));
}

void Oracles::judge_states(const RunRecord& run_record, const Fault& fault) {
  for (Rank r = 0; r < scenario_.world; ++r) {
    const RankEnd& end = run_record.ends[at(r)];
    if (fault.kind == FaultKind::kDriver && r == fault.who &&
        testing::has(end.save.what(), "on a GPU that does not respond"))
      continue;
    if (!end.left && !end.save.ok())
      fails("saved", fmt::format("rank {} after {}: state(): {}", r, end.round < 0 ? "the end" : "a failure",
                                 text(end.save)));
  }
}

}  // namespace tithe::chaos
