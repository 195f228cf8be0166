// SPDX-License-Identifier: Apache-2.0
// How a session ends: telling the others, hearing them, and agreeing on whom to blame.
//
// Why it takes time: the rank that is heard of first is often the messenger, not the one that died. So a rank that
// fails does not answer its caller at once; it says what it found, listens for a while, and judges what all have said.
//
// The rule of blame (docs/reference/errors.md has it for users; failure_report.cc is it):
//   1. A rank that fails says so to all others, once: what it found, about whom, whom it does not hear, and which
//      round it has not committed. A rank that hears of a failure fails too, and repeats the finding.
//   2. It waits until every rank has spoken that any rank hears; or until the grace is over. A rank's words reach
//      those who do not hear it through those who do (relay): else the two ends of a link that is cut would each name
//      the other, and all others nobody.
//   3. The verdict is a function of what was said. Trouble that was seen outright (wrong bytes, a leave, an end
//      that the transport saw) counts before silence, silence before idleness, idleness before a link that is stuck.
//   4. Silence is counted: the rank that most do not hear is named. Whoever hears nobody, of several, accuses itself.
//      Two that do not hear each other, and are both heard: their link, and nobody.
// Why a frame in a wrong place accuses its sender at once: a rank that gives up withdraws what it has not sent. A frame
// that it withdraws keeps its place on its channel (Transport, in_place), and one that the transport was not given yet
// is the last of its channel, since sends on one channel wait for each other. So whatever an innocent rank does, no
// frame of it comes in the place of another; a rank that swaps its frames is accused like one that changes them. A
// receive that meets a message that was withdrawn accuses nobody: its sender says why on the control channel, or goes
// without a word and is gone.
// The round that failed is the first that nobody who spoke has committed: a rank whose own work of a round is
// complete commits it when it learns that another one has, or drops it as that one did: ranks that did not meet a value
// which is not finite hear of it from those that end the round, and one of these may be the rank that is lost.
//
// Threads: begin() on whatever thread meets the trouble; tell() and finish() on the communication lane (or the caller
// that waits, without lanes). All under the runner's mutex: nothing here takes a lock, sleeps or calls back.
// Owners: the two farewell frames are lent to the transport until it completes their operations or is destroyed, which
// is before this is. Steps that run are not interrupted: the runner asks finish() once none does.
// Failure: a farewell that cannot be sent is left out; its peer finds out by itself. The grace bounds everything.
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

bool Shutdown::hear(Rank peer, FailureReport failure_report) {
  if (std::exchange(direct_[static_cast<std::size_t>(peer)], 1) != 0) return false;
  reports_[static_cast<std::size_t>(peer)] =
      std::move(failure_report);  // in the place of what others told of it
  return true;
}

bool Shutdown::hear_of(Rank peer, const Echo& echo) {
  std::optional<FailureReport>& report = reports_[static_cast<std::size_t>(echo.of)];
  if (report) return false;
  if (echo.spoke)
    report = echo.failure_report;
  else if (!misses(peer, echo.of))
    miss_too_.emplace_back(peer, echo.of);
  return echo.spoke;
}

Rank Shutdown::missed_by() const {
  const FailureReport& mine = *report_of(member_.me);
  return mine.finding == Finding::kSilent && mine.blamed == member_.me && mine.witness != member_.me
             ? mine.witness
             : Status::kNoPeer;
}

void Shutdown::miss(Rank rank) {
  std::vector<Rank>& unheard = reports_[static_cast<std::size_t>(member_.me)]->unheard;
  if (std::find(unheard.begin(), unheard.end(), rank) == unheard.end()) unheard.push_back(rank);
}

bool Shutdown::silent(Rank rank) const {
  const std::optional<FailureReport>& mine = report_of(member_.me);
  return mine && mine->finding == Finding::kSilent &&
         std::find(mine->unheard.begin(), mine->unheard.end(), rank) != mine->unheard.end();
}

bool Shutdown::misses(Rank witness, Rank rank) const {
  const std::optional<FailureReport>& t = report_of(witness);
  if (t && t->witness == witness && t->blamed == rank &&
      (t->finding == Finding::kGone || t->finding == Finding::kSilent))
    return true;
  if (t && std::find(t->unheard.begin(), t->unheard.end(), rank) != t->unheard.end()) return true;
  return std::find(miss_too_.begin(), miss_too_.end(), Pair(witness, rank)) != miss_too_.end();
}

