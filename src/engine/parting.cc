// SPDX-License-Identifier: Apache-2.0
// How a session ends: telling the others, hearing them, and agreeing on whom to blame.
//
// Threads: fail() on whatever thread holds the runner's mutex; the rest on the communication lane.
// The rule of blame (docs/errors.md has it for users; verdict.cc is it):
//   1. A rank that fails says so to all others, once: what it found, about whom, whom it does not hear, and which
//      round it has not committed. A rank that hears of a failure fails too, and repeats the finding.
//   2. It waits until every rank has spoken that is not known to be gone, or silent by its own ears and another's
//      word; or until the grace is over.
//   3. The verdict is a function of what was said. What was seen outright (wrong bytes, a leave, an end that the
//      transport saw) counts before silence, silence before idleness, idleness before a link that is stuck.
//   4. Silence is counted: the rank that most do not hear is named. Whoever hears nobody, of several, accuses itself.
//      Two that do not hear each other, and are both heard: their link, and nobody.
// The round that failed is the first that nobody who spoke has committed: a rank whose own work of a round is
// complete commits it when it learns that another one has.
#include <fmt/format.h>

#include <algorithm>

#include "engine/operations.h"
#include "engine/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

}  // namespace

// Whom this rank asked half a timeout ago and does not hear.
std::vector<Rank> Runner::unheard() const {
  std::vector<Rank> out;
  for (Rank r = 0; r < member_.world; ++r) {
    const Peer& p = at(r);
    if (r == member_.me) continue;
    const bool silent = p.unanswered && instant() - *p.unanswered >= limits_.timeout / 2;
    if (p.gone ? lost(p.why_gone) == Finding::kSilent : silent) out.push_back(r);
  }
  return out;
}

void Runner::fail(Finding finding, const Status& why, Rank witness) {
  if (life_ != Life::kOpen) return;
  life_ = Life::kParting;
  said_[static_cast<std::size_t>(member_.me)] =
      Testimony{finding, why.code(), witness, why.peer(), uncommitted(), unheard(), why.what()};
  parting_since_ = instant();
  parting_begun_ = false;
  ready_.clear();
  post_.clear();
  cards_to_send_.clear();
  nudge();
}

void Runner::cancel() {
  const Lock lock(mutex_);
  withdraw();
}

void Runner::withdraw() {
  if (life_ != Life::kOpen) return;
  withdrawn_ = true;
  verdict_ = {Code::kCancelled, "the session was cancelled"};
  if (watching())
    fail(Finding::kLeft, {Code::kPeerLost, "it left in the middle of a round", member_.me});
  else  // nothing of it is under way: whoever needs nothing more of it may go on
    fail(Finding::kLeft, {Code::kCancelled, "it left", member_.me});
}

void Runner::heard_farewell(Rank peer, const Farewell& farewell) {
  Peer& p = at(peer);
  std::optional<Testimony>& said = said_[static_cast<std::size_t>(peer)];
  if (said) return;
  const auto in_world = [&](Rank r) { return r >= 0 && r < member_.world; };
  Testimony t{.finding = Finding::kAccused,
              .code = farewell.code,
              .witness = peer,
              .blamed = in_world(farewell.blamed) ? farewell.blamed : Status::kNoPeer,
              .round = farewell.round,
              .what = farewell.what};
  if (p.evidence) {
    t.finding = p.evidence->finding;
    if (in_world(p.evidence->witness)) t.witness = p.evidence->witness;
    for (const Rank r : p.evidence->unheard)
      if (in_world(r) && r != peer && std::find(t.unheard.begin(), t.unheard.end(), r) == t.unheard.end())
        t.unheard.push_back(r);
  }
  said = t;
  if (agreeing_ && !agreed_ && t.round > round_) {  // it has committed: all ranks had ended their work
    agreed_ = true;
    round_open_ = false;
    news_.notify_all();
  }
  if (life_ != Life::kOpen) return;
  if (t.finding == Finding::kLeft && t.blamed == peer) {
    p.left = true;
    look_at_ = {};
    if (t.code == Code::kCancelled || !watching()) return;
  }
  fail(t.finding, {t.code, t.what, t.blamed}, t.witness);
}

// Tells the others and cancels what is in flight, once.
void Runner::part() {
  if (parting_begun_) return;
  parting_begun_ = true;
  const Testimony& t = *said_[static_cast<std::size_t>(member_.me)];
  const Bytes room(farewell_frames_.get(), 2 * kControlBytes);
  const ByteView evidence =
      room.first(write_evidence({t.finding, t.witness, t.unheard}, voice(), room.first(kControlBytes)));
  const ByteView farewell = room.subspan(kControlBytes)
                                .first(write_farewell({t.code, t.blamed, uncommitted(), t.what}, voice(),
                                                      room.subspan(kControlBytes)));
  for (Rank r = 0; r < member_.world; ++r) {
    if (r == member_.me || at(r).gone) continue;
    for (const ByteView frame : {evidence, farewell})
      if (transport_->send(r, kControlChannel, frame, control_op(kFarewellOp, r)).ok()) ++farewell_sends_;
  }
  for (const auto& job : jobs_)
    for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
      if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
}

// Whether the others have said what they had to say, or had the time for it. Frames may still be in flight: their
// memory is the jobs', and the caller's tensors are used by compute steps alone.
bool Runner::parted() {
  if (running_ > 0) return false;
  const nanoseconds since = instant() - parting_since_;
  // Who withdraws needs to know only whether the round that it had ended is committed by others.
  const bool asks = !withdrawn_ || (agreeing_ && !agreed_);
  const nanoseconds grace =
      withdrawn_ ? milliseconds(300)
                 : std::clamp<nanoseconds>(limits_.timeout / 10, milliseconds(500), milliseconds(2000));
  // A rank that others do not hear, and this one does, has something to say: perhaps it does not hear them either.
  const Testimony& mine = *said_[static_cast<std::size_t>(member_.me)];
  const auto hears = [&](Rank r) {
    return (mine.witness != member_.me || mine.blamed != r) &&
           std::find(mine.unheard.begin(), mine.unheard.end(), r) == mine.unheard.end();
  };
  bool heard_all = true;
  for (Rank r = 0; r < member_.world; ++r)
    heard_all = heard_all && (r == member_.me || said_[static_cast<std::size_t>(r)] || at(r).gone ||
                              (given_up(r, said_) && !hears(r)));
  const bool told = farewell_sends_ == 0 || since >= milliseconds(100);
  if (!(told && (!asks || heard_all)) && since < grace) return false;
  if (!withdrawn_) verdict_ = judge(member_.me, said_);
  life_ = Life::kOver;
  active_ = 0;
  news_.notify_all();
  return true;
}

}  // namespace tithe::engine
