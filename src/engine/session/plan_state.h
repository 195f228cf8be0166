// SPDX-License-Identifier: Apache-2.0
#pragma once
// The PlanState owns the choices of a session, their sources (the schedule, the link, the spec of codec "auto"), and a
// proposal that is built but not used yet.
//
//   four      it has four versions: the current choices, the first ones, and the choices of the last two commits
//   checked   new choices pass the same checks on every rank, whether they are proposed or come from a saved state
//   named     rules that name a key are checked against the tensors of the first whole round
//
// Threads  automatic(), link_given() and check_proposed() read constants and may run at any time. All other calls
//          require the session's mutex.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/peers/session_config.h"
#include "engine/session/layout_table.h"
#include "engine/session/residual_ledger.h"
#include "engine/session/saved_state.h"
#include "engine/session/stragglers.h"

namespace tithe::engine {

// A proposal, built while rounds continue.
struct BuiltPlan {
  std::uint32_t number = 0;  // of the proposal
  std::shared_ptr<const Choices> choices;
  UnitsByJob units;
};

class PlanState {
 public:
  // options: with the link of the choices. link_given: the user gave it; otherwise the transport detected it, or it is
  // unknown.
  PlanState(const SessionOptions& options, bool link_given, Cover checksum, const Stragglers& stragglers,
            Choices choices, Schedule schedule);

  // The spec of codec "auto"; empty: another codec.
  const std::string& automatic() const { return automatic_; }
  bool link_given() const { return link_given_; }
  const Choices& choices() const { return *choices_; }  // of the next round
  std::shared_ptr<const Choices> current() const { return choices_; }
  const std::string& link() const { return link_; }
  Schedule& schedule() { return schedule_; }
  const Schedule& schedule() const { return schedule_; }

  // ---- Buckets
  // kUnsupported: the session's codec cannot exchange this bucket.
  Status check_new(std::span<const Tensor> bucket, RoundKind kind) const;
  // Records the rules that match the tensors of a new layout.
  void add(std::span<const Tensor> bucket) { rules_used_.add(*choices_, bucket); }
  // Before a bucket: kInvalid if a rule names a key that no bucket of the first round contained. over: a round is over.
  Status check_rules(bool over);
  std::vector<std::string> unused_rules() const { return rules_used_.unused(*choices_); }
  // The text of a card about choices and schedule. ranks: as in engine::card_text().
  std::string card_text(std::string_view ranks) const {
    return engine::card_text(*choices_, schedule_, automatic_, checksum_, ranks);
  }

  // ---- Proposals
  // Parses choices and checks that a session with choices `now` can change to them. tensors: all tensors, or none if
  // no round is over.
  Result<Choices> check_proposed(std::string_view text, const Choices& now, const TensorSizes& tensors) const;
  void set_built(BuiltPlan built) { built_ = std::move(built); }
  BuiltPlan take_built();  // requires one
  // Removes the built proposal if it has this number. The caller destroys it, after it has released the mutex.
  std::optional<BuiltPlan> discard(std::uint32_t number);
  // Switches to other choices. tensors: all known tensors.
  void use(std::shared_ptr<const Choices> choices, const feedback::ResidualStore& tensors);

  // ---- Rounds and saved states
  void commit() { before_ = std::exchange(committed_, choices_); }
  void undo() { committed_ = before_; }
  void save(SavedHead& head) const;
  // The choices with which the session continues from a state. They are the choices of the state's last commit. The
  // session must have been opened with these, or with the same choices as the state's session. `saved`: the tensors.
  Result<std::shared_ptr<const Choices>> check_saved(const SavedHead& head,
                                                     const feedback::ResidualStore::Map& saved) const;
  // After use() of these choices.
  void restore(const SavedHead& head);

 private:
  Result<std::shared_ptr<const Choices>> choices_of_state(const SavedHead& head) const;
  Status check_change_to(const Choices& next, const Choices& now) const;
  Status check_allowed(const Choices& choices, const feedback::ResidualStore::Map& saved) const;

  const std::string automatic_;
  const bool link_given_;
  const Cover checksum_;
  const Stragglers stragglers_;
  std::string link_;  // of the choices; restore() replaces it unless the user gave it
  Schedule schedule_;
  std::shared_ptr<const Choices> choices_;
  const std::shared_ptr<const Choices> opened_ = choices_;
  std::shared_ptr<const Choices> committed_ = choices_, before_ = choices_;  // of the last commits
  std::optional<BuiltPlan> built_;
  RulesUsed rules_used_{*choices_};
  bool rules_checked_ = false;  // after a whole round
};

}  // namespace tithe::engine
