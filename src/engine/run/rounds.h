// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where this rank stands between rounds. A round is open from its first bucket until its commit; it closes when no
// further bucket comes, so this rank's work for it ends with the last of its buckets; it is agreed once all ranks have
// ended theirs, or one has committed it, which says the same. Plain data, under the runner's mutex.
#include "engine/peers/peer.h"

namespace tithe::engine {

class Rounds {
 public:
  void begin(std::uint32_t round) {
    if (!open_) finite_ = true;
    round_ = round;
    began_ = open_ = true;
    begun_ = ended_ + 1;
  }
  void close() {
    closes_ = true;
    agreed_ = false;
  }
  void meet_nonfinite() { finite_ = false; }  // in the open round, on this rank
  void end_work(Instant now) {
    ended_finite_ = finite_;
    closes_ = false;
    agreeing_ = true;
    since_ = now;
    ++ended_;
  }
  void agree(bool finite) {
    agreed_ = true;
    agreed_finite_ = finite;
    open_ = false;
  }
  void stop_waiting() { closes_ = agreeing_ = false; }  // whether it was agreed or failed
  void commit() { open_ = false; }
  void take_back() { began_ = false; }  // it begins once more

  std::uint32_t round() const { return round_; }  // the last one that began
  // The first that this rank has not committed.
  std::uint32_t uncommitted() const { return open_ || !began_ ? round_ : round_ + 1; }
  bool closes() const { return closes_; }  // its work is over when all its buckets are
  bool agreed() const { return agreed_; }
  bool agreed_finite() const { return agreed_finite_; }  // on all ranks, the round that was agreed last
  bool ended_finite() const { return ended_finite_; }    // on this rank, the round that it ended last
  bool waits() const { return agreeing_ && !agreed_; }   // for others to end theirs
  Instant since() const { return since_; }               // and since when
  std::uint64_t ended() const { return ended_; }         // rounds whose work this rank has ended
  std::uint64_t begun() const { return begun_; }         // and that it has begun

 private:
  std::uint32_t round_ = 0;
  bool began_ = false, open_ = false;
  bool closes_ = false, agreeing_ = false, agreed_ = false;
  bool finite_ = true, ended_finite_ = true, agreed_finite_ = true;
  Instant since_ = {};
  std::uint64_t ended_ = 0, begun_ = 0;
};

}  // namespace tithe::engine
