// SPDX-License-Identifier: Apache-2.0
// How a session's choices change while it runs: Session::propose(), and codec "auto", which proposes by itself.
//
// Threads: build() and discard() on the runner's background thread (without lanes, on the caller's), without a lock for
// most of the time; use() in commit(), on all ranks after the same round (engine/peers/reconfiguration.h).
// Owners: PlanState owns the built units until their round, then the runner does. The memory of the old layouts is
//          freed in the background.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "engine/session/session_impl.h"

namespace tithe {

std::string_view name(Proposal::State state) {
  constexpr std::string_view kNames[] = {"none", "under_way", "agreed", "switched", "refused"};
  return kNames[static_cast<std::size_t>(state)];
}

namespace engine {

// ---- Rank 0 proposes

// Rejects choices that cannot apply; the runner then distributes the others (reconfiguration.h). `round` counts from
// the first round of the job, `after` from the first round of this session; 0: as soon as all ranks are ready.
Status SessionImpl::propose(std::string_view choices, std::uint64_t round) {
  TITHE_TRY(runner_.status());
  if (member_.me != 0)
    return {Code::kInvalid, fmt::format("rank {} called propose(), but only rank 0 may propose choices: call "
                                        "propose() on rank 0, which sends the choices to all ranks",
                                        member_.me)};
  if (choices.size() > kMaxChoicesBytes)
    return {Code::kInvalid, fmt::format("choices: {} bytes, at most {}", choices.size(), kMaxChoicesBytes)};
  if (choices.empty()) choices = "{}";
  const Result<Choices> parsed = checked(choices);
  if (!parsed.ok()) return parsed.status();
  std::uint64_t after = 0;
  {
    const std::lock_guard lock(mutex_);
    TITHE_TRY(residuals_.broken());
    const auto names = [](const Rule& r) { return names_one_key(r.match); };
    if (!rounds_.over() && std::ranges::any_of(parsed->rules(), names))
      return {Code::kInvalid,
              "choices: a rule names a tensor, and the tensors are unknown before the first round: propose "
              "after the first commit()"};
    if (round > 0 && round <= rounds_.round())
      return {Code::kInvalid,
              fmt::format("choices from round {} on: that round is over or may have begun; the first "
                          "possible round is {}, and 0 means as soon as all ranks are ready",
                          round, rounds_.round() + 1)};
    if (round > 0) after = rounds_.in_session(round);
  }
  return runner_.propose(std::string(choices), after);  // without lanes this call builds, and locks mutex_
}

Proposal SessionImpl::proposal() const {
  const std::lock_guard lock(mutex_);
  const Reconfiguration::News news = runner_.proposed();
  Proposal out{.state = news.state, .why = news.why};
  using enum Proposal::State;
  if (const Status s = runner_.status(); !s.ok() && (news.state == kUnderWay || news.state == kAgreed))
    return {.state = kRefused, .why = s};
  if (news.state == kAgreed || news.state == kSwitched) out.round = rounds_.in_job(news.after);
  return out;
}

std::string SessionImpl::choices() const {
  const std::lock_guard lock(mutex_);
  return plan_.choices().text();
}

Status SessionImpl::user_proposes(std::string_view choices, std::uint64_t round) {
  if (!plan_.automatic().empty())
    return {
        Code::kInvalid,
        fmt::format(
            "a session with codec {} makes its own proposals: to propose choices, open it with another codec",
            plan_.automatic())};
  return propose(choices, round);
}

// ---- Proposals of codec "auto"

void SessionImpl::start_advisor() {
  if (member_.me != 0 || member_.world == 1) return;
  AdvisorContext context{
      .defaults = plan_.choices().defaults(),
      .first = {plan_.choices().rules().begin(), plan_.choices().rules().end()},
      .lanes = lanes_,
      .run_in_background = [this](std::function<void()> work) { runner_.run_in_background(std::move(work)); },
      .now_ns = [this] { return runner_.now_ns(); },
      .mark = [this](std::string_view op, std::int64_t begin,
                     std::int64_t end) { runner_.mark(op, begin, end); }};
  if (!plan_.automatic().empty()) {
    advisor_ = make_advisor(*parse_auto(plan_.automatic()), std::move(context));
    return;
  }
  const Result<AutoSpec> allowed = parse_auto(advice_allowances().empty() ? "auto" : advice_allowances());
  TITHE_ASSERT(allowed.ok());  // open() has checked it
  advisor_ = make_observer({advice_option(), *allowed}, std::move(context));
}

void SessionImpl::advise() {
  const std::string rules = advisor_->round_over(runner_.now_ns(), proposal());
  if (rules.empty()) return;
  if (const Status s = propose(rules, 0); !s.ok()) advisor_->not_proposed(s);
}

// ---- Every rank builds

Result<Choices> SessionImpl::checked(std::string_view text) const {
  std::shared_ptr<const Choices> now;
  TensorSizes tensors;
  {
    const std::lock_guard lock(mutex_);
    now = plan_.current();
    if (rounds_.over()) tensors = sizes_of(residuals_.store().all());
  }
  return plan_.check_proposed(text, *now, tensors);
}

// Builds the units of all known layouts under the new choices, without changing the session. The memory is touched
// here, so the switch costs no page faults.
Answer SessionImpl::build(std::uint32_t number, const std::string& text) {
  try {
    Result<Choices> next = checked(text);
    if (!next.ok()) return {.number = number, .code = next.status().code(), .why = next.status().what()};
    BuiltPlan built{
        .number = number, .choices = std::make_shared<const Choices>(std::move(*next)), .units = {}};
    std::vector<SeenLayout> layouts;
    {
      const std::lock_guard lock(mutex_);
      layouts = layouts_.seen();
      if (const Status s = layouts_.check_kinds(*built.choices); !s.ok())
        return {.number = number, .code = s.code(), .why = s.what()};
    }
    for (const SeenLayout& s : layouts) {
      auto unit = layouts_.unit_of(s.bucket, s.kind, *built.choices, s.transferable);
      unit->touch(s.bucket);
      built.units.emplace(s.job, std::move(unit));
    }
    const Answer ready{.number = number, .hash = built.choices->hash(), .code = Code::kOk};
    const std::lock_guard lock(mutex_);
    plan_.set_built(std::move(built));
    return ready;
  } catch (const std::bad_alloc&) {
    return {.number = number, .code = Code::kIo, .why = "not enough memory for these choices"};
  }
}

void SessionImpl::discard(std::uint32_t number) {
  std::optional<BuiltPlan> gone;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  gone = plan_.discard(number);
}

// ---- All ranks switch

// No round may be open. Layouts without a built unit get one here.
void SessionImpl::use(std::shared_ptr<const Choices> choices, UnitsByJob built) {
  plan_.use(std::move(choices), residuals_.store());
  layouts_.rebuild(plan_.choices(), std::move(built), card());
}

}  // namespace engine
}  // namespace tithe
