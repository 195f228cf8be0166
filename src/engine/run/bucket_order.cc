// SPDX-License-Identifier: Apache-2.0
#include "engine/run/bucket_order.h"

#include <utility>

#include "base/rng.h"

namespace tithe::engine {
namespace {

constexpr std::size_t kMaxContexts = 1 << 16;
// Entries beyond are ignored, which bounds the memory per peer.
constexpr std::uint32_t kMaxPlaces = 1 << 16;
constexpr std::uint64_t kEnd = 0;

// A hash of an entry's layout, or kEnd. Predictions compare names only.
std::uint64_t name_of(const Announcement& entry) { return entry.is_end ? kEnd : mix64(entry.layout) | 1; }

}  // namespace

BucketOrder::BucketOrder(Rank me, int world)
    : me_(me),
      world_(static_cast<std::size_t>(world)),
      received_(static_cast<std::size_t>(world)),
      sent_to_(static_cast<std::size_t>(world)) {}

// On the first call for a round, resets the state: announcements for earlier rounds are discarded, later ones stay.
std::uint32_t BucketOrder::next_place(std::uint64_t ended) {
  if (!began_ || ended != ended_) {
    began_ = true;
    ended_ = ended;
    places_.clear();
    pending_.clear();
    for (std::size_t& count : sent_to_) count = 0;
    for (auto& heard : received_)
      std::erase_if(heard, [&](const auto& at) { return at.second.ended != ended; });
    held_ = std::exchange(surprise_, false) && world_ > 1;
    context_ = mix64(round_hash_);
    round_hash_ = 0;
  }
  return static_cast<std::uint32_t>(places_.size());
}

// Looks up the entry that followed the same context last time, and stores this entry for the next time. Advances the
// context.
bool BucketOrder::predicted(const Announcement& entry) {
  const std::uint64_t name = name_of(entry);
  const auto known = next_.find(context_);
  const bool yes = (known == next_.end() ? kEnd : known->second) == name;
  if (!yes) {
    if (next_.size() >= kMaxContexts) next_.clear();
    next_[context_] = name;
  }
  context_ = mix64(context_ ^ name);
  round_hash_ = mix64(round_hash_ ^ name);
  return yes;
}

void BucketOrder::announce(Place& place) {
  if (!std::exchange(place.announced, true)) pending_.push_back(place.mine);
}

Status BucketOrder::add(const Announcement& entry, bool in_card) {
  if (world_ == 1) return {};
  Place& place = places_.emplace_back(Place{.mine = entry, .announced = in_card});
  if (!predicted(entry) || (held_ && entry.place == 0)) announce(place);
  for (Rank r = 0; index(r) < world_; ++r)
    if (const Announcement* theirs = r == me_ ? nullptr : found(r, entry.place)) add_theirs(place, *theirs);
  return compare(place);
}

Status BucketOrder::take(Rank peer, const Announcement& entry) {
  if (entry.place >= kMaxPlaces || (began_ && entry.ended < ended_)) return {};
  const auto [at, is_new] = received_[index(peer)].try_emplace(entry.place, entry);
  if (!is_new && at->second.ended >= entry.ended) return {};  // the first announcement counts
  at->second = entry;
  if (!began_ || entry.ended != ended_ || entry.place >= places_.size()) return {};
  add_theirs(places_[entry.place], entry);
  return compare(places_[entry.place]);
}

void BucketOrder::add_theirs(Place& place, const Announcement& theirs) {
  announce(place);
  place.alike += theirs == place.mine ? 1 : 0;
  place.differs = place.differs || theirs != place.mine;
  if (place.mine.place == 0 && place.alike + 1 == world_) held_ = false;
}

const Announcement* BucketOrder::found(Rank peer, std::uint32_t place) const {
  const auto& heard = received_[index(peer)];
  const auto at = heard.find(place);
  return at != heard.end() && at->second.ended == ended_ ? &at->second : nullptr;
}

Status BucketOrder::compare(const Place& place) const {
  if (!place.differs) return {};
  std::vector<const Announcement*> all(world_);
  for (Rank r = 0; index(r) < world_; ++r)
    all[index(r)] = r == me_ ? &place.mine : found(r, place.mine.place);
  return compare_announcements(all);
}

}  // namespace tithe::engine
