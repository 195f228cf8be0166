// SPDX-License-Identifier: Apache-2.0
// The messages of ranks about choices, in every order that the control channel allows, and messages that break the
// protocol.
#include "engine/peers/reconfiguration.h"

#include <gtest/gtest.h>

namespace tithe::engine {
namespace {

using State = Proposal::State;

// All ranks of a world and the messages between them: in order between two ranks, one at a time.
class World {
 public:
  explicit World(int world) {
    for (Rank r = 0; r < world; ++r) members_.push_back({.me = r, .world = world});
    for (const Member& m : members_) ranks_.emplace_back(m);
  }
  Reconfiguration& operator[](Rank r) { return ranks_[static_cast<std::size_t>(r)]; }
  int world() const { return static_cast<int>(members_.size()); }

  // Delivers the next pending message from `from` to `to`. Returns false if there is none.
  bool deliver(Rank from, Rank to, std::uint64_t ended = 0) {
    Reconfiguration& sender = (*this)[from];
    std::vector<std::uint8_t> frame(kControlBytes);
    const ControlIdentity writer{.me = from, .world = world()};
    if (sender.decision_pending(to))
      frame.resize(sender.write_pending_decision(to, writer, frame));
    else if (sender.fragments_pending(to))
      frame.resize(sender.write_more(to, writer, frame));
    else
      return false;
    ReplayWindow numbers;
    Result<Control> c = read_control(frame, {.me = to, .world = world()}, from, numbers);
    EXPECT_TRUE(c.ok()) << c.status().what();
    Reconfiguration& reader = (*this)[to];
    const Status s = c->kind == ControlKind::kFragment ? reader.take(from, c->fragment)
                     : c->kind == ControlKind::kAnswer ? reader.take(from, c->answer)
                                                       : reader.take(from, c->decision, ended);
    EXPECT_TRUE(s.ok()) << s.what();
    return true;
  }
  void deliver_all() {
    for (bool more = true; more;) {
      more = false;
      for (Rank from = 0; from < world(); ++from)
        for (Rank to = 0; to < world(); ++to) more = (from != to && deliver(from, to)) || more;
    }
  }
  // Rank r builds its pending text and answers. Returns false if there is none.
  bool build(Rank r, Code code = Code::kOk, std::uint64_t hash = 7) {
    const auto work = (*this)[r].next_work();
    if (!work || !work->builds) return false;
    texts.push_back(work->text);
    (*this)[r].built(
        {.number = work->number, .hash = hash, .code = code, .why = code == Code::kOk ? "" : "no room"});
    return true;
  }

  std::vector<std::string> texts;

