// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's choices: derived from its options, compared between ranks as texts, with a record of the used rules.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/choices.h"
#include "tithe/schedule.h"
#include "tithe/seam/frame.h"
#include "tithe/session.h"

namespace tithe::engine {

// The codecs that are programs, each once per spec.
std::vector<Spec> programs_of(const Choices& choices);
// The run number in frames: distinct for each epoch of a job.
std::uint64_t run_in(std::uint64_t run, std::uint64_t epoch);
// True if the codec is "auto".
bool automatic(const SessionOptions& options);

// Also prepares the codecs: programs are compiled if possible. kInvalid: an option is wrong, or a codec and its
// strategy share no law. kUnsupported: no session of this build can do it.
Result<Choices> choices_of(const SessionOptions& options, int world, const Hosts& hosts = {});
// The same for rules only.
Result<Choices> choices_of(std::vector<Rule> rules, const ChoiceDefaults& defaults);
// kInvalid if a session with `now` cannot continue with `next`, because the momentum settings of the whole step
// differ.
Status check_change(const Choices& now, const Choices& next);
// kInvalid unless all payloads are plain floats (codec fp32): the requirement of Transport::rounds_payloads().
// `automatic`: the codec is chosen while the job runs.
Status check_plain(const Choices& choices, bool automatic = false);

// The text of a card about codec, schedule and choices, in at most kMaxControlText bytes. Two texts are equal if all
// of these are equal. `automatic`: the requested codec, if it is "auto". The text mentions checksums if they cover
// headers only. ranks: the members, and the states from which they resumed, after the marks below.
inline constexpr std::string_view kOfMembers = " of members ";
inline constexpr std::string_view kResumed = " resumed from ";
std::string card_text(const Choices& choices, const Schedule& schedule, std::string_view automatic = {},
                      Cover checksum = Cover::kFrame, std::string_view ranks = {});
// The text of a card about the strategy, and about hosts if they matter.
std::string strategy_text(const Choices& choices);
// "codec A instead of B", or the first rule that differs.
std::string card_difference(std::string_view is, std::string_view should);

// The text of a saved state about codec and choices.
std::string state_text(const Choices& choices);
// kInvalid if the state was saved under other choices.
Status check_state_text(std::string_view saved, const Choices& choices);
// The choices in such a text; other settings are taken from `defaults`.
Result<Choices> choices_in(std::string_view saved, const ChoiceDefaults& defaults);

// A description of a bucket's plan: the codec and strategy of each tensor, with the reasons.
std::string to_text(const Plan& plan, std::span<const PlanTensor> in_order, const Choices& choices);

// Records which rules matched a tensor.
class RulesUsed {
 public:
  explicit RulesUsed(const Choices& choices) : used_(choices.rules().size()) {}
  void add(const Choices& choices, std::span<const Tensor> bucket);
  void add(const Choices& choices, std::string_view key, std::size_t n);
  // After a round: kInvalid if a rule names a key that no bucket contained.
  Status check(const Choices& choices) const;
  // After a round: rules that match no tensor, as text.
  std::vector<std::string> unused(const Choices& choices) const;

 private:
  std::vector<bool> used_;
  std::set<std::string, std::less<>> keys_;  // all keys seen
};

}  // namespace tithe::engine
