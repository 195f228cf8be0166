// SPDX-License-Identifier: Apache-2.0
#include "tithe/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.h"
#include "base/text.h"
#include "engine/session/session_impl.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/machine.h"

namespace tithe {
namespace {

using engine::Job;
using engine::Unit;
using feedback::TensorState;

constexpr std::uint64_t kRoundsToForget = 16;

}  // namespace

// Checks a bucket with a new layout. A key keeps its number of values and its kind of round, because its residual
// belongs to both.
Status Session::Impl::check_new(std::span<const Tensor> bucket, RoundKind kind) const {
  TITHE_TRY(engine::check_keys(bucket));
  for (const Tensor& t : bucket) {
    const TensorState* kept = store_.find(t.key);
    if (kept != nullptr && kept->n != t.n)
      return {Code::kInvalid,
              fmt::format("tensor '{}' has {} values, but had {} before", t.key, t.n, kept->n)};
    // The layout must stay unknown.
    if (kept != nullptr && kept->used == round_ + 1) return in_open_round(t.key);
  }
  for (const auto& e : entries_) {
    const RoundKind before = e->job->unit->plan().kind;
    for (const engine::TensorLayout& t : e->job->unit->tensors())
      if (before != kind && std::ranges::find(bucket, t.key, &Tensor::key) != bucket.end())
        return {
            Code::kInvalid,
            fmt::format("tensor '{}' is in a bucket of {}, and was in a bucket of {} before: the residual of "
                        "a key belongs to one kind of round, so give the other tensor another key",
                        t.key, name(kind), name(before))};
  }
  if (kind == RoundKind::kAllReduce) return {};
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kUnsupported, fmt::format("{}: {}", name(kind), why));
  };
  if (member_.servers > 0) return refuse("servers own no values: open the session with servers=0");
  if (proxy_ != nullptr)
    return refuse(
        "a straggler proxy has no values to send: open the session with stragglers= without the setting "
        "without=");
  if (!automatic_.empty())
    return refuse(
        fmt::format("codec {} plans only all-reduces: open the session with another codec", automatic_));
  return check_kind(engine::plan_of(bucket, *choices_, kind));
}

// Finds the layout of a bucket, or adds it. `kept` holds the state of each tensor in the unit's order.
Result<Session::Impl::LayoutEntry*> Session::Impl::entry_of(std::span<const Tensor> bucket, RoundKind kind) {
  const std::uint64_t hash = engine::layout_hash(bucket, kind);
  for (const auto& e : entries_)
    if (e->hash == hash && e->job->unit->plan().kind == kind &&
        engine::same_layout(e->job->unit->tensors(), bucket))
      return e.get();
  TITHE_TRY(check_new(bucket, kind));
  auto entry = std::make_unique<LayoutEntry>();
  entry->hash = hash;
  entry->job = &add(unit_of(bucket, kind, *choices_), hash);
  for (const engine::TensorLayout& t : entry->job->unit->tensors()) {
    entry->kept.push_back(&store_.of(t.key));
    entry->kept.back()->n = t.n;
  }
  for (const Tensor& t : bucket) norms_.know(t);
  rules_used_.add(*choices_, bucket);
  entries_.push_back(std::move(entry));
  open_.reserve(entries_.size());
  return entries_.back().get();
}

std::unique_ptr<Unit> Session::Impl::unit_of(std::span<const Tensor> bucket, RoundKind kind,
                                             const Choices& choices,
                                             std::span<const feedback::StateKinds> incoming) const {
  Plan plan = engine::plan_of(bucket, choices, kind);
  std::vector<engine::TensorLayout> layout = engine::lay_out(bucket, plan.order);
  std::vector<feedback::StateKinds> in_order;
  for (std::size_t k = 0; k < incoming.size(); ++k) in_order.push_back(incoming[plan.order[k]]);
  return std::make_unique<Unit>(member_, std::move(layout), std::move(plan), schedule_.ratios(), in_order);
}

// Adds a layout under the current choices.
Job& Session::Impl::add(std::unique_ptr<Unit> unit, std::uint64_t layout) {
  unit->use_channels(next_part_);
  next_part_ += static_cast<std::uint32_t>(unit->plan().parts.size());
  engine::Card card{
      .world = static_cast<std::uint32_t>(member_.world),
      .run = member_.run,
      .seed = member_.seed,
      .tensors = unit->tensors().size(),
      .values = unit->values(),
      .layout = layout,
      .plan = unit->plan_hash(),
      .round = round_,
      .proposed_job = proposed_job_,
      .average = options_.average,
      .codec = engine::card_text(*choices_, schedule_, automatic_, member_.tagging.checksum, ranks_text()),
      .strategy = engine::strategy_text(*choices_)};
  return runner_.add(std::move(unit), std::move(card));
}

