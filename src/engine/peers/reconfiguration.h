// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reconfiguration changes a running session's choices: rank 0 sends them, every rank builds the new plans and answers
// whether it can use them, and all ranks switch at the same round or none does.
//
//   rank 0   fragment ... fragment                      decision   done of round R - 1
//   others                         (builds)   answer                                    (R is the first with them)
//
// Why all switch at the same round:
//   1. Rank 0 decides alone, once, when all answers have arrived: "after R rounds", or "never".
//   2. It decides before it ends its work of round R - 1, and its messages to a rank arrive in order. So a rank that
//      has received rank 0's done of that round has received the decision.
//   3. A rank that begins round R has committed R - 1 by the done of all ranks, rank 0's among them. One that has
//      committed it because another one had, and says so in a farewell, begins no round any more (control_messages.cc).
//   4. So all ranks that begin round R take them, or none does. A rank that has not begun it keeps, and saves, those of
//      its last commit, whatever it has heard: the survivors of a rank that is lost meanwhile have states that fit.
//   5. "Never" comes before anything of the next proposal, by the same order.
// Should some rank take other choices all the same, the cards of the new layouts say so before anything is sent.
//
//   bounded   a rank keeps one text of kMostChoicesBytes that has come and one that it works on, whatever rank 0 sends
//   one       at a time: rank 0 proposes again once the last one is taken, or is not to be
//   in order  fragments without gaps, numbers that rise, one answer each: else their sender is named
//
// Plain data, under the runner's mutex.
#include <optional>

#include "engine/peers/control.h"
#include "engine/program/unit.h"
#include "tithe/session.h"

namespace tithe::engine {

class Reconfiguration {
 public:
  using State = Proposal::State;
  struct News {
    State state = State::kNone;
    std::uint64_t after = 0;  // agreed, switched: so many rounds of this session
    Status why = {};          // refused
  };
  // A background task, taken by the first caller of next_work(): build the plans of `text`, or discard built plans.
  struct Work {
    std::uint32_t number = 0;
    bool builds = false;
    std::string text = {};
  };

  explicit Reconfiguration(const Member& member);

  const News& news() const { return news_; }
  bool has_work() const { return !gone_.empty() || has_text(); }
  std::optional<Work> next_work();
  void built(Answer answer);
  // After so many rounds: true if the proposal counts from now on.
  bool switch_over(std::uint64_t ended);

  // ---- Rank 0
  bool under_way() const { return own_.number > 0; }
  void propose(std::string text, std::uint64_t after);  // 0: as soon as all are ready
  void decide(std::uint64_t next);                      // right before this rank ends its `next` round

  // ---- The control channel. kCorrupt for what a peer may not say.
  Status take(Rank peer, Fragment& fragment);
  Status take(Rank peer, const Answer& answer);
  Status take(Rank peer, const Decision& decision, std::uint64_t ended_by_peer);
  bool decision_pending(Rank peer) const { return at(peer).decision.has_value(); }
  bool fragments_pending(Rank peer) const;
  std::size_t write_pending_decision(Rank peer, const ControlIdentity& identity, Bytes out);
  std::size_t write_more(Rank peer, const ControlIdentity& identity, Bytes out);

 private:
  // As rank 0 knows it.
  struct OwnProposal {
    std::uint32_t number = 0;  // 0: none
    std::string text;
    std::uint64_t wanted = 0;
    std::uint64_t hash = 0;   // as this rank reads it
    std::uint64_t after = 0;  // decided
  };
  struct Other {  // rank 0's view of another one
    std::size_t sent = 0;
    bool ready = false;
    std::uint64_t hash = 0;                 // as it reads the choices
    std::optional<Decision> decision = {};  // that it is to be told
  };
  struct Incoming {
    std::uint32_t number = 0;  // 0: none
    std::size_t whole = 0;
    std::string text;
  };
  // The choices that this rank builds or has built.
  struct Staged {
    enum class Stage : std::uint8_t { kNone, kBuilds, kBuilt, kFailed, kAgreed };
    Stage stage = Stage::kNone;
    std::uint32_t number = 0;
    bool given_up = false;    // while it was built
    std::uint64_t after = 0;  // agreed
  };

  Other& at(Rank r) { return others_[static_cast<std::size_t>(r)]; }
  const Other& at(Rank r) const { return others_[static_cast<std::size_t>(r)]; }
  bool has_text() const {
    return incoming_.number > 0 && incoming_.text.size() == incoming_.whole &&
           staged_.stage == Staged::Stage::kNone;
  }
  static Status differs(Rank peer);
  void refuse(const Status& why, Rank blamed);
  void apply(const Decision& decision);
  std::optional<Rank> first_that_is_not_ready() const;

  const Member& member_;
  News news_;
  std::uint32_t last_ = 0;  // the highest number so far
  OwnProposal own_;
  std::vector<Other> others_;  // by rank
  Incoming incoming_;
  Staged staged_;
  std::optional<Answer> answer_;     // for rank 0
  std::vector<std::uint32_t> gone_;  // built, and not to be
};

}  // namespace tithe::engine
