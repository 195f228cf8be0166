// SPDX-License-Identifier: Apache-2.0
// How a session's choices change while it runs: Session::propose(), and restoring a state with other choices.
//
// Threads: build() and discard() on the runner's background thread (without lanes, on the caller's), without a lock for
// most of the time; switch_over() in commit(), on all ranks after the same round (engine/peers/reconfiguration.h).
// Owners: `built_` owns the built units until their round, then the runner does. The memory of the old layouts is freed
//          in the background.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "base/text.h"
#include "engine/session/session_impl.h"

namespace tithe {

using engine::Unit;
using feedback::TensorState;

std::string_view name(Proposal::State state) {
  constexpr std::string_view kNames[] = {"none", "under_way", "agreed", "switched", "refused"};
  return kNames[static_cast<std::size_t>(state)];
}

// ---- Rank 0 proposes

// Rejects choices that cannot apply; the runner then distributes the others (reconfiguration.h). `round` counts from
// the first round of the job, `after` from the first round of this session; 0: as soon as all ranks are ready.
Status Session::Impl::propose(std::string_view choices, std::uint64_t round) {
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
    TITHE_TRY(broken_);
    const auto names = [](const Rule& r) { return names_one_key(r.match); };
    if (!round_over_ && std::ranges::any_of(parsed->rules(), names))
      return {Code::kInvalid,
              "choices: a rule names a tensor, and the tensors are unknown before the first round: propose "
              "after the first commit()"};
    if (round > 0 && round <= round_)
      return {Code::kInvalid,
              fmt::format("choices from round {} on: that round is over or may have begun; the first "
                          "possible round is {}, and 0 means as soon as all ranks are ready",
                          round, round_ + 1)};
    if (round > 0) after = committed_ + (round - round_);
  }
  return runner_.propose(std::string(choices), after);  // without lanes this call builds, and locks mutex_
}

Proposal Session::Impl::proposal() const {
  const std::lock_guard lock(mutex_);
  const engine::Reconfiguration::News news = runner_.proposed();
  Proposal out{.state = news.state, .why = news.why};
  using enum Proposal::State;
  if (const Status s = runner_.status(); !s.ok() && (news.state == kUnderWay || news.state == kAgreed))
    return {.state = kRefused, .why = s};
  if (news.state == kAgreed || news.state == kSwitched) out.round = round_ + (news.after - committed_);
  return out;
}

std::string Session::Impl::choices() const {
  const std::lock_guard lock(mutex_);
  return choices_->text();
}

Status Session::Impl::user_proposes(std::string_view choices, std::uint64_t round) {
  if (!automatic_.empty())
    return {
        Code::kInvalid,
        fmt::format(
            "a session with codec {} makes its own proposals: to propose choices, open it with another codec",
            automatic_)};
  return propose(choices, round);
}

// ---- Proposals of codec "auto"

std::string Session::Impl::automatic_text(const SessionOptions& options) {
  return engine::automatic(options) ? to_string(*parse_auto(options.codec)) : std::string();
}

void Session::Impl::start_advisor() {
  if (member_.me != 0 || member_.world == 1) return;
  engine::AdvisorContext context{
      .usual = choices_->usual(),
      .first = {choices_->rules().begin(), choices_->rules().end()},
      .lanes = lanes_,
      .run_in_background = [this](std::function<void()> work) { runner_.run_in_background(std::move(work)); },
      .now_ns = [this] { return runner_.now_ns(); },
      .mark = [this](std::string_view op, std::int64_t begin,
                     std::int64_t end) { runner_.mark(op, begin, end); }};
  if (!automatic_.empty()) {
    advisor_ = engine::make_advisor(*parse_auto(automatic_), std::move(context));
    return;
  }
  const Result<AutoSpec> allowed = parse_auto(advice_allowances().empty() ? "auto" : advice_allowances());
  TITHE_ASSERT(allowed.ok());  // open() has checked it
  advisor_ = engine::make_observer({advice_option(), *allowed}, std::move(context));
}