 private:
  std::vector<Member> members_;
  std::vector<Reconfiguration> ranks_;
};

const std::string kLong(5000, 'x');  // several fragments

TEST(Reconfiguration, all_ranks_switch_at_the_same_round) {
  World w(3);
  w[0].propose(kLong, 0);
  w.deliver_all();
  for (Rank r = 0; r < 3; ++r) EXPECT_TRUE(w.build(r));
  EXPECT_EQ(w.texts, std::vector<std::string>(3, kLong));
  w[0].decide(4);
  EXPECT_EQ(w[0].news().state, State::kUnderWay) << "no rank has answered yet";
  w.deliver_all();
  w[0].decide(5);
  w.deliver_all();
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_EQ(w[r].news().state, State::kAgreed);
    EXPECT_EQ(w[r].news().after, 5U);
    EXPECT_FALSE(w[r].switch_over(4));
    EXPECT_TRUE(w[r].switch_over(5));
    EXPECT_FALSE(w[r].switch_over(5));
    EXPECT_EQ(w[r].news().state, State::kSwitched);
  }
  EXPECT_FALSE(w[0].under_way());
}

TEST(Reconfiguration, a_refusal_of_one_rank_cancels_the_change_on_all_ranks) {
  World w(3);
  w[0].propose(kLong, 0);
  w.deliver_all();
  EXPECT_TRUE(w.build(0));
  EXPECT_TRUE(w.build(2, Code::kIo));
  w.deliver_all();  // rank 1 has not begun to build
  for (Rank r = 0; r < 3; ++r) {
    EXPECT_EQ(w[r].news().state, State::kRefused);
    EXPECT_EQ(w[r].news().why.peer(), 2);
    EXPECT_EQ(w[r].news().why.what(), "rank 2: no room");
  }
  const auto gone = w[0].next_work();  // the built plans are discarded
  ASSERT_TRUE(gone);
  EXPECT_FALSE(gone->builds);
  EXPECT_FALSE(w[1].has_work() && w.build(1)) << "there must be nothing to build";
  EXPECT_FALSE(w[0].under_way());
}

// A slow rank receives the refusal while it builds, and then the next proposal.
TEST(Reconfiguration, a_proposal_waits_until_the_previous_build_ends) {
  World w(3);
  w[0].propose("{}", 0);
  w.deliver_all();
  const auto slow = w[1].next_work();
  ASSERT_TRUE(slow && slow->builds);
  EXPECT_TRUE(w.build(0));
  EXPECT_TRUE(w.build(2, Code::kIo));
  w.deliver_all();
  w[0].propose(kLong, 0);
  w.deliver_all();
  EXPECT_FALSE(w[1].has_work());
  w[1].built({.number = slow->number, .code = Code::kOk});
  const auto gone = w[1].next_work();
  ASSERT_TRUE(gone);
  EXPECT_FALSE(gone->builds);
  while (w[0].has_work()) w.build(0);
  EXPECT_TRUE(w.build(1));
  EXPECT_TRUE(w.build(2));
  w.deliver_all();
  w[0].decide(9);
  w.deliver_all();
  for (Rank r = 0; r < 3; ++r) EXPECT_TRUE(w[r].switch_over(9)) << r;
}

TEST(Reconfiguration, a_rank_with_a_differing_hash_of_the_choices_is_named) {
  for (const bool late : {false, true}) {
    World w(2);
    w[0].propose("{}", 0);
    w.deliver_all();
    if (!late) {
      EXPECT_TRUE(w.build(0));
    }
    EXPECT_TRUE(w.build(1, Code::kOk, 8));
    w.deliver_all();
    if (late) {
      EXPECT_TRUE(w.build(0));
    }
    EXPECT_EQ(w[0].news().state, State::kRefused);
    EXPECT_EQ(w[0].news().why.code(), Code::kMismatch);
    EXPECT_EQ(w[0].news().why.peer(), 1);
  }
}

TEST(Reconfiguration, a_proposal_for_a_round_that_has_begun_is_refused) {
  World w(2);
  w[0].propose("{}", 6);
  w[0].decide(5);
  EXPECT_TRUE(w[0].under_way());
  w[0].decide(6);
  EXPECT_FALSE(w[0].under_way());
  EXPECT_EQ(w[0].news().why.peer(), 0) << "rank 0 has not built the choices itself";
  EXPECT_FALSE(w[0].decision_pending(1)) << "no fragment was sent to rank 1";
}

TEST(Reconfiguration, invalid_messages_are_corrupt_and_name_their_sender) {
  const auto named = [](const Status& s, Rank peer) {
    EXPECT_EQ(s.code(), Code::kCorrupt);
    EXPECT_EQ(s.peer(), peer);
  };
  const auto piece = [](std::uint32_t number, std::uint32_t first, std::uint32_t whole) {
    return Fragment{number, first, whole,
                    std::string(std::min<std::size_t>(whole - first, kMaxFragment), ' ')};
  };
  const Member member{.me = 1, .world = 3};
  const auto after = [&](std::vector<Fragment> before, Fragment f) {
    Reconfiguration p(member);
    for (Fragment& b : before) EXPECT_TRUE(p.take(0, b).ok());
    return p.take(0, f);
  };
  EXPECT_TRUE(after({piece(1, 0, 2000)}, piece(1, 900, 2000)).ok());
  named(after({}, piece(1, 900, 2000)), 0);                    // a gap
  named(after({piece(1, 0, 2000)}, piece(1, 1800, 2000)), 0);  // a gap
  named(after({piece(1, 0, 2000)}, piece(1, 0, 2000)), 0);     // a repeated fragment
  named(after({piece(1, 0, 2000)}, piece(2, 0, 2000)), 0);     // another proposal
  named(after({piece(1, 0, 2000)}, piece(1, 900, 3000)), 0);   // another length
  named(after({piece(2, 0, 2)}, piece(1, 0, 2)), 0);           // an old number
  Reconfiguration p(member);
  Fragment f = piece(1, 0, 2);
  named(p.take(2, f), 2);  // only rank 0 may propose
  named(p.take(2, Decision{.number = 1, .after = 5}, 0), 2);
  named(p.take(0, Answer{.number = 1}), 0);
  named(p.take(0, Decision{.number = 1, .after = 5}, 0), 0);  // of an unknown proposal
  ASSERT_TRUE(p.take(0, f).ok());
  named(p.take(0, Decision{.number = 1, .after = 5}, 0), 0);  // before this rank has answered
  const auto work = p.next_work();
  p.built({.number = work->number});
  std::vector<std::uint8_t> out(kControlBytes);
  (void)p.write_more(0, {.me = 1, .world = 3}, out);
  named(p.take(0, Decision{.number = 1, .after = 5}, 5), 0);  // of a round that rank 0 has ended
  EXPECT_TRUE(p.take(0, Decision{.number = 1, .after = 5}, 4).ok());
  named(p.take(0, Decision{.number = 1, .after = 6}, 4), 0);  // twice

  const Member first{.me = 0, .world = 3};
  Reconfiguration zero(first);
  named(zero.take(1, Answer{.number = 1}), 1);
  zero.propose("{}", 0);
  named(zero.take(1, Answer{.number = 1}), 1);  // before any fragment was sent to it
  (void)zero.write_more(1, {.me = 0, .world = 3}, out);
  EXPECT_TRUE(zero.take(1, Answer{.number = 1}).ok());
  named(zero.take(1, Answer{.number = 1}), 1);  // twice
}

}  // namespace
}  // namespace tithe::engine
