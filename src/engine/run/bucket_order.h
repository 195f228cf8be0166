// SPDX-License-Identifier: Apache-2.0
#pragma once
// BucketOrder detects ranks that hand over different buckets. If a round repeats an earlier one, it costs no message.
//
// A round is a sequence of entries: its buckets, and an end. Every rank predicts the next entry from the entries so
// far: the entry that followed the same context before, or the end if the context is new. All ranks have the same
// history, so all make the same prediction. If a rank's entry differs from the prediction, the rank announces the
// entry to all ranks (Announcement; the card of a new layout contains one). If two ranks' entries differ, at least
// one of them differs from the prediction, so at least one rank announces. A rank that receives an announcement
// announces its own entry at that place. So all ranks receive all entries at the place, and all name the same rank
// (compare_announcements).
//
// After undo() or restore() the history does not predict the next round. In that round every rank announces its first
// entry, and no frame leaves until all ranks have announced the same entry (holds). Otherwise a peer could receive a
// frame of another round.
//
// Plain data, under the runner's mutex. A round that is predicted completely allocates nothing.
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/peers/control.h"

namespace tithe::engine {

class BucketOrder {
 public:
  BucketOrder(Rank me, int world);

  // The place of the next entry in the round after `ended` rounds. If the round is new, the entries of the previous
  // round are discarded.
  std::uint32_t next_place(std::uint64_t ended);
  // Adds this rank's next entry, at next_place(). in_card: the layout's card announces the entry. kMismatch: ranks
  // differ.
  Status add(const Announcement& entry, bool in_card);
  // The next round does not continue the previous rounds, or starts from other states.
  void expect_surprise() { surprise_ = true; }
  // Adds an entry of a peer. kMismatch: ranks differ.
  Status take(Rank peer, const Announcement& entry);

  // True if the frames of this round must wait for announcements; awaits(): for the announcement of `peer`.
  bool holds() const { return held_; }
  bool awaits(Rank peer) const { return held_ && found(peer, 0) == nullptr; }

  // Announcements that must be sent, to any peer or to one.
  bool has_pending() const { return !pending_.empty(); }
  bool has_pending_for(Rank peer) const { return sent_to_[index(peer)] < pending_.size(); }
  std::uint64_t pending_round(Rank peer) const { return pending_[sent_to_[index(peer)]].ended; }
  Announcement pop_pending(Rank peer) { return pending_[sent_to_[index(peer)]++]; }

 private:
  struct Place {
    Announcement mine;
    bool announced = false;
    bool differs = false;   // from some peer's entry
    std::size_t alike = 0;  // peers that announced the same entry
  };
  static std::size_t index(Rank r) { return static_cast<std::size_t>(r); }
  const Announcement* found(Rank peer, std::uint32_t place) const;
  bool predicted(const Announcement& entry);
  void announce(Place& place);
  void add_theirs(Place& place, const Announcement& theirs);
  Status compare(const Place& place) const;

  const Rank me_;
  const std::size_t world_;
  std::uint64_t ended_ = 0;
  bool began_ = false;                                           // a round has begun
  std::vector<Place> places_;                                    // of the current round
  std::vector<std::map<std::uint32_t, Announcement>> received_;  // by rank and place
  bool surprise_ = false, held_ = false;
  std::vector<Announcement> pending_;  // to every peer, in order
  std::vector<std::size_t> sent_to_;   // by rank: the number sent
  std::uint64_t context_ = 0;          // hash of the previous round and of this round so far
  std::uint64_t round_hash_ = 0;       // of this round so far
  std::unordered_map<std::uint64_t, std::uint64_t> next_;  // by context: the entry that followed
};

}  // namespace tithe::engine
