// SPDX-License-Identifier: Apache-2.0
// Direct evidence (accused, left, gone) precedes conclusions from silence. Silence is counted in votes: each witness
// votes against every rank that is silent to it. With more than two ranks, a witness that receives nothing from all
// others votes against itself instead, because its own link is the likely cause.
#include "engine/peers/failure_report.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::engine {
namespace {

std::size_t at(Rank r) { return static_cast<std::size_t>(r); }

// Shortens a reason that repeats its context: "rank 2 is gone: Endpoint timeout" becomes "Endpoint timeout".
std::string reason(const std::string& what, Rank blamed) {
  std::string text = what;
  const std::string name = fmt::format("rank {} ", blamed);
  for (const std::string& start : {name + "is gone: ", name + "is silent: "})
    if (text.starts_with(start)) text.erase(0, start.size());
  if (text.starts_with(name)) text.replace(0, name.size(), "it ");
  return text;
}

struct Votes {
  std::vector<int> of;                     // accusations by rank
  std::vector<std::vector<char>> accuses;  // [witness][accused]
};

// A rank that receives nothing from any of several peers is evidence only against itself: its own link is broken.
bool receives_from_none(const Votes& votes, Rank witness) {
  const std::vector<char>& accused = votes.accuses[at(witness)];
  return accused.size() > 2 &&
         static_cast<std::size_t>(std::count(accused.begin(), accused.end(), 1)) + 1 == accused.size();
}

// Counts, for each rank, the witnesses to which it is silent. The vote of a rank that receives nothing at all counts
// against itself.
Votes silent_votes(const FailureReports& reports) {
  const std::size_t world = reports.size();
  Votes votes{std::vector<int>(world), std::vector<std::vector<char>>(world, std::vector<char>(world))};
  for (std::size_t r = 0; r < world; ++r) {
    if (!reports[r]) continue;
    for (const Rank u : reports[r]->silent_peers)
      if (at(u) != r) votes.accuses[r][at(u)] = 1;
    if (reports[r]->finding == Finding::kSilent && reports[r]->blamed >= 0 && reports[r]->witness >= 0 &&
        reports[r]->blamed != reports[r]->witness)
      votes.accuses[at(reports[r]->witness)][at(reports[r]->blamed)] = 1;
  }
  for (std::size_t w = 0; w < world; ++w) {
    if (receives_from_none(votes, static_cast<Rank>(w))) {
      ++votes.of[w];
      continue;
    }
    for (std::size_t r = 0; r < world; ++r) votes.of[r] += votes.accuses[w][r];
  }
  return votes;
}

// The failure report of the lowest witness that found `finding` about `blamed`. There must be such a report.
const FailureReport& first(const FailureReports& reports, Finding finding, Rank blamed) {
  const FailureReport* best = nullptr;
  for (const auto& t : reports)
    if (t && t->finding == finding && t->blamed == blamed && (best == nullptr || t->witness < best->witness))
      best = &*t;
  return *best;
}

// The rank that most witnesses blame with this finding; in a tie, the lowest. Without a report: kNone.
constexpr Rank kNone = Status::kNoPeer - 1;
Rank most_frequent(const FailureReports& reports, Finding finding) {
  Rank best = kNone;
  std::ptrdiff_t most = 0;
  for (Rank r = Status::kNoPeer; r < static_cast<Rank>(reports.size()); ++r) {
    std::vector<Rank> witnesses;
    for (const auto& t : reports) {
      if (!t || t->finding != finding || t->blamed != r) continue;
      // A rank that reported was not lost: it ended because of its own finding.
      if (finding == Finding::kGone && r >= 0 && reports[at(r)]) continue;
      if (std::find(witnesses.begin(), witnesses.end(), t->witness) == witnesses.end())
        witnesses.push_back(t->witness);
    }
    if (std::ssize(witnesses) > most) {
      most = std::ssize(witnesses);
      best = r;
    }
  }
  return best;
}

// The verdict from silence: the rank with the most votes; in a tie, one that did not report. If it receives nothing
// from all others, its own link is the suspect. If it and another rank accuse each other with equal votes and both
// reported, the link between them is the suspect.
Status silent(Rank mine, const FailureReports& reports, const std::string& head) {
  const Votes votes = silent_votes(reports);
  const auto world = static_cast<Rank>(reports.size());
  const auto reported = [&](Rank r) { return reports[at(r)].has_value(); };
  Rank blamed = 0;
  for (Rank r = 1; r < world; ++r) {
    const int more = votes.of[at(r)] - votes.of[at(blamed)];
    if (more > 0 || (more == 0 && reported(blamed) && !reported(r))) blamed = r;
  }
  if (votes.of[at(blamed)] == 0) return {};
  if (receives_from_none(votes, blamed))
    return {Code::kTimeout,
            fmt::format("{}rank {} receives nothing from any other rank: its own link is the likely cause",
                        head, blamed),
            blamed};
  for (Rank r = 0; r < world; ++r)  // each is silent to the other, and both have reported
    if (reported(r) && reported(blamed) && votes.of[at(r)] == votes.of[at(blamed)] &&
        votes.accuses[at(r)][at(blamed)] && votes.accuses[at(blamed)][at(r)])
      return {Code::kTimeout,
              fmt::format("{}rank {} and rank {} received nothing from each other for a while: the link "
                          "between them is the likely cause, and no rank is to blame",
                          head, std::min(r, blamed), std::max(r, blamed))};
  std::string why = "it sent nothing";
  Code code = Code::kTimeout;
  for (const auto& t : reports)
    if (t && t->finding == Finding::kSilent && t->blamed == blamed) {
      why = reason(t->what, blamed);
      code = t->code;
      break;
    }
  if (world == 2 && !reported(1 - mine))
    why += "; with two ranks, a rank cannot distinguish the end of the other rank from a broken link";
  return {code,
          code == Code::kPeerLost
              ? fmt::format("{}rank {} is gone ({})", head, blamed, why)
              : fmt::format("{}rank {} is silent ({}); if this rank is only slow, raise timeout", head,
                            blamed, why),
          blamed};
}

}  // namespace

