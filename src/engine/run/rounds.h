// SPDX-License-Identifier: Apache-2.0
#pragma once
// The state of this rank's rounds. A round is open from its first bucket until its commit. It closes when the caller
// ends it, so no further bucket begins; this rank's work for the round ends with the last of its buckets. The round
// is agreed when every rank has ended its work for it, or when any rank has committed it, because a commit implies
// the same. Ranks report the end of their work in done messages (control.h).
//
// Owns the round counters of this rank; Peer has the counters of another rank. Plain data, under the runner's mutex.
#include <span>

#include "engine/peers/peer.h"

namespace tithe::engine {

class Rounds {
 public:
  Rounds(Rank me, std::vector<Peer>& peers) : me_(me), peers_(peers) {}

  void begin(std::uint32_t round) {
    if (!open_) finite_ = true;
    round_ = round;
    began_ = open_ = true;
    begun_ = ended_ + 1;
  }
  // away_ns: Done::away_ns of this rank.
  void close(std::uint64_t away_ns) {
    away_ns_ = away_ns;
    closes_ = true;
    agreed_ = false;
  }
  void meet_nonfinite() { finite_ = false; }  // this rank's open round contains a value that is not finite
  void end_work(Instant now) {
    ended_finite_ = finite_;
    closes_ = false;
    agreeing_ = true;
    since_ = now;
    ++ended_;
  }
  void stop_waiting() { closes_ = agreeing_ = false; }  // the round is agreed, or the session has failed
  void commit() { open_ = false; }
  void take_back() { began_ = false; }  // undo(): the same round begins again

  // ---- Other ranks
  // kCorrupt: the numbers of the message are impossible.
  Status take_done(Rank peer, const Done& done);
  // Agrees the round if every rank has ended it. It is committed if it was finite on all ranks. Returns true if the
  // round is agreed now and was not before.
  bool agree_if_all_ended();
  // A rank that has committed a round has received the done messages of all ranks. So this rank may commit it too.
  // Returns as agree_if_all_ended().
  bool learn_of_commit(const FailureReport& report);
  // Fills in Done::away_ns of each rank for the last agreed round. Returns false if a later done message has replaced
  // one of them.
  bool away(std::span<std::uint64_t> out) const;
  // This rank's next done message.
  Done done() const { return {ended_, begun_, away_ns_, ended_finite_}; }

  std::uint32_t round() const { return round_; }  // of the last round that began
  // The first round that this rank has not committed.
  std::uint32_t uncommitted() const { return open_ || !began_ ? round_ : round_ + 1; }
  bool closes() const { return closes_; }  // the work ends when all buckets are done
  bool agreed() const { return agreed_; }
  bool agreed_finite() const { return agreed_finite_; }  // on all ranks, for the last agreed round
  bool waits() const { return agreeing_ && !agreed_; }   // for other ranks to end their work
  Instant since() const { return since_; }               // the start of that wait
  std::uint64_t ended() const { return ended_; }         // rounds whose work this rank has ended
  std::uint64_t begun() const { return begun_; }         // rounds that this rank has begun

 private:
  void agree(bool finite) {
    agreed_ = true;
    agreed_finite_ = finite;
    open_ = false;
  }

  const Rank me_;
  std::vector<Peer>& peers_;  // by rank
  std::uint32_t round_ = 0;
  bool began_ = false, open_ = false;
  bool closes_ = false, agreeing_ = false, agreed_ = false;
  bool finite_ = true, agreed_finite_ = true;
  bool ended_finite_ = true;  // on this rank, for the last round that it ended
  Instant since_ = {};
  std::uint64_t ended_ = 0, begun_ = 0;
  std::uint64_t away_ns_ = 0;
};

}  // namespace tithe::engine
