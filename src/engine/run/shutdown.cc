// SPDX-License-Identifier: Apache-2.0
// The end of a session: ranks exchange failure reports and agree on the failed rank.
//
// The shutdown takes time, because the first rank to report a failure is often not the rank that failed. So a failing
// rank does not return to its caller at once: it reports its finding, collects reports for a while, and then derives
// the verdict from all reports.
//
// The rule (docs/reference/errors.md explains it for users; failure_report.cc implements it):
//   1. A rank that fails sends one report to all others: the finding, the blamed rank, the ranks that are silent to
//      it, and its first uncommitted round. A rank that receives a report fails too, and repeats the finding.
//   2. It waits for the report of every rank from which any rank still receives, or for the end of the grace period.
//      Ranks relay reports to ranks that receive nothing from the author. Without relays, the two ends of a cut link
//      would name each other, and all other ranks would name no rank.
//   3. The verdict is a function of the reports. An observed failure (wrong bytes, a leave, a connection that the
//      transport saw end) precedes silence, silence precedes idleness, and idleness precedes a stuck link.
//   4. Silence is decided by count: the rank that is silent to most ranks is named. A rank to which several ranks
//      are all silent names itself. If two ranks are silent to each other and others receive from both, their link
//      failed, and no rank is named.
// A frame in a wrong place is blamed on its sender at once, for this reason. A rank that shuts down cancels its
// unsent frames. A cancelled frame keeps its place on its channel (Transport, in_place). A frame that was not given
// to the transport is the last of its channel, because sends on one channel wait for each other. So a correct rank
// never sends a frame in the place of another; a rank that swaps frames is blamed like a rank that changes them. A
// receive whose message was cancelled blames no rank: the sender's report follows on the control channel, or the
// sender is lost.
// The failed round is the first that no reporting rank has committed. A rank that has completed its work for a round
// commits or drops it as another rank's report says. The report says whether the round was finite, because the done
// message with that fact may have come from the lost rank.
//
// Threads: begin() on any thread; send_report() and finish() on the communication lane (or the waiting caller, without
// lanes). All under the runner's mutex: no function here locks, sleeps or calls back.
// Owners: the farewell frames are lent to the transport until it completes their operations or is destroyed, which
// happens before this object is destroyed. Running steps are not interrupted: the runner calls finish() when none
// runs.
// Failure: a farewell that cannot be sent is skipped; its receiver detects the failure itself. The grace period
// bounds the shutdown.
#include "engine/run/shutdown.h"

#include <algorithm>

#include "engine/run/operations.h"