std::uint32_t failed_round(const FailureReports& reports) {
  std::uint32_t round = 0;
  for (const auto& t : reports)
    if (t) round = std::max(round, t->round);
  return round;
}

bool given_up(Rank rank, const FailureReports& reports) {
  return std::any_of(reports.begin(), reports.end(), [&](const std::optional<FailureReport>& t) {
    if (!t || (reports.size() > 2 && t->silent_peers.size() + 1 == reports.size()))
      return false;  // the witness receives from nobody
    if (t->blamed == rank &&
        (t->finding == Finding::kGone || t->finding == Finding::kLeft || t->finding == Finding::kSilent))
      return true;
    return std::find(t->silent_peers.begin(), t->silent_peers.end(), rank) != t->silent_peers.end();
  });
}

// The verdict in order of precedence: accused, left or gone; silence; idle or stuck; a broken connection with both
// ends alive; this rank's own finding.
Status judge(Rank mine, const FailureReports& reports) {
  const std::string head = fmt::format("round {}: ", failed_round(reports));
  for (const Finding f : {Finding::kAccused, Finding::kLeft, Finding::kGone}) {
    const Rank blamed = most_frequent(reports, f);
    if (blamed == kNone) continue;
    const FailureReport& t = first(reports, f, blamed);
    if (f == Finding::kAccused) {
      const std::string who = fmt::format("rank {}", blamed);
      const bool names_rank = blamed < 0 || t.what.find(who) != std::string::npos;
      return {t.code, fmt::format("{}{}{}", head, names_rank ? "" : who + ": ", t.what), blamed};
    }
    return {Code::kPeerLost, fmt::format("{}rank {} is gone ({})", head, blamed, reason(t.what, blamed)),
            blamed};
  }
  if (Status s = silent(mine, reports, head); !s.ok()) return s;
  for (const Finding f : {Finding::kIdle, Finding::kStuck})
    if (const Rank blamed = most_frequent(reports, f); blamed != kNone)
      return {Code::kTimeout, head + first(reports, f, blamed).what,
              f == Finding::kIdle ? blamed : Status::kNoPeer};
  for (const auto& t : reports)  // a connection broke, and both its ends have reported
    if (t && t->finding == Finding::kGone && t->blamed >= 0)
      return {Code::kPeerLost,
              fmt::format(
                  "{}the connection between rank {} and rank {} broke ({}): both are alive, and no rank is "
                  "to blame",
                  head, std::min(t->witness, t->blamed), std::max(t->witness, t->blamed),
                  reason(t->what, t->blamed))};
  const FailureReport& t = *reports[at(mine)];
  return {t.code, head + t.what, t.blamed};
}

}  // namespace tithe::engine
