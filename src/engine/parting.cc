// SPDX-License-Identifier: Apache-2.0
// How a session ends before its time: watching for trouble, telling the others, and agreeing on whom to blame.
#include <fmt/format.h>

#include <algorithm>

#include "engine/operations.h"
#include "engine/runner.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr nanoseconds kCancelPatience = std::chrono::seconds(2);

}  // namespace

std::vector<Rank> Runner::awaited() const {
  std::vector<Rank> peers;
  const auto add = [&](Rank r) {
    if (std::find(peers.begin(), peers.end(), r) == peers.end()) peers.push_back(r);
  };
  for (const bool receives : {true, false})  // who owes this rank something comes first
    for (const auto& job : jobs_) {
      if (job->state == Job::State::kAwaitsCards && receives)
        for (Rank r = 0; r < member_.world; ++r)
          if (r != member_.me && cards_[static_cast<std::size_t>(r)].size() <= job->number) add(r);
      if (job->state != Job::State::kRuns) continue;
      const auto& steps = job->unit->program().steps;
      for (std::size_t s = 0; s < steps.size(); ++s)
        if (job->posted_ns[s] != 0 && (steps[s].kind == StepKind::kRecv) == receives) add(steps[s].peer);
    }
  return peers;
}

void Runner::check_timeout() {
  if (life_ != Life::kOpen || active_ == 0 || running_ > 0 || !ready_.empty() || !post_.empty()) return;
  if (Clock::now() - last_progress_ < timeout_) return;
  const std::vector<Rank> peers = awaited();
  if (peers.empty()) return;
  std::string list;
  for (const Rank r : peers) fmt::format_to(std::back_inserter(list), "{}{}", list.empty() ? "" : ", ", r);
  fail({Code::kTimeout,
        fmt::format("nothing from rank {} for {} ms", list,
                    std::chrono::duration_cast<milliseconds>(timeout_).count()),
        peers[0]});
}

void Runner::complete_control(const Completion& done) {
  const auto peer = static_cast<Rank>(done.op & 0xffffffffU);
  const auto kind = static_cast<ControlOp>(done.op >> 32 & 0x7fffffffU);
  if (kind == kFarewellOp) --farewell_sends_;
  if (kind != kHear) return;
  if (!done.status.ok()) {
    gone_[static_cast<std::size_t>(peer)] = true;
    // A peer whose card is missing has no other operation that would tell.
    if (life_ == Life::kOpen && done.status.code() == Code::kPeerLost)
      for (const auto& job : jobs_)
        if (job->state == Job::State::kAwaitsCards &&
            cards_[static_cast<std::size_t>(peer)].size() <= job->number)
          return fail({Code::kPeerLost, done.status.what(), peer});
    return;
  }
  const Result<Control> control =
      read_control(ByteView(inbox_[static_cast<std::size_t>(peer)].get(), done.bytes), voice(), peer,
                   numbers_[static_cast<std::size_t>(peer)]);
  listen(peer);
  if (!control.ok() && control.status().peer() == Status::kNoPeer) {  // not from that rank: as if never sent
    ++stats_.strange;
    return;
  }
  last_progress_ = Clock::now();
  if (!control.ok()) return fail({control.status().code(), control.status().what(), peer});
  if (!control->is_card) return heard(peer, control->farewell);
  cards_[static_cast<std::size_t>(peer)].push_back(control->card);
  if (life_ != Life::kOpen) return;
  for (const auto& job : jobs_) release(*job);
}

void Runner::heard(Rank peer, const Farewell& farewell) {
  has_farewell_[static_cast<std::size_t>(peer)] = true;
  farewells_[static_cast<std::size_t>(peer)] = farewell;
  if (life_ != Life::kOpen) return;
  if (round_open_ && farewell.round > round_) {  // that peer has finished the round at hand: so may this rank
    put_off_ = peer;
    return;
  }
  put_off_ = Status::kNoPeer;
  round_ = std::max(round_, farewell.round);
  Rank blamed = farewell.blamed;
  if (farewell.code == Code::kTimeout)
    if (const std::vector<Rank> peers = awaited(); !peers.empty()) blamed = peers[0];
  fail({farewell.code, farewell.what, blamed});
}