namespace tithe::engine {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

Shutdown::Shutdown(const Member& member, nanoseconds timeout)
    : member_(member),
      timeout_(timeout),
      reports_(static_cast<std::size_t>(member.world)),
      frames_(make_arena(2 * kControlBytes)),
      direct_(static_cast<std::size_t>(member.world)) {}

void Shutdown::withdraw() {
  withdrawn_ = true;
  verdict_ = {Code::kCancelled, "the session was cancelled"};
}

void Shutdown::begin(FailureReport mine, Instant now) {
  TITHE_ASSERT(open());
  life_ = Life::kInProgress;
  reports_[static_cast<std::size_t>(member_.me)] = std::move(mine);
  since_ = now;
}

// The evidence gives the finding and the silent ranks; a farewell without evidence accuses. The peer's own report
// replaces a relayed one.
const FailureReport* Shutdown::take_farewell(Rank peer, const Farewell& farewell,
                                             const std::optional<Evidence>& evidence) {
  if (std::exchange(direct_[static_cast<std::size_t>(peer)], 1) != 0) return nullptr;
  const auto in_world = [&](Rank r) { return r >= 0 && r < member_.world; };
  FailureReport& report = reports_[static_cast<std::size_t>(peer)].emplace(
      FailureReport{.finding = Finding::kAccused,
                    .code = farewell.code,
                    .witness = peer,
                    .blamed = in_world(farewell.blamed) ? farewell.blamed : Status::kNoPeer,
                    .round = farewell.round,
                    .finite = farewell.finite,
                    .what = farewell.what});
  if (!evidence) return &report;
  report.finding = evidence->finding;
  if (in_world(evidence->witness)) report.witness = evidence->witness;
  for (const Rank r : evidence->silent_peers)
    if (in_world(r) && r != peer && std::ranges::find(report.silent_peers, r) == report.silent_peers.end())
      report.silent_peers.push_back(r);
  return &report;
}

bool Shutdown::take_echo(Rank peer, const Echo& echo) {
  std::optional<FailureReport>& report = reports_[static_cast<std::size_t>(echo.of)];
  if (report) return false;
  if (echo.reported)
    report = echo.failure_report;
  else if (!receives_nothing(peer, echo.of))
    silent_pairs_.emplace_back(peer, echo.of);
  return echo.reported;
}

bool Shutdown::silent(Rank rank) const {
  const std::optional<FailureReport>& mine = report_of(member_.me);
  return mine && mine->finding == Finding::kSilent &&
         std::find(mine->silent_peers.begin(), mine->silent_peers.end(), rank) != mine->silent_peers.end();
}

// True if the reports say that `rank` is silent to `witness`.
bool Shutdown::receives_nothing(Rank witness, Rank rank) const {
  const std::optional<FailureReport>& t = report_of(witness);
  if (t && t->witness == witness && t->blamed == rank &&
      (t->finding == Finding::kGone || t->finding == Finding::kSilent))
    return true;
  if (t && std::find(t->silent_peers.begin(), t->silent_peers.end(), rank) != t->silent_peers.end())
    return true;
  return std::find(silent_pairs_.begin(), silent_pairs_.end(), Pair(witness, rank)) != silent_pairs_.end();
}

// For each pair (of, to), at most one echo: the report of `of`, if `of` is silent to `to`; or the fact that `of` is
// gone without a report.
void Shutdown::relay(Transport& transport, const std::vector<Peer>& peers) {
  const auto gone = [&](Rank r) { return peers[static_cast<std::size_t>(r)].gone; };
  for (Rank of = 0; of < member_.world; ++of)
    for (Rank to = 0; to < member_.world && of != member_.me; ++to) {
      if (to == member_.me || to == of || gone(to) || direct_[static_cast<std::size_t>(to)] == 0 ||
          std::find(relayed_.begin(), relayed_.end(), Pair(of, to)) != relayed_.end())
        continue;
      Echo echo{.of = of, .reported = direct_[static_cast<std::size_t>(of)] != 0, .failure_report = {}};
      // A report is relayed to ranks that receive nothing from its author. The loss of a rank without a report is
      // relayed once, unless this rank's own report contains it. A rank that is not gone may still report.
      if (echo.reported ? !receives_nothing(to, of) : !gone(of) || receives_nothing(member_.me, of)) continue;
      if (echo.reported) echo.failure_report = *report_of(of);
      relayed_.emplace_back(of, to);
      const Bytes room(echoes_.emplace_back(make_arena(kControlBytes)).get(), kControlBytes);
      const ByteView frame = room.first(write_echo(echo, identity_of(member_), room));
      if (transport.send(to, kControlChannel, frame, control_op(kFarewellOp, to)).ok()) ++in_flight_;
    }
}

void Shutdown::send_report(Transport& transport, const std::vector<Peer>& peers, std::uint32_t uncommitted,
                           bool finite, Instant now) {
  report_sent_ = true;
  FailureReport& t = *reports_[static_cast<std::size_t>(member_.me)];
  // If a peer reported this rank as silent, this rank has been asking it too. Without an answer for half a timeout,
  // neither rank receives from the other, and this rank reports it in turn.
  if (t.finding == Finding::kSilent && t.blamed == member_.me && t.witness != member_.me &&
      !silent(t.witness)) {
    const Peer& witness = peers[static_cast<std::size_t>(t.witness)];
    if (!witness.gone && now - witness.last_message >= timeout_ / 2) t.silent_peers.push_back(t.witness);
  }
  const ControlIdentity identity = identity_of(member_);
  const Bytes room(frames_.get(), 2 * kControlBytes);
  const ByteView evidence =
      room.first(write_evidence({t.finding, t.witness, t.silent_peers}, identity, room.first(kControlBytes)));
  const Bytes rest = room.subspan(kControlBytes);
  const ByteView farewell =
      rest.first(write_farewell({t.code, t.blamed, uncommitted, finite, t.what}, identity, rest));
  for (Rank r = 0; r < member_.world; ++r) {
    const Peer& p = peers[static_cast<std::size_t>(r)];
    // A peer with a damaged connection gets the farewell too, if the transport still accepts messages to it.
    if (r == member_.me || (p.gone && p.why_gone.code() != Code::kCorrupt)) continue;
    for (const ByteView frame : {evidence, farewell})
      if (transport.send(r, kControlChannel, frame, control_op(kFarewellOp, r)).ok()) ++in_flight_;
  }
}

// True if this rank need not wait for the report of `rank`.
bool Shutdown::needs_no_report(Rank rank, const std::vector<Peer>& peers) const {
  const FailureReport& mine = *report_of(member_.me);
  const auto receives = [&](Rank r) {
    return (mine.witness != member_.me || mine.blamed != r) &&
           std::find(mine.silent_peers.begin(), mine.silent_peers.end(), r) == mine.silent_peers.end();
  };
  if (rank == member_.me || report_of(rank)) return true;
  // If the rank is silent to others but not to this rank, its report matters: they may be silent to it too.
  if (!peers[static_cast<std::size_t>(rank)].gone && (!given_up(rank, reports_) || receives(rank)))
    return false;
  for (Rank r = 0; r < member_.world; ++r)  // true only if it is silent to all others
    if (r != member_.me && r != rank && receives(r) && !peers[static_cast<std::size_t>(r)].gone &&
        !receives_nothing(r, rank))
      return false;
  return true;
}

// The session is over when the farewells are delivered (or 100 ms have passed) and all expected reports are there, or
// when the grace period is over.
bool Shutdown::finish(Instant now, const std::vector<Peer>& peers, bool undecided) {
  const nanoseconds since = now - since_;
  // After withdraw(), this rank needs only the fact whether others have committed the round that it ended.
  const bool asks = !withdrawn_ || undecided;
  const nanoseconds grace =
      withdrawn_ ? milliseconds(300)
                 : std::clamp<nanoseconds>(timeout_ / 10, milliseconds(500), milliseconds(2000));
  bool complete = true;
  for (Rank r = 0; r < member_.world; ++r) complete = complete && needs_no_report(r, peers);
  const bool delivered = in_flight_ == 0 || since >= milliseconds(100);
  if (!(delivered && (!asks || complete)) && since < grace) return false;
  if (!withdrawn_) verdict_ = judge(member_.me, reports_);
  life_ = Life::kOver;
  return true;
}

}  // namespace tithe::engine