void Session::Impl::advise() {
  const std::string rules = advisor_->round_over(runner_.now_ns(), proposal());
  if (rules.empty()) return;
  if (const Status s = propose(rules, 0); !s.ok()) advisor_->not_proposed(s);
}

// A state's rules came from a plan with the codecs that were allowed then; the allowed codecs may have changed.
Status Session::Impl::check_allowed(const Choices& choices, const feedback::ResidualStore::Map& saved) const {
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

// ---- Every rank builds

Result<Choices> Session::Impl::checked(std::string_view text) const {
  Result<std::vector<Rule>> rules = parse_rules(text);
  if (!rules.ok()) return rules.status();
  std::shared_ptr<const Choices> now;
  std::vector<std::pair<std::string, std::size_t>> keys;
  {
    const std::lock_guard lock(mutex_);
    now = choices_;
    if (round_over_)
      for (const auto& [key, kept] : store_.all()) keys.emplace_back(key, kept.n);
  }
  Result<Choices> next = engine::choices_of(std::move(*rules), now->usual());
  if (!next.ok()) return next;
  TITHE_TRY(engine::check_change(*now, *next));
  if (member_.tagging.checksum == Cover::kHeader) TITHE_TRY(engine::check_plain(*next));
  TITHE_TRY(engine::check_stragglers(*engine::parse_stragglers(options_.stragglers), *next));
  engine::RulesUsed met(*next);
  for (const auto& [key, n] : keys) met.add(*next, key, n);
  if (!keys.empty()) TITHE_TRY(met.check(*next));
  return next;
}

// The addresses of the last round tell which tensors need staging memory; the tensors are not read.
Session::Impl::SeenLayout Session::Impl::seen(const LayoutEntry& e) const {
  Unit& unit = *e.job->unit;
  SeenLayout out;
  out.job = e.job->number;
  out.kind = unit.plan().kind;
  out.bucket = unit.last_bucket();
  out.bounds.resize(out.bucket.size());
  out.keys.resize(out.bucket.size());
  out.transferable.resize(out.bucket.size());
  for (const engine::TensorLayout& t : unit.tensors()) {
    out.keys[t.index] = t.key;
    out.transferable[t.index] = unit.feedback().transferable(t.slice());
    Tensor& mine = out.bucket[t.index];  // empty if the layout has had no round
    mine.n = t.n;
    mine.dtype = t.dtype;
    mine.row = t.row;
    out.bounds[t.index] = t.bounds;
  }
  for (std::size_t i = 0; i < out.keys.size(); ++i) {
    out.bucket[i].key = out.keys[i];
    out.bucket[i].bounds = out.bounds[i];
  }
  return out;
}

// Builds the units of all known layouts under the new choices, without changing the session. The memory is touched
// here, so the switch costs no page faults.
engine::Answer Session::Impl::build(std::uint32_t number, const std::string& text) {
  try {
    Result<Choices> next = checked(text);
    if (!next.ok()) return {.number = number, .code = next.status().code(), .why = next.status().what()};
    BuiltPlan built{
        .number = number, .choices = std::make_shared<const Choices>(std::move(*next)), .units = {}};
    std::vector<SeenLayout> layouts;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& e : entries_) layouts.push_back(seen(*e));
      if (const Status s = check_kinds(*built.choices); !s.ok())
        return {.number = number, .code = s.code(), .why = s.what()};
    }
    for (const SeenLayout& s : layouts) {
      auto unit = unit_of(s.bucket, s.kind, *built.choices, s.transferable);
      unit->touch(s.bucket);
      built.units.emplace(s.job, std::move(unit));
    }
    const engine::Answer ready{.number = number, .hash = built.choices->hash(), .code = Code::kOk};
    const std::lock_guard lock(mutex_);
    built_ = std::move(built);
    return ready;
  } catch (const std::bad_alloc&) {
    return {.number = number, .code = Code::kIo, .why = "not enough memory for these choices"};
  }
}

Status Session::Impl::check_kinds(const Choices& choices) const {
  for (const auto& e : entries_)
    if (e->job->unit->plan().kind != RoundKind::kAllReduce) {
      const SeenLayout layout = seen(*e);
      TITHE_TRY(check_kind(engine::plan_of(layout.bucket, choices, layout.kind)));
    }
  return {};
}