void Runner::fail(Status why) {
  if (life_ != Life::kOpen) return;
  life_ = Life::kParting;
  why_ = std::move(why);
  parting_since_ = Clock::now();
  parting_begun_ = false;
  ready_.clear();
  post_.clear();
  cards_to_send_.clear();
  nudge();
}

void Runner::cancel() {
  const Lock lock(mutex_);
  if (active_ == 0) {
    if (life_ == Life::kOpen) {
      life_ = Life::kOver;
      verdict_ = {Code::kCancelled, "the session was cancelled"};
    }
    return;
  }
  fail({Code::kCancelled, "the session was cancelled", member_.me});
}

// Cancels what is in flight and tells the others, once.
void Runner::part() {
  if (parting_begun_) return;
  parting_begun_ = true;
  Farewell farewell{why_.code(), why_.peer(), round_, why_.what()};
  if (why_.code() == Code::kCancelled)
    farewell = {Code::kPeerLost, member_.me, round_, "it left in the middle of a round"};
  const std::size_t bytes = write_farewell(farewell, voice(), {farewell_frame_.get(), kControlBytes});
  for (Rank r = 0; r < member_.world; ++r) {
    if (r == member_.me || gone_[static_cast<std::size_t>(r)]) continue;
    if (transport_->send(r, kControlChannel, {farewell_frame_.get(), bytes}, control_op(kFarewellOp, r)).ok())
      ++farewell_sends_;
  }
  for (const auto& job : jobs_)
    for (std::size_t s = 0; s < job->posted_ns.size(); ++s)
      if (job->posted_ns[s] != 0) transport_->cancel(step_op(*job, static_cast<int>(s)));
}

// Whether nothing moves any more, and the others have said what they had to say or had the time for it.
bool Runner::parted() {
  if (running_ > 0) return false;
  const auto since = Clock::now() - parting_since_;
  const bool asks = why_.code() == Code::kTimeout || why_.code() == Code::kPeerLost;
  const nanoseconds grace =
      asks ? std::clamp<nanoseconds>(timeout_ / 4, milliseconds(200), milliseconds(1000)) : milliseconds(200);
  bool heard_all = true;
  const Rank blamed = verdict_of_all().peer();
  for (Rank r = 0; r < member_.world; ++r)
    if (r != member_.me && r != blamed && !has_farewell_[static_cast<std::size_t>(r)] &&
        !gone_[static_cast<std::size_t>(r)])
      heard_all = false;
  const bool quiet = in_flight_ == 0 && farewell_sends_ == 0;
  if (!(quiet && (!asks || heard_all)) && since < grace) return false;
  if (in_flight_ > 0 && since < kCancelPatience) return false;
  verdict_ = verdict_of_all();
  life_ = Life::kOver;
  active_ = 0;
  news_.notify_all();
  return true;
}

// Who blames whom, followed to the end: the messenger of bad news is not the one to name.
Status Runner::verdict_of_all() const {
  Code code = why_.code();
  Rank blamed = why_.peer();
  std::string what = why_.what();
  for (int hops = 0; hops < member_.world && blamed >= 0 && blamed < member_.world; ++hops) {
    const auto b = static_cast<std::size_t>(blamed);
    const bool chained = code == Code::kTimeout || code == Code::kPeerLost;
    if (blamed == member_.me || !chained || !has_farewell_[b]) break;
    const Farewell& f = farewells_[b];
    if (f.blamed < 0 || f.blamed == blamed || f.blamed == member_.me) break;
    code = f.code;
    blamed = f.blamed;
    what = f.what;
  }
  if (code == Code::kCancelled) return {code, what};
  std::string text = fmt::format("round {}: ", round_);
  if (code == Code::kPeerLost)
    fmt::format_to(std::back_inserter(text), "rank {} is gone ({})", blamed, what);
  else if (code == Code::kTimeout)
    fmt::format_to(std::back_inserter(text), "rank {} is silent ({})", blamed, what);
  else
    text += what;
  return {code, text, blamed};
}

Status Runner::verdict() const { return life_ == Life::kOver ? verdict_ : Status{}; }

}  // namespace tithe::engine
