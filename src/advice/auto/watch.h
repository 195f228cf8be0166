// SPDX-License-Identifier: Apache-2.0
#pragma once
// When codec "auto" plans, and what becomes of a plan: a state machine fed with what steps took. It measures, plans and
// sends nothing itself, so the same numbers have the same decisions everywhere.
//
//   measure   the first steps are measured as they are; then a plan is asked for
//   settle    the first steps under a plan are measured too. One that lasts longer than what was tried before it gives
//             way to the best of that; what is measured goes before what was predicted
//   watch     what these steps took is what is expected from then on. Where kLeave steps but a fifth are off by kOff to
//             the same side, a plan is asked for again, and what was tried before counts no longer
//   ends      between two such changes every set of rules is tried once: rules that were slower are not taken again
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tithe::automatic {

using Seconds = double;

inline constexpr std::size_t kFirst = 20;  // steps that are measured before a plan
inline constexpr std::size_t kSkip =
    5;  // of these, whose times do not count: connections, pages, new buckets
inline constexpr std::size_t kSettle = 12;  // steps under a plan
inline constexpr std::size_t kSkipNew = 2;  // of these: what was owed goes out
inline constexpr std::size_t kLeave = 50;
inline constexpr std::size_t kMostUnlike = 200;  // steps in which buckets were never the same for kFirst
inline constexpr double kOff = 0.2;
inline constexpr double kWorse = 1.02;  // of a step that was measured: what lasts longer gives way

Seconds median(std::vector<Seconds> of);  // 0 for none

class Watch {
 public:
  enum class State : std::uint8_t { kMeasuring, kPlanning, kProposed, kSettling, kWatching };
  enum class Next : std::uint8_t {
    kNothing,
    kPlan,     // planned() or failed() is the answer; the step to plan for is measured()
    kPropose,  // wanted(); switched() or refused() is the answer
    kUnlike    // no two steps hand over the same buckets: said once
  };

  explicit Watch(std::string rules) : rules_(std::move(rules)) {}
  // From a state: rules in force, and what a step took under them.
  void resume(std::string rules, Seconds expected);
  // The same, but nothing is known of a step: measures.
  void restart(std::string rules);

  // A step is over. `same`: it handed over what the one before did.
  Next step(Seconds seconds, bool same);
  // A plan: rules, and what a step should take under them.
  Next planned(std::string rules, Seconds predicted);
  void failed();  // there is none: the rules stay
  void switched();
  void refused();

  State state() const { return state_; }
  const std::string& rules() const { return rules_; }    // in force
  const std::string& wanted() const { return wanted_; }  // to be proposed
  Seconds measured() const { return measured_; }  // a step under rules(), the last time that it counted
  Seconds expected() const { return expected_; }  // 0: not known yet
  bool gave_way() const { return back_; }         // wanted() was measured before, and is to come back

 private:
  void measure();
  void watch(Seconds expected);
  Next settled();
  Next look();

  State state_ = State::kMeasuring;
  std::string rules_, wanted_;
  Seconds measured_ = 0, predicted_ = 0, expected_ = 0;
  std::vector<Seconds> steps_;            // of this state; of kWatching the last kLeave, oldest first
  std::map<std::string, Seconds> tried_;  // by rules: a step, since the world changed
  std::size_t unlike_ = 0;                // steps of kMeasuring that did not come to a plan
  bool again_ = false;                    // buckets changed while a plan was made: it is of no use
  bool replanned_ = false, back_ = false;
};

}  // namespace tithe::automatic
