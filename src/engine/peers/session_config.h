// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session's choices: derived from its options, compared between ranks by texts, with a record of the rules in use.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/choices.h"
#include "tithe/schedule.h"
#include "tithe/seam/frame.h"
#include "tithe/session.h"

namespace tithe::engine {

// The programs among the codecs, each once with its settings.
std::vector<Spec> programs_of(const Choices& choices);
// The job's number that frames carry: no two epochs of a job have the same one.
std::uint64_t run_in(std::uint64_t run, std::uint64_t epoch);
// True if their codec is "auto".
bool automatic(const SessionOptions& options);

// Their codecs are prepared: programs are compiled where they can be.
// kInvalid for what the options get wrong, and where a codec and its strategy share no law; kUnsupported for what no
// session of this build can do.
Result<Choices> choices_of(const SessionOptions& options, int world, const Hosts& hosts = {});
// The same for rules alone, where the rest is known.
Result<Choices> choices_of(std::vector<Rule> rules, const Usual& usual);
// kInvalid where a session that has `now` cannot go on with `next`: they differ in the momentum of the step.
Status check_change(const Choices& now, const Choices& next);
// kInvalid, with the cure, unless all payloads are plain floats (codec fp32): for checksums over headers alone.
// `automatic`: the codec is chosen while the job runs.
Status check_plain(const Choices& choices, bool automatic = false);

// A card's text about codec, schedule and choices, in at most kMostControlText bytes. Equal where all of these are.
// `automatic`: the codec that was asked for, where that is "auto". The text names checksums where they cover headers
// alone. ranks: who they are, and whose states they go on from, behind the marks below.
inline constexpr std::string_view kOfMembers = " of members ";
inline constexpr std::string_view kResumed = " resumed from ";
std::string card_text(const Choices& choices, const Schedule& schedule, std::string_view automatic = {},
                      Cover checksum = Cover::kFrame, std::string_view ranks = {});
// The card's words about the strategy, and about hosts where these matter.
std::string strategy_text(const Choices& choices);
// "codec A instead of B", or the first rule that differs.
std::string card_difference(std::string_view is, std::string_view should);

// A state's text about codec and choices.
std::string state_text(const Choices& choices);
// kInvalid, with the cure, where the state was saved under others.
Status check_state_text(std::string_view saved, const Choices& choices);
// The choices that such a text stands for, where the rest is as `usual` says.
Result<Choices> choices_in(std::string_view saved, const Usual& usual);

// A bucket's plan: what happens to each tensor, and why.
std::string to_text(const Plan& plan, std::span<const PlanTensor> in_order, const Choices& choices);

// The rules that match a tensor.
class RulesUsed {
 public:
  explicit RulesUsed(const Choices& choices) : used_(choices.rules().size()) {}
  void add(const Choices& choices, std::span<const Tensor> bucket);
  void add(const Choices& choices, std::string_view key, std::size_t n);
  // After a round: kInvalid for a rule that names a key which no bucket had.
  Status check(const Choices& choices) const;
  // After a round: rules that match no tensor, as text.
  std::vector<std::string> unused(const Choices& choices) const;

 private:
  std::vector<bool> used_;
  std::set<std::string, std::less<>> keys_;  // all that were seen
};

}  // namespace tithe::engine