// A round's results are final at its commit, so the next one does not begin by itself.
Status Session::Impl::in_open_round(std::string_view key) const {
  return {Code::kInvalid,
          fmt::format("tensor '{}' is part of round {} already: call commit() first, which ends that round",
                      key, round_)};
}

Status Session::Impl::meets_open_round(const LayoutEntry& e) const {
  for (std::size_t i = 0; i < e.kept.size(); ++i)
    if (e.kept[i]->used == round_ + 1) return in_open_round(e.job->unit->tensors()[i].key);
  if (e.open)
    return {Code::kInvalid, fmt::format("this bucket is part of round {} already: commit() first", round_)};
  return {};
}

// Hands over a bucket. After the checks, the states of the tensors move into the unit (a tensor may have been in
// another layout), the unit gets the bucket's addresses, and the runner starts the job.
Result<Ticket> Session::Impl::sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind,
                                   RoundOwner owner) {
  TITHE_TRY(runner_.status());
  TITHE_TRY(engine::check_bucket(bucket, kind, member_.world));
  std::unique_lock lock(mutex_);
  TITHE_TRY(broken_);
  if (ending_)
    return Status(Code::kInvalid, fmt::format("commit() of round {} is running on another thread: pass "
                                              "tensors before commit() is called, or after it has returned",
                                              round_));
  if (round_over_ && !met_all_) TITHE_TRY(rules_used_.check(*choices_));
  met_all_ = round_over_;
  Result<LayoutEntry*> found = entry_of(bucket, kind);
  if (!found.ok()) return found.status();
  LayoutEntry& e = **found;
  TITHE_TRY(meets_open_round(e));
  release_undo();
  Unit& unit = *e.job->unit;
  for (std::size_t i = 0; i < e.kept.size(); ++i)
    e.kept[i]->move_to(unit.feedback(), unit.tensors()[i].slice());
  // A device failure here ends the session, as on a lane: other ranks have this bucket in their round.
  const auto on_device = [&](Status s) {
    if (s.code() != Code::kIo) return s;
    lock.unlock();
    runner_.give_up(s);
    return s;
  };
  TITHE_TRY(on_device(unit.place(bucket, origin)));
  for (TensorState* kept : e.kept) kept->use(round_ + 1);
  if (schedule_.active()) e.job->unit->use_ratio(schedule_.ratio(round_));
  const bool first = std::ranges::none_of(entries_, [](const auto& other) { return other->open; });
  last_handed_ns_ = runner_.now_ns();
  if (first) first_handed_ns_ = last_handed_ns_;
  away_ns_ =
      left_ns_ == 0
          ? 0
          : static_cast<std::uint64_t>(std::max<std::int64_t>(0, last_handed_ns_ - left_ns_ - blocked_ns_));
  for (const Tensor& t : bucket)
    if (!t.side) gradient_bytes_ += t.n * bytes_of(t.dtype);
  TITHE_TRY(on_device(look_at(unit, bucket, e.hash)));
  TITHE_TRY(runner_.start(*e.job, bucket, static_cast<std::uint32_t>(round_),
                          owner == RoundOwner::kCaller ? last_ticket_ + 1 : 0));
  e.ticket = ++last_ticket_;
  e.used_before = std::exchange(e.used, round_ + 1);
  e.waited = false;
  e.open = true;
  return e.ticket;
}

Status Session::Impl::wait(Ticket ticket, RoundOwner owner) {
  Job* job = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& e : entries_)
      if (e->ticket == ticket && !e->waited) {
        e->waited = true;
        if (!e->open) return runner_.status();  // commit() has waited for it
        job = e->job;
      }
  }
  if (job == nullptr)
    return {Code::kInvalid,
            fmt::format("ticket {} was never issued, or wait() has returned it already", ticket)};
  const std::int64_t began = runner_.now_ns();
  TITHE_TRY(runner_.wait(*job));
  if (owner == RoundOwner::kCaller) {
    const std::lock_guard lock(mutex_);
    blocked_ns_ += runner_.now_ns() - began;
  }
  return job->unit->trouble();
}

// If the ticket's layout has begun a later round or was removed, its round was committed.
Result<bool> Session::Impl::poll(Ticket ticket) {
  Job* job = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ticket == 0 || ticket > last_ticket_)
      return Status(Code::kInvalid, fmt::format("ticket {} was never issued", ticket));
    for (const auto& e : entries_)
      if (e->ticket == ticket && e->open) job = e->job;
  }
  if (job != nullptr) {
    const Result<bool> done = runner_.poll(*job);
    if (done.ok() && *done) TITHE_TRY(job->unit->trouble());
    return done;
  }
  TITHE_TRY(runner_.status());
  return true;
}

