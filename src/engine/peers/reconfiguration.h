// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reconfiguration changes a running session's choices. Rank 0 sends them, every rank builds the new plans and answers
// whether it can use them, and all ranks switch at the same round or no rank does.
//
//   rank 0   fragment ... fragment                      decision   done of round R - 1
//   others                         (builds)   answer                                    (R is the first with them)
//
// Why all ranks switch at the same round:
//   1. Only rank 0 decides, once, when all answers have arrived: "after R rounds", or "never".
//   2. It decides before it ends its work of round R - 1, and its messages to a rank arrive in order. So a rank that
//      has received rank 0's done message of that round has received the decision.
//   3. A rank that begins round R has committed round R - 1. Usually it has received the done messages of all ranks,
//      including rank 0's. If it committed because of a farewell (Rounds::learn_of_commit), it begins no further round.
//   4. So all ranks that begin round R use the new choices, or none does. A rank that has not begun round R keeps, and
//      saves, the choices of its last commit, even if it has received the decision. So if a rank is lost meanwhile, the
//      survivors have matching states.
//   5. By the same order, "never" arrives before any message of the next proposal.
// If a rank used other choices in spite of this, the cards of the new layouts would differ before any frame is sent.
//
//   bounded   a rank stores one received text of at most kMaxChoicesBytes, and one that it builds
//   one       at a time: rank 0 proposes again after the previous proposal was switched to or refused
//   in order  fragments without gaps, rising numbers, one answer each; otherwise the sender is blamed
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
    std::uint64_t after = 0;  // agreed, switched: the number of rounds in this session
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
  // Called after `ended` rounds. Returns true if the proposal applies from now on.
  bool switch_over(std::uint64_t ended);

  // ---- Rank 0
  bool under_way() const { return own_.number > 0; }
  void propose(std::string text, std::uint64_t after);  // 0: as soon as all ranks are ready
  void decide(std::uint64_t next);                      // before this rank ends its round number `next`

  // ---- The control channel. kCorrupt if a message breaks the protocol.
  Status take(Rank peer, Fragment& fragment);
  Status take(Rank peer, const Answer& answer);
  Status take(Rank peer, const Decision& decision, std::uint64_t ended_by_peer);
  bool decision_pending(Rank peer) const { return at(peer).decision.has_value(); }
  bool fragments_pending(Rank peer) const;
  std::size_t write_pending_decision(Rank peer, const ControlIdentity& identity, Bytes out);
  std::size_t write_more(Rank peer, const ControlIdentity& identity, Bytes out);

 private:
  // Rank 0's state.
  struct OwnProposal {
    std::uint32_t number = 0;  // 0: none
    std::string text;
    std::uint64_t wanted = 0;
    std::uint64_t hash = 0;   // of the choices, on this rank
    std::uint64_t after = 0;  // decided
  };
  struct Other {  // rank 0's view of another rank
    std::size_t sent = 0;
    bool ready = false;
    std::uint64_t hash = 0;                 // of the choices, on that rank
    std::optional<Decision> decision = {};  // that must be sent to it
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
    bool given_up = false;    // refused during the build
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
  std::uint32_t last_ = 0;  // the highest number used so far
  OwnProposal own_;
  std::vector<Other> others_;  // by rank
  Incoming incoming_;
  Staged staged_;
  std::optional<Answer> answer_;     // for rank 0
  std::vector<std::uint32_t> gone_;  // numbers of built plans to discard
};

}  // namespace tithe::engine