void Session::Impl::discard(std::uint32_t number) {
  std::optional<BuiltPlan> gone;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (built_ && built_->number == number) gone.swap(built_);
}

// ---- All ranks switch

void Session::Impl::switch_over() {
  TITHE_ASSERT(built_.has_value());
  const auto built = std::make_shared<BuiltPlan>(std::move(*built_));
  built_.reset();
  take(built->choices, built.get());
  runner_.run_in_background([built] {});  // frees the units of layouts that were removed meanwhile
}

// Switches all layouts to `choices`. No round may be open. `built`: prepared units; missing ones are built here. The
// layouts keep their order, so their jobs have the same numbers on all ranks. Each tensor's state moves into the new
// unit; if its memory can be taken over, no value is copied.
void Session::Impl::take(std::shared_ptr<const Choices> choices, BuiltPlan* built) {
  choices_ = std::move(choices);
  rules_used_ = engine::RulesUsed(*choices_);
  for (const auto& [key, kept] : store_.all()) rules_used_.add(*choices_, key, kept.n);
  met_all_ = false;
  const auto old = std::make_shared<std::vector<std::unique_ptr<Unit>>>();
  for (const auto& e : entries_) {
    engine::Job& before = *e->job;
    std::unique_ptr<Unit> unit;
    if (built != nullptr)
      if (const auto at = built->units.find(before.number); at != built->units.end())
        unit = std::move(at->second);
    const SeenLayout layout = seen(*e);
    if (unit == nullptr) unit = unit_of(layout.bucket, layout.kind, *choices_);
    const std::span<const engine::TensorLayout> now = unit->tensors(), was = before.unit->tensors();
    std::vector<std::size_t> lay(was.size());  // by the caller's order: index in the old unit
    for (std::size_t i = 0; i < was.size(); ++i) lay[was[i].index] = i;
    std::vector<TensorState*> kept(now.size());
    for (std::size_t i = 0; i < now.size(); ++i) {
      const std::size_t from = lay[now[i].index];
      TensorState& k = *(kept[i] = e->kept[from]);
      // False: the state is in another layout, or in none.
      const bool counts = k.in == &before.unit->feedback();
      const bool came =
          unit->feedback().take_over(now[i].slice(), before.unit->feedback(), was[from].slice(), counts);
      if (counts && came)
        k.finish_move(unit->feedback(), now[i].slice());
      else if (counts)
        k.move_to(unit->feedback(), now[i].slice());
    }
    unit->feedback().complete();
    e->kept = std::move(kept);
    e->job = &add(std::move(unit), e->hash);
    old->push_back(runner_.forget(before));
  }
  for (const auto& e : entries_) runner_.show(*e->job);
  runner_.run_in_background([old] {});
}

// The choices with which a session continues from a state. They are the choices of the state's last commit. The
// session must have been opened with these, or with the same choices as the state's session.
Result<std::shared_ptr<const Choices>> Session::Impl::choices_of(const engine::SavedHead& head) const {
  const std::lock_guard lock(mutex_);
  Usual usual = opened_choices_->usual();
  if (!link_said_) {
    const Result<Link> saved = parse_link(head.link);
    if (!saved.ok()) return Status(Code::kCorrupt, "the state's " + saved.status().what());
    usual.link = *saved;
  }
  for (const auto& mine : {choices_, opened_choices_})
    if (mine->usual() == usual && engine::check_state_text(head.codec, *mine).ok()) return mine;
  TITHE_TRY(engine::check_state_text(head.opened.empty() ? head.codec : head.opened, *opened_choices_));
  Result<Choices> next = engine::choices_in(head.codec, usual);
  if (!next.ok())
    return Status(next.status().code(),
                  fmt::format("the state's choices, which were proposed: {}", next.status().what()));
  TITHE_TRY(engine::check_change(*choices_, *next));
  if (member_.tagging.checksum == Cover::kHeader) TITHE_TRY(engine::check_plain(*next));
  return std::make_shared<const Choices>(std::move(*next));
}

}  // namespace tithe
