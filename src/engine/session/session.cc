// SPDX-License-Identifier: Apache-2.0
// The rounds of a session: buckets enter, the program waits for them, and a commit ends the round.
#include <fmt/format.h>

#include <algorithm>

#include "engine/session/session_impl.h"
#include "plan/lanes.h"

namespace tithe::engine {

SessionImpl::SessionImpl(SessionSettings&& settings, ProxyTrigger proxy_trigger)
    : trace_(std::move(settings.trace)),
      options_(std::move(settings.options)),
      cores_(settings.transport->cores()),
      lanes_(options_.lanes.value_or(default_lanes(cores_.cores, cores_.ranks))),
      proposed_job_(settings.proposed_job),
      member_{
          .me = settings.transport->rank(),
          .world = settings.transport->world(),
          .hosts = settings.choices.defaults().hosts,
          .servers = options_.servers,
          .divide =
              options_.average ? static_cast<float>(settings.transport->world() - options_.servers) : 1.0F,
          .seed = options_.seed,
          .run = run_in(options_.run, options_.epoch),
          .force_reference = options_.force_reference,
          .workers = lanes_ + 1,
          .tagging = {!settings.transport->key().empty(), settings.tagging.what, settings.tagging.checksum},
          .tags = settings.transport->key().empty()
                      ? nullptr
                      : std::make_shared<Tags>(settings.transport->key(), lanes_ + 1),
          .gpus = std::make_shared<Gpus>(settings.device, lanes_ + 1),
          .strangers = strangers_may_speak(*settings.transport)},
      residuals_(member_.me),
      layouts_(member_, settings.schedule.ratios(), runner_),
      plan_(options_, settings.link_given, member_.tagging.checksum, settings.stragglers,
            std::move(settings.choices), settings.schedule),
      norms_(options_.measure),
      straggler_detector_(settings.stragglers.share, member_.world),
      all_away_(static_cast<std::size_t>(member_.world)),
      runner_(std::move(settings.transport), member_, lanes_,
              {options_.timeout, options_.patience, options_.interrupted}, settings.pacing,
              {[this](std::uint32_t number, const std::string& text) { return build(number, text); },
               [this](std::uint32_t number) { discard(number); }},
              options_.ended, std::move(proxy_trigger)) {
  if (trace_ != nullptr) runner_.recorder().keep();
  if (!plan_.automatic().empty() || !advice_option().empty()) start_advisor();
}

SessionImpl::~SessionImpl() { (void)write_trace(); }

Card SessionImpl::card() const {
  return {.world = static_cast<std::uint32_t>(member_.world),
          .run = member_.run,
          .seed = member_.seed,
          .round = rounds_.round(),
          .proposed_job = proposed_job_,
          .average = options_.average,
          .codec = plan_.card_text(ranks_text()),
          .strategy = strategy_text(plan_.choices())};
}

// Finds the layout of a bucket, or adds it.
Result<LayoutEntry*> SessionImpl::entry_of(std::span<const Tensor> bucket, RoundKind kind) {
  const std::uint64_t hash = layout_hash(bucket, kind);
  if (LayoutEntry* known = layouts_.find(bucket, kind, hash)) return known;
  TITHE_TRY(layouts_.check_new(bucket, kind, residuals_.store(), rounds_.round()));
  if (member_.servers > 0 && kind != RoundKind::kAllReduce)
    return Status(Code::kUnsupported,
                  fmt::format("{}: servers own no values: open the session with servers=0", name(kind)));
  TITHE_TRY(plan_.check_new(bucket, kind));
  LayoutEntry& entry = layouts_.add(bucket, kind, hash, plan_.choices(), card(), residuals_.store());
  for (const Tensor& t : bucket) norms_.know(t);
  plan_.add(bucket);
  return &entry;
}

// Hands over a bucket. After the checks, the states of the tensors move into the unit (a tensor may have been in
// another layout), the unit gets the bucket's addresses, and the runner starts the job.
Result<Ticket> SessionImpl::hand_over(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind,
                                      bool by_program) {
  TITHE_TRY(runner_.status());
  TITHE_TRY(check_bucket(bucket, kind, member_.world));
  std::unique_lock lock(mutex_);
  TITHE_TRY(residuals_.broken());
  if (rounds_.ending())
    return Status(Code::kInvalid, fmt::format("commit() of round {} is running on another thread: pass "
                                              "tensors before commit() is called, or after it has returned",
                                              rounds_.round()));
  TITHE_TRY(plan_.check_rules(rounds_.over()));
  const Result<LayoutEntry*> found = entry_of(bucket, kind);
  if (!found.ok()) return found.status();
  LayoutEntry& e = **found;
  TITHE_TRY(LayoutTable::check_not_open(e, rounds_.round()));
  release_undo();
  Unit& unit = e.unit();
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
  for (feedback::TensorState* kept : e.kept) kept->use(rounds_.round() + 1);
  if (plan_.schedule().active()) unit.use_ratio(plan_.schedule().ratio(rounds_.round()));
  std::uint64_t bytes = 0;
  for (const Tensor& t : bucket)
    if (!t.side) bytes += t.n * bytes_of(t.dtype);
  rounds_.hand_over(runner_.now_ns(), !layouts_.any_open(), bytes, by_program);
  TITHE_TRY(on_device(look_at(unit, bucket, e.hash)));
  TITHE_TRY(runner_.start(*e.job, bucket, static_cast<std::uint32_t>(rounds_.round()),
                          by_program ? rounds_.next_ticket() : 0));
  e.begin(rounds_.issue(), rounds_.round());
  return e.ticket;
}

Status SessionImpl::wait(Ticket ticket) {
  Job* job = nullptr;
  bool by_program = false;
  {
    const std::lock_guard lock(mutex_);
    by_program = rounds_.by_program();  // of the open round, to which an open entry belongs
    if (LayoutEntry* e = layouts_.find(ticket); e != nullptr && !e->waited) {
      e->waited = true;
      if (!e->open) return runner_.status();  // commit() has waited for it
      job = e->job;
    }
  }
  if (job == nullptr)
    return {Code::kInvalid,
            fmt::format("ticket {} was never issued, or wait() has returned it already", ticket)};
  const std::int64_t began = runner_.now_ns();
  TITHE_TRY(runner_.wait(*job, by_program));
  if (by_program) {
    const std::lock_guard lock(mutex_);
    rounds_.add_blocked(runner_.now_ns() - began);
  }
  return job->unit->trouble();
}

// If the ticket's layout has begun a later round or was removed, its round was committed.
Result<bool> SessionImpl::poll(Ticket ticket) {
  Job* job = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!rounds_.issued(ticket))
      return Status(Code::kInvalid, fmt::format("ticket {} was never issued", ticket));
    if (const LayoutEntry* e = layouts_.find(ticket); e != nullptr && e->open) job = e->job;
  }
  if (job != nullptr) {
    const Result<bool> done = runner_.poll(*job);
    if (done.ok() && *done) TITHE_TRY(job->unit->trouble());
    return done;
  }
  TITHE_TRY(runner_.status());
  return true;
}

