// SPDX-License-Identifier: Apache-2.0
#pragma once
// BucketOrder finds out that ranks hand over different buckets, without a message in a usual round.
//
// A round is a sequence of buckets and an end. Every rank predicts the next entry from the buckets so far: the same
// context was followed by the same entry before, and an unknown context is followed by the end. All ranks have the same
// rounds behind them, so all predict the same. If a rank's entry is another one, it announces the entry to all
// (Announcement; the card of a new layout is one). If ranks differ, at least one of them differs from the prediction,
// so at least one announces. A rank that receives an announcement announces its own entry of that place. So all ranks
// know all entries of the place, and all name the same rank (compare_announcements).
//
// The round after undo() or restore() is no prediction's: a rank announces its first entry, and `holds` all frames of
// the round until all ranks have announced the same. Otherwise peers would receive frames of another round.
//
// Plain data, under the runner's mutex. A round whose entries are predicted allocates nothing.
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

  // The place of the next entry, in the round before which this rank has ended so many. A new round forgets the entries
  // of the one before.
  std::uint32_t next_place(std::uint64_t ended);
  // This rank's next entry, at next_place(). in_card: peers learn of it by the card of its layout. kMismatch: ranks
  // differ.
  Status add(const Announcement& entry, bool in_card);
  // The next round does not follow from the rounds so far, or begins with other states.
  void expect_surprise() { surprise_ = true; }
  // An entry of a peer. kMismatch where ranks differ.
  Status take(Rank peer, const Announcement& entry);

  // True if frames of this round wait for announcements; of this peer's.
  bool holds() const { return held_; }
  bool awaits(Rank peer) const { return held_ && found(peer, 0) == nullptr; }

  // Announcements that are not sent yet, to any peer or to one.
  bool has_pending() const { return !pending_.empty(); }
  bool has_pending_for(Rank peer) const { return sent_to_[index(peer)] < pending_.size(); }
  std::uint64_t pending_round(Rank peer) const { return pending_[sent_to_[index(peer)]].ended; }
  Announcement pop_pending(Rank peer) { return pending_[sent_to_[index(peer)]++]; }

 private:
  struct Place {
    Announcement mine;
    bool announced = false;
    bool differs = false;   // from some peer's
    std::size_t alike = 0;  // peers that have announced the same
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
  bool began_ = false;                                           // some round
  std::vector<Place> places_;                                    // of the round
  std::vector<std::map<std::uint32_t, Announcement>> received_;  // by rank and place
  bool surprise_ = false, held_ = false;
  std::vector<Announcement> pending_;                      // to every peer, in order
  std::vector<std::size_t> sent_to_;                       // by rank: the number sent
  std::uint64_t context_ = 0;                              // hash of the round before and of this one so far
  std::uint64_t round_hash_ = 0;                           // of this round so far
  std::unordered_map<std::uint64_t, std::uint64_t> next_;  // by context: the entry that followed
};

}  // namespace tithe::engine
