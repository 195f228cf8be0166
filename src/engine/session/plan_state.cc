// SPDX-License-Identifier: Apache-2.0
#include "engine/session/plan_state.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/allowance.h"

namespace tithe::engine {

PlanState::PlanState(const SessionOptions& options, bool link_given, Cover checksum,
                     const Stragglers& stragglers, Choices choices, Schedule schedule)
    : automatic_(engine::automatic(options) ? to_string(*parse_auto(options.codec)) : std::string()),
      link_given_(link_given),
      checksum_(checksum),
      stragglers_(stragglers),
      link_(options.link),
      schedule_(schedule),
      choices_(std::make_shared<const Choices>(std::move(choices))) {}

Status PlanState::check_new(std::span<const Tensor> bucket, RoundKind kind) const {
  if (kind == RoundKind::kAllReduce) return {};
  if (!automatic_.empty())
    return {Code::kUnsupported,
            fmt::format("{}: codec {} plans only all-reduces: open the session with another codec",
                        name(kind), automatic_)};
  return check_kind(plan_of(bucket, *choices_, kind));
}

Status PlanState::check_rules(bool over) {
  if (over && !rules_checked_) TITHE_TRY(rules_used_.check(*choices_));
  rules_checked_ = over;
  return {};
}

Status PlanState::check_change_to(const Choices& next, const Choices& now) const {
  TITHE_TRY(check_change(now, next));
  return checksum_ == Cover::kHeader ? check_plain(next) : Status{};
}

Result<Choices> PlanState::check_proposed(std::string_view text, const Choices& now,
                                          const TensorSizes& tensors) const {
  Result<std::vector<Rule>> rules = parse_rules(text);
  if (!rules.ok()) return rules.status();
  Result<Choices> next = engine::choices_of(std::move(*rules), now.defaults());
  if (!next.ok()) return next;
  TITHE_TRY(check_change_to(*next, now));
  TITHE_TRY(check_stragglers(stragglers_, *next));
  RulesUsed met(*next);
  for (const auto& [key, n] : tensors) met.add(*next, key, n);
  if (!tensors.empty()) TITHE_TRY(met.check(*next));
  return next;
}

BuiltPlan PlanState::take_built() {
  TITHE_ASSERT(built_.has_value());
  return *std::exchange(built_, std::nullopt);
}

std::optional<BuiltPlan> PlanState::discard(std::uint32_t number) {
  std::optional<BuiltPlan> gone;
  if (built_ && built_->number == number) gone.swap(built_);
  return gone;
}

void PlanState::use(std::shared_ptr<const Choices> choices, const feedback::ResidualStore& tensors) {
  choices_ = std::move(choices);
  rules_used_ = RulesUsed(*choices_);
  for (const auto& [key, state] : tensors.all()) rules_used_.add(*choices_, key, state.n);
  rules_checked_ = false;
}

void PlanState::save(SavedHead& head) const {
  head.codec = state_text(*committed_);
  head.opened = state_text(*opened_);
  if (head.opened == head.codec) head.opened.clear();
  head.link = link_;
  head.schedule = schedule_.text();
  head.schedule_state = schedule_.state();
}

Result<std::shared_ptr<const Choices>> PlanState::check_saved(
    const SavedHead& head, const feedback::ResidualStore::Map& saved) const {
  Result<std::shared_ptr<const Choices>> choices = choices_of_state(head);
  if (!choices.ok()) return choices;
  if (head.schedule != schedule_.text())
    return Status(
        Code::kInvalid,
        fmt::format(
            "state was saved with schedule '{0}', this session has '{1}': open it with schedule '{0}'",
            head.schedule, schedule_.text()));
  TITHE_TRY(check_allowed(**choices, saved));
  return choices;
}

Result<std::shared_ptr<const Choices>> PlanState::choices_of_state(const SavedHead& head) const {
  ChoiceDefaults defaults = opened_->defaults();
  if (!link_given_) {
    const Result<Link> saved = parse_link(head.link);
    if (!saved.ok()) return Status(Code::kCorrupt, "the state's " + saved.status().what());
    defaults.link = *saved;
  }
  for (const auto& mine : {choices_, opened_})
    if (mine->defaults() == defaults && check_state_text(head.codec, *mine).ok()) return mine;
  TITHE_TRY(check_state_text(head.opened.empty() ? head.codec : head.opened, *opened_));
  Result<Choices> next = choices_in(head.codec, defaults);
  if (!next.ok())
    return Status(next.status().code(),
                  fmt::format("the state's choices, which were proposed: {}", next.status().what()));
  TITHE_TRY(check_change_to(*next, *choices_));
  return std::make_shared<const Choices>(std::move(*next));
}

// A state's rules came from a plan with the codecs that were allowed then; the allowed codecs may have changed.
Status PlanState::check_allowed(const Choices& choices, const feedback::ResidualStore::Map& saved) const {
  if (automatic_.empty()) return {};
  const Result<AutoSpec> spec = parse_auto(automatic_);
  for (const auto& [key, from] : saved) {
    const Spec& codec = choices.choice(key, from.n).spec;
    const std::vector<Spec> allowed = codecs_for(spec->allowed, key);
    if (std::find(allowed.begin(), allowed.end(), codec) == allowed.end())
      return {
          Code::kInvalid,
          fmt::format(
              "the state's plan sends tensor '{}' by {}, which {} does not allow: open the session with the "
              "allowed codecs of the saved session, or start without the state (its residuals are then lost)",
              printable(key, 200), to_string(codec), automatic_)};
  }
  return {};
}

void PlanState::restore(const SavedHead& head) {
  if (!link_given_) link_ = head.link;
  committed_ = choices_;
  schedule_.restore(head.schedule_state);
}

}  // namespace tithe::engine