void Shutdown::relay(Transport& transport, const std::vector<Peer>& peers, const ControlIdentity& identity) {
  const auto gone = [&](Rank r) { return peers[static_cast<std::size_t>(r)].gone; };
  for (Rank of = 0; of < member_.world; ++of)
    for (Rank to = 0; to < member_.world && of != member_.me; ++to) {
      if (to == member_.me || to == of || gone(to) || direct_[static_cast<std::size_t>(to)] == 0 ||
          std::find(relayed_.begin(), relayed_.end(), Pair(of, to)) != relayed_.end())
        continue;
      Echo echo{.of = of, .spoke = direct_[static_cast<std::size_t>(of)] != 0, .failure_report = {}};
      // A word is passed on to ranks that do not hear its speaker. That one has gone without a word is said once, and
      // not where this rank's own word says so; who has not gone may speak yet.
      if (echo.spoke ? !misses(to, of) : !gone(of) || misses(member_.me, of)) continue;
      if (echo.spoke) echo.failure_report = *report_of(of);
      relayed_.emplace_back(of, to);
      const Bytes room(echoes_.emplace_back(make_arena(kControlBytes)).get(), kControlBytes);
      const ByteView frame = room.first(write_echo(echo, identity, room));
      if (transport.send(to, kControlChannel, frame, control_op(kFarewellOp, to)).ok()) ++in_flight_;
    }
}

void Shutdown::tell(Transport& transport, const std::vector<Peer>& peers, const ControlIdentity& identity,
                    std::uint32_t uncommitted, bool finite) {
  told_ = true;
  const FailureReport& t = *report_of(member_.me);
  const Bytes room(frames_.get(), 2 * kControlBytes);
  const ByteView evidence =
      room.first(write_evidence({t.finding, t.witness, t.unheard}, identity, room.first(kControlBytes)));
  const Bytes rest = room.subspan(kControlBytes);
  const ByteView farewell =
      rest.first(write_farewell({t.code, t.blamed, uncommitted, finite, t.what}, identity, rest));
  for (Rank r = 0; r < member_.world; ++r) {
    const Peer& p = peers[static_cast<std::size_t>(r)];
    // A peer whose bytes came damaged is told all the same, where the transport still takes it.
    if (r == member_.me || (p.gone && p.why_gone.code() != Code::kCorrupt)) continue;
    for (const ByteView frame : {evidence, farewell})
      if (transport.send(r, kControlChannel, frame, control_op(kFarewellOp, r)).ok()) ++in_flight_;
  }
}

// True if this rank need not wait for the words of that one.
bool Shutdown::heard_enough(Rank rank, const std::vector<Peer>& peers) const {
  const FailureReport& mine = *report_of(member_.me);
  const auto hears = [&](Rank r) {
    return (mine.witness != member_.me || mine.blamed != r) &&
           std::find(mine.unheard.begin(), mine.unheard.end(), r) == mine.unheard.end();
  };
  if (rank == member_.me || report_of(rank)) return true;
  // A rank that others do not hear, and this one does, has something to say: perhaps it does not hear them either.
  if (!peers[static_cast<std::size_t>(rank)].gone && (!given_up(rank, reports_) || hears(rank))) return false;
  for (Rank r = 0; r < member_.world; ++r)  // nor does anybody else hear it
    if (r != member_.me && r != rank && hears(r) && !peers[static_cast<std::size_t>(r)].gone &&
        !misses(r, rank))
      return false;
  return true;
}

bool Shutdown::finish(Instant now, const std::vector<Peer>& peers, bool undecided) {
  const nanoseconds since = now - since_;
  // A rank that withdraws needs to know only whether the round that it had ended is committed by others.
  const bool asks = !withdrawn_ || undecided;
  const nanoseconds grace =
      withdrawn_ ? milliseconds(300)
                 : std::clamp<nanoseconds>(timeout_ / 10, milliseconds(500), milliseconds(2000));
  bool heard_all = true;
  for (Rank r = 0; r < member_.world; ++r) heard_all = heard_all && heard_enough(r, peers);
  const bool delivered = in_flight_ == 0 || since >= milliseconds(100);
  if (!(delivered && (!asks || heard_all)) && since < grace) return false;
  if (!withdrawn_) verdict_ = judge(member_.me, reports_);
  life_ = Life::kOver;
  return true;
}

}  // namespace tithe::engine