Status SessionImpl::commit() {
  const std::lock_guard one_at_a_time(commit_mutex_);
  bool ended = false;
  const Status s = commit_round(ended);
  bool by_program = false;
  {
    const std::lock_guard lock(mutex_);
    rounds_.set_ending(false);
    by_program = rounds_.by_program();
  }
  if (ended && advisor_ != nullptr) advise();
  if (ended && by_program) program_returned();
  return s;
}

// Commits the open round. All ranks agree first; then this rank must commit, even if the session fails meanwhile.
// Undo data of the last round are replaced. If new choices apply from the next round on, the session switches last.
Status SessionImpl::commit_round(bool& ended) {
  const std::int64_t began = runner_.now_ns();
  bool open = false, by_program = false;
  std::uint64_t away_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    open = layouts_.any_open();
    by_program = rounds_.by_program();
    rounds_.set_ending(open);
    away_ns = rounds_.away_ns();
  }
  TITHE_TRY(runner_.status());
  if (!open) return {};
  const Result<bool> agreed = runner_.agree(away_ns, by_program);
  if (!agreed.ok()) return agreed.status();
  const bool finite = *agreed;
  const std::lock_guard lock(mutex_);
  release_undo();
  const LayoutTable::Committed units = layouts_.commit(finite, !options_.undo);
  residuals_.commit(units.decayed);
  rounds_.commit(finite);
  if (!options_.undo) release_undo();
  const bool changes = runner_.end_round(!finite, began);
  ended = true;
  if (rounds_.job() == 0) {
    rounds_.set_job(runner_.job());
    show_job(false);
  }
  look_for_late();
  plan_.commit();
  if (!finite)
    norms_.drop();
  else if (norms_.due(rounds_.round()))
    norms_.commit(rounds_.round(),
                  [&](std::string_view key) { return residuals_.store().find(key)->residual(); });
  rounds_.add_times(runner_.now_ns());
  layouts_.forget_gone();
  for (std::string& message : residuals_.drop_excessive(rounds_.round(), finite, units.excessive))
    log(std::move(message));
  if (changes) {
    release_undo();
    BuiltPlan built = plan_.take_built();
    use(std::move(built.choices), std::move(built.units));
  }
  return finite ? units.trouble : residuals_.check_finite(plan_.choices());
}

