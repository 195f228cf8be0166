// SPDX-License-Identifier: Apache-2.0
#include "engine/run/bucket_order.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace tithe::engine {
namespace {

// All ranks of a world. Announcements of one sender arrive in order; the interleaving is drawn at random.
class World {
 public:
  World(int ranks, unsigned seed) : rng_(seed), next_(static_cast<std::size_t>(ranks)) {
    for (Rank r = 0; r < ranks; ++r) orders_.emplace_back(r, ranks);
    flying_.resize(orders_.size() * orders_.size());
    found_.resize(orders_.size());
  }

  // Plays one round on every rank: layouts in order, then the end. Returns the number of announcements sent.
  std::size_t play(const std::vector<std::vector<std::uint64_t>>& layouts,
                   const std::vector<std::uint64_t>& rounds = {}) {
    const std::size_t before = sent_;
    std::fill(next_.begin(), next_.end(), 0);
    while (true) {
      std::vector<std::size_t> moves;  // ranks with an entry left, then channels with a message
      for (std::size_t r = 0; r < orders_.size(); ++r)
        if (next_[r] <= layouts[r].size()) moves.push_back(r);
      for (std::size_t f = 0; f < flying_.size(); ++f)
        if (!flying_[f].empty()) moves.push_back(orders_.size() + f);
      if (moves.empty()) break;
      const std::size_t move = moves[rng_() % moves.size()];
      if (move < orders_.size())
        enter(move, layouts[move], rounds.empty() ? ended_ : rounds[move]);
      else
        arrive(move - orders_.size());
    }
    ++ended_;
    return sent_ - before;
  }
  void surprise(std::size_t rank) { orders_[rank].expect_surprise(); }
  const Status& found(std::size_t rank) const { return found_[rank]; }
  bool holds(std::size_t rank) const { return orders_[rank].holds(); }

 private:
  void enter(std::size_t r, const std::vector<std::uint64_t>& layouts, std::uint64_t round) {
    BucketOrder& order = orders_[r];
    const std::size_t k = next_[r]++;
    Announcement entry{.ended = ended_, .place = order.next_place(ended_), .round = round};
    EXPECT_EQ(entry.place, k);
    entry.is_end = k == layouts.size();
    if (!entry.is_end) entry.tensors = entry.values = entry.layout = layouts[k];
    note(r, order.add(entry, false));
  }
  void arrive(std::size_t flight) {
    const std::size_t from = flight / orders_.size(), to = flight % orders_.size();
    const Announcement a = flying_[flight].front();
    flying_[flight].pop_front();
    note(to, orders_[to].take(static_cast<Rank>(from), a));
  }
  void note(std::size_t r, const Status& s) {
    if (found_[r].ok()) found_[r] = s;
    for (std::size_t to = 0; to < orders_.size(); ++to)
      while (to != r && orders_[r].has_pending_for(static_cast<Rank>(to))) {
        flying_[r * orders_.size() + to].push_back(orders_[r].pop_pending(static_cast<Rank>(to)));
        ++sent_;
      }
  }

  std::mt19937 rng_;
  std::vector<BucketOrder> orders_;
  std::vector<std::size_t> next_;  // by rank: number of entries so far in the round
  std::vector<std::deque<Announcement>> flying_;
  std::vector<Status> found_;
  std::uint64_t ended_ = 0;
  std::size_t sent_ = 0;
};

using Layouts = std::vector<std::uint64_t>;
std::vector<Layouts> on_all(int ranks, const Layouts& one) { return {static_cast<std::size_t>(ranks), one}; }

TEST(BucketOrder, rounds_that_repeat_need_no_announcement) {
  for (const std::vector<Layouts>& cycle :
       std::vector<std::vector<Layouts>>{{{1, 2, 3}}, {{1}, {2}}, {{1, 2}, {2, 1}, {3}}}) {
    World world(3, 1);
    for (int k = 0; k < 3; ++k)
      for (const Layouts& one : cycle) {
        const std::size_t sent = world.play(on_all(3, one));
        if (k == 2) {
          EXPECT_EQ(sent, 0U) << "the third repetition is predicted";
        }
      }
    for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(world.found(r).ok());
  }
}

// If one rank's round differs, all ranks detect it and name the same rank.
TEST(BucketOrder, any_difference_is_found_by_all_ranks_alike) {
  std::mt19937 rng(7);
  const auto drawn = [&] {
    Layouts out(1 + rng() % 3);
    for (std::uint64_t& layout : out) layout = 1 + rng() % 3;
    return out;
  };
  for (unsigned seed = 0; seed < 300; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 4);
    World world(ranks, seed);
    for (unsigned k = rng() % 8; k > 0; --k) world.play(on_all(ranks, drawn()));
    for (int r = 0; r < ranks; ++r) ASSERT_TRUE(world.found(static_cast<std::size_t>(r)).ok());
    std::vector<Layouts> round = on_all(ranks, drawn());
    const std::size_t odd = rng() % round.size();
    do round[odd] = drawn();
    while (round[odd] == round[odd == 0 ? 1 : 0]);
    world.play(round);
    // Of two ranks, rank 0's buckets define the round.
    const Rank named = ranks == 2 ? 1 : static_cast<Rank>(odd);
    for (int r = 0; r < ranks; ++r) {
      const Status& s = world.found(static_cast<std::size_t>(r));
      ASSERT_EQ(s.code(), Code::kMismatch) << seed;
      ASSERT_EQ(s.peer(), named) << s.what();
    }
  }
}

TEST(BucketOrder, a_round_that_does_not_follow_is_compared_before_its_frames) {
  World world(3, 5);
  for (int k = 0; k < 3; ++k) world.play(on_all(3, {1, 2}));
  for (std::size_t r = 0; r < 3; ++r) world.surprise(r);
  EXPECT_EQ(world.play(on_all(3, {1, 2}), {2, 2, 2}), 6U);
  for (std::size_t r = 0; r < 3; ++r) EXPECT_TRUE(world.found(r).ok() && !world.holds(r));
  world.surprise(1);
  world.play(on_all(3, {1, 2}), {3, 2, 3});
  EXPECT_TRUE(world.holds(1));
  for (std::size_t r = 0; r < 3; ++r) EXPECT_EQ(world.found(r).peer(), 1) << world.found(r).what();
}

}  // namespace
}  // namespace tithe::engine