Status Session::Impl::commit(RoundOwner owner) {
  const std::lock_guard one_at_a_time(commit_mutex_);
  bool ended = false;
  const Status s = commit_round(ended);
  {
    const std::lock_guard lock(mutex_);
    ending_ = false;
  }
  if (ended && advisor_ != nullptr) advise();
  if (ended && owner == RoundOwner::kCaller) caller_returned();
  return s;
}

// Commits the open round. All ranks agree first; then this rank must commit, even if the session fails meanwhile.
// Undo data of the last round are replaced. If new choices apply from the next round on, the session switches last.
Status Session::Impl::commit_round(bool& ended) {
  const std::int64_t began = runner_.now_ns();
  {
    const std::lock_guard lock(mutex_);
    open_.clear();
    for (const auto& e : entries_)
      if (e->open) open_.push_back(e.get());
    ending_ = !open_.empty();
  }
  TITHE_TRY(runner_.status());
  if (open_.empty()) return {};
  std::uint64_t away_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    away_ns = away_ns_;
  }
  const Result<bool> agreed = runner_.agree(away_ns);
  if (!agreed.ok()) return agreed.status();
  const bool finite = *agreed;
  const std::lock_guard lock(mutex_);
  const bool excessive =
      std::any_of(open_.begin(), open_.end(), [](const LayoutEntry* e) { return e->job->unit->excessive(); });
  release_undo();
  std::vector<LayoutEntry*> entries = std::move(undo_.entries);  // reuses its memory
  entries.assign(open_.begin(), open_.end());
  undo_ = {.possible = true,
           .finite = finite,
           .dropped = last_round_dropped_,
           .choices = committed_choices_,
           .entries = std::move(entries)};
  Status trouble;
  for (LayoutEntry* e : open_) {
    undo_.forgotten += e->job->unit->commit(finite, !options_.undo);
    for (TensorState* kept : e->kept) kept->commit();
    e->open = false;
    if (trouble.ok()) trouble = e->job->unit->trouble();
  }
  sum_decayed_ += undo_.forgotten;
  if (!options_.undo) release_undo();
  last_round_dropped_ = !finite;
  round_over_ = true;
  const bool changes = runner_.end_round(!finite, began);
  ++round_;
  ++committed_;
  ended = true;
  if (job_ == 0) {
    job_ = runner_.job();
    show_job(false);
  }
  look_for_late();
  committed_choices_ = choices_;
  if (!finite)
    norms_.drop();
  else if (norms_.due(round_))
    norms_.commit(round_, [&](std::string_view key) { return store_.find(key)->residual(); });
  const std::int64_t now = runner_.now_ns();
  exchange_ns_ += static_cast<std::uint64_t>(now - first_handed_ns_);
  exposed_ns_ += static_cast<std::uint64_t>(now - last_handed_ns_);
  forget_gone();
  drop_excessive(finite, excessive);
  if (changes) {
    release_undo();
    switch_over();
  }
  return finite ? trouble : check_residuals();
}

// Removes a layout if other layouts have synchronised all its tensors in the kRoundsToForget rounds after its last
// one. Frameworks regroup buckets and do not return to the old ones. All ranks synchronise the same tensors in the
// same rounds, so all of them remove the layout after the same round. If it returns, it is new on all ranks.
void Session::Impl::forget_gone() {
  std::erase_if(entries_, [&](const std::unique_ptr<LayoutEntry>& e) {
    const bool gone =
        !e->kept.empty() && std::all_of(e->kept.begin(), e->kept.end(), [&](const TensorState* kept) {
          return kept->used >= e->used + kRoundsToForget;
        });
    if (gone) (void)runner_.forget(*e->job);
    return gone;
  });
}

Status Session::Impl::evaluated(double loss) {
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  release_undo();
  schedule_.evaluated(loss);
  return {};
}

Status Session::Impl::learning_rate(double rate) {
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  release_undo();
  return schedule_.learning_rate(rate);
}

double Session::Impl::ratio() const {
  const std::lock_guard lock(mutex_);
  return schedule_.active() ? schedule_.ratio(round_) : 0;
}

Status Session::Impl::residual(std::string_view key, std::span<float> out) const {
  const std::lock_guard lock(mutex_);
  const TensorState* kept = store_.find(key);
  if (kept == nullptr) return {Code::kInvalid, fmt::format("no tensor '{}' in this session", key)};
  if (kept->n != out.size())
    return {Code::kInvalid, fmt::format("tensor '{}' has {} values, got {}", key, kept->n, out.size())};
  const std::span<const float> residual = kept->residual();
  TITHE_TRY(kept->lost());
  if (residual.empty())
    std::fill(out.begin(), out.end(), 0.0F);
  else
    std::copy(residual.begin(), residual.end(), out.begin());
  return {};
}

Status Session::Impl::write_trace() {
  const std::lock_guard lock(trace_mutex_);
  return trace_ == nullptr ? Status{} : trace_->write(runner_.recorder());
}

}  // namespace tithe