// The last committed round can no longer be undone: residuals of the time before it are freed.
void SessionImpl::release_undo() {
  if (rounds_.keep_last()) layouts_.spend(options_.undo && !rounds_.last_dropped());
}

Status SessionImpl::undo() {
  const std::lock_guard one_at_a_time(commit_mutex_);
  const std::lock_guard lock(mutex_);
  if (!options_.undo)
    return {Code::kInvalid, "undo: the session does not keep earlier residuals: open it with undo"};
  if (layouts_.any_open())
    return {Code::kInvalid,
            fmt::format("undo: round {} is open: call undo() after commit(), and before the next sync()",
                        rounds_.round())};
  if (!rounds_.can_undo())
    return {Code::kInvalid,
            "undo: no round can be undone: no round was committed since the session was opened or restored, "
            "or since the last undo(), or a change of choices or schedule with that round already applies"};
  const bool dropped = rounds_.last_dropped();
  layouts_.undo(!dropped);
  residuals_.undo();
  rounds_.undo();
  plan_.undo();
  runner_.take_back(dropped);
  return {};
}

void SessionImpl::add_unsent(std::string_view key, std::span<const float> gradient, std::uint64_t round) {
  const std::lock_guard lock(mutex_);
  release_undo();
  if (std::string dropped = residuals_.add_unsent(key, gradient, round); !dropped.empty())
    log(std::move(dropped));
}

Ticket SessionImpl::issue_ticket() {
  const std::lock_guard lock(mutex_);
  return rounds_.issue();
}

void SessionImpl::program_returned() {
  const std::lock_guard lock(mutex_);
  rounds_.leave(runner_.now_ns());
}

std::uint64_t SessionImpl::round() const {
  const std::lock_guard lock(mutex_);
  return rounds_.round();
}

bool SessionImpl::last_round_dropped() const {
  const std::lock_guard lock(mutex_);
  return rounds_.last_dropped();
}

Status SessionImpl::evaluated(double loss) {
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  release_undo();
  plan_.schedule().evaluated(loss);
  return {};
}

Status SessionImpl::learning_rate(double rate) {
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  release_undo();
  return plan_.schedule().learning_rate(rate);
}

double SessionImpl::ratio() const {
  const std::lock_guard lock(mutex_);
  return plan_.schedule().active() ? plan_.schedule().ratio(rounds_.round()) : 0;
}

Status SessionImpl::residual(std::string_view key, std::span<float> out) const {
  const std::lock_guard lock(mutex_);
  return residuals_.read(key, out);
}

std::string SessionImpl::needs(std::span<const Tensor> bucket, RoundKind kind) const {
  const std::lock_guard lock(mutex_);
  return layouts_.needs(bucket, kind, plan_.choices());
}

// Other ranks cannot continue without this rank, so the session ends now.
Status SessionImpl::no_memory(const std::string& what) {
  runner_.cancel();
  return {
      Code::kIo,
      fmt::format("rank {} has no memory for {} (docs/reference/resources.md, 'Memory')", member_.me, what),
      member_.me};
}

}  // namespace tithe::engine
