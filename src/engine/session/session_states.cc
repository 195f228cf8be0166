// SPDX-License-Identifier: Apache-2.0
// States: how a session is saved and goes on, in its own world or in another one, and how a round is taken back.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "engine/session/session_impl.h"
#include "feedback/lost_rank_residuals.h"

namespace tithe {
namespace {

using engine::SavedHead;
using feedback::ResidualStore;
using feedback::TensorState;

constexpr int kMostRanks = 1 << 16;  // of a state that names none

std::uint64_t hash_of(std::uint64_t hash, std::string_view text) {
  hash = mix64(hash ^ text.size());
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::string quoted(std::string_view name) {
  return fmt::format("'{}'", printable(name, engine::kMostMemberBytes));
}

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
  return out;
}

// Nothing unsent: what a new rank has of another one's.
void forget_residuals(ResidualStore::Map& kept) {
  for (auto& [key, of] : kept) {
    of.loose_residual.clear();
    of.loose_velocity.clear();
  }
}

std::vector<std::pair<std::string, std::size_t>> sizes(const ResidualStore::Map& kept) {
  std::vector<std::pair<std::string, std::size_t>> out;
  for (const auto& [key, of] : kept) out.emplace_back(key, of.n);
  return out;
}

// In what two states of one round of one job differ; empty: in nothing that ranks have in common.
std::string difference(const SavedHead& a, const SavedHead& b) {
  if (a.job != b.job) return fmt::format("jobs {:016x} and {:016x}", a.job, b.job);
  if (a.round != b.round) return fmt::format("rounds {} and {}", a.round, b.round);
  if (a.world != b.world) return fmt::format("worlds of {} and {} ranks", a.world, b.world);
  if (a.members != b.members) return "names of ranks";
  if (a.codec != b.codec || a.opened != b.opened)
    return fmt::format("codecs or choices, '{}' and '{}'", a.codec, b.codec);
  if (a.schedule != b.schedule || a.told != b.told)
    return "schedules, or the evaluations and learning rates reported to them";
  if (a.link != b.link) return fmt::format("links, '{}' and '{}'", a.link, b.link);
  return "";
}

}  // namespace

Result<std::vector<std::uint8_t>> Session::Impl::saved(bool debts) {
  // A session that is over has its last commit still: steps of a round write beside it.
  if (const Status s = commit(); !s.ok() && runner_.status().ok()) return s;
  const std::lock_guard lock(mutex_);
  const std::string codec = engine::state_text(*committed_choices_);
  const std::string opened = engine::state_text(*opened_choices_);
  Result<std::vector<std::uint8_t>> bytes =
      engine::save({.rank = member_.me,
                    .world = member_.world,
                    .round = round_,
                    .job = job_,
                    .codec = codec,
                    .opened = codec == opened ? std::string() : opened,
                    .decided = advisor_ == nullptr ? std::string() : advisor_->decided(),
                    .link = link_,
                    .schedule = schedule_.text(),
                    .told = schedule_.state(),
                    .members = options_.members},
                   store_, debts);
  if (debts)
    for (const auto& e : entries_)
      if (const Status& lost = e->job->unit->feedback().lost(); !lost.ok())
        return Status(lost.code(),
                      fmt::format("the residuals were on a GPU that does not respond, so no state can "
                                  "contain them: resume from a state that was saved earlier; common_state() "
                                  "returns everything except the residuals: {}",
                                  lost.what()));
  return bytes;
}

Result<std::vector<std::uint8_t>> Session::Impl::state() { return saved(true); }
Result<std::vector<std::uint8_t>> Session::Impl::common_state() { return saved(false); }

// The checks before a session goes on from a state, whoever's it is. Returns the state's choices.
Result<std::shared_ptr<const Choices>> Session::Impl::fits(const SavedHead& head,
                                                           const ResidualStore::Map& saved) const {
  Result<std::shared_ptr<const Choices>> choices = choices_of(head);
  if (!choices.ok()) return choices;
  if (head.schedule != schedule_.text())
    return Status(
        Code::kInvalid,
        fmt::format(
            "state was saved with schedule '{0}', this session has '{1}': open it with schedule '{0}'",
            head.schedule, schedule_.text()));
  TITHE_TRY(check_allowed(**choices, saved));
  const std::lock_guard lock(mutex_);
  TITHE_TRY(check_kinds(**choices));
  return choices;
}

Status Session::Impl::go_on(const SavedHead& head, ResidualStore::Map&& saved,
                            const std::shared_ptr<const Choices>& choices) {
  release_undo();
  for (const auto& [key, from] : saved)
    if (const TensorState* kept = store_.find(key); kept != nullptr && kept->n != from.n)
      return {Code::kInvalid, fmt::format("tensor '{}' has {} values in the state, but {} in this session",
                                          key, from.n, kept->n)};
  store_.restore(std::move(saved));
  if (!link_said_) link_ = head.link;
  if (choices != choices_) take(choices, nullptr);
  committed_choices_ = choices_;
  round_ = head.round;
  job_ = head.job;
  schedule_.restore(head.told);
  if (advisor_ != nullptr) advisor_->restored(head.decided, choices_->rules());
  return {};
}

Status Session::Impl::restore(ByteView bytes) {
  SavedHead head;
  ResidualStore::Map saved;
  TITHE_TRY(engine::load(bytes, head, saved));
  if (head.world != member_.world)
    return {
        Code::kInvalid,
        fmt::format("state was saved by {0} ranks, this job has {1}: resume with {0} ranks, pass the states "
                    "of all {0} ranks to restore(), or start without the state (its residuals are then lost)",
                    head.world, member_.world)};
  const std::string name = head.name(head.rank);
  if (head.rank != member_.me || name != my_name())
    return {Code::kInvalid, fmt::format("state of rank {} ({}), this is rank {} ({}): pass each rank's own "
                                        "state to it, or the states of all ranks to every rank",
                                        head.rank, quoted(name), member_.me, quoted(my_name()))};
  const Result<std::shared_ptr<const Choices>> choices = fits(head, saved);
  if (!choices.ok()) return choices.status();
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  TITHE_TRY(go_on(head, std::move(saved), *choices));
  resumed_.clear();
  show_job(true);
  return {};
}

// States are read one by one, since each may be as large as the model, and those of lost ranks once more.
Status Session::Impl::restore(std::span<const ByteView> states, Lost lost) {
  if (member_.servers > 0)
    return {Code::kUnsupported,
            "states of another world size cannot be restored with servers: set servers=0, or resume with the "
            "same number of ranks and pass each rank its own state"};
  if (states.empty())
    return {Code::kInvalid, "restore: no state was passed; pass the states that the ranks saved"};
  SavedHead first;
  ResidualStore::Map mine;
  std::vector<std::pair<std::string, std::size_t>> tensors;
  std::map<std::string, std::size_t> given;  // names, and where their states stand
  bool own = false;
  for (std::size_t i = 0; i < states.size(); ++i) {
    SavedHead head;
    ResidualStore::Map saved;
    TITHE_TRY(engine::load(states[i], head, saved));
    if (head.world > kMostRanks) return {Code::kCorrupt, "these bytes are not a saved state of a session"};
    const std::string name = head.name(head.rank);
    if (!given.emplace(name, i).second)
      return {Code::kInvalid,
              fmt::format("restore: two states are of rank {}: pass one state of each rank", quoted(name))};
    if (i == 0) {
      first = head;
      tensors = sizes(saved);
    } else {
      std::string other = difference(head, first);
      if (other.empty() && sizes(saved) != tensors) other = "tensors or their sizes";
      if (!other.empty())
        return {Code::kMismatch, fmt::format("restore: the states of ranks {} and {} are not from the same "
                                             "round of the same job: they differ in {}",
                                             quoted(name), quoted(first.name(first.rank)), other)};
      if (first.decided.empty()) first.decided = head.decided;
    }
    const bool is_mine = name == my_name();
    if (!is_mine) forget_residuals(saved);
    if (is_mine || i == 0) mine = std::move(saved);
    own = own || is_mine;
  }

  std::set<std::string> here;
  for (Rank r = 0; r < member_.world; ++r) here.insert(name_of(r));
  std::vector<std::string> gone, unknown;
  std::size_t stay = 0;
  std::uint64_t hash = hash_of(first.round, lost == Lost::kSpread ? "spread" : "book");
  for (Rank r = 0; r < first.world; ++r) {
    const std::string name = first.name(r);
    const bool stays = here.contains(name);
    if (stays && name == my_name() && !own)
      return {
          Code::kInvalid,
          fmt::format("restore: rank {} was a member when the states were saved, but its state was not "
                      "passed, so its residual would be lost: pass its state, or give the rank another name",
                      quoted(name))};
    hash = hash_of(hash, name);
    if (stays) {
      ++stay;
    } else if (given.contains(name)) {
      gone.push_back(name);
      hash = mix64(hash ^ engine::checksum_of(states[given.at(name)]));
    } else {
      unknown.push_back(name);
    }
  }
  const Result<std::shared_ptr<const Choices>> choices = fits(first, mine);
  if (!choices.ok()) return choices.status();

  feedback::LostResiduals book;
  std::vector<std::string> lines;
  for (const std::string& name : gone) {
    SavedHead head;
    ResidualStore::Map lost_states;
    TITHE_TRY(engine::load(states[given.at(name)], head, lost_states));
    if (lost == Lost::kSpread) {
      feedback::redistribute(lost_states, member_.me, member_.world, mine, book);
    } else if (member_.me == 0) {
      feedback::discard(lost_states, book);
    }
  }
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  TITHE_TRY(go_on(first, std::move(mine), *choices));
  const bool same = gone.empty() && unknown.empty() && stay == here.size();
  resumed_ = same ? std::string() : fmt::format("{} ranks {:016x}", first.world, hash);
  show_job(true);
  ranks_lost_ += unknown.size();
  if (member_.me == 0 && !unknown.empty())
    say(fmt::format("round {}: lost together with their residuals, which are unknown: {}", round_,
                    list(unknown)));
  if (member_.me == 0 && !gone.empty())
    say(fmt::format("round {}: the residuals of lost ranks are {}: {}", round_,
                    lost == Lost::kSpread ? "spread over all" : "discarded", list(gone)));
  for (const auto& [key, gave] : book) {
    book_[key] += gave;
    say(fmt::format(
        "round {}: tensor '{}': {} residual values of lost ranks are discarded, their sum is {:.6g}", round_,
        printable(key, 200), gave.values, gave.sum));
  }
  return {};
}

std::string Session::Impl::name_of(Rank rank) const {
  return options_.members.empty() ? std::to_string(rank) : options_.members[static_cast<std::size_t>(rank)];
}

// The text in which ranks show each other who they are, and whose states they go on from.
std::string Session::Impl::ranks_text() const {
  std::string out;
  if (!options_.members.empty()) {
    std::uint64_t hash = 0;
    for (const std::string& name : options_.members) hash = hash_of(hash, name);
    out = fmt::format("{}{:016x} in epoch {}", engine::kOfMembers, hash, options_.epoch);
  }
  if (!resumed_.empty()) out += std::string(engine::kResumed) + resumed_;
  return out;
}

// Peers compare the job, and the states that this rank goes on from.
void Session::Impl::show_job(bool restored) {
  runner_.be_of_job(job_ == 0 && resumed_.empty() ? 0 : hash_of(mix64(job_), resumed_), restored);
}

// ---- A round is taken back

// The round that was committed last stays: what was kept of the time before it is let go of.
void Session::Impl::release_undo() {
  if (!std::exchange(undo_.possible, false)) return;
  for (LayoutEntry* e : undo_.entries) {
    if (options_.undo && undo_.finite) e->job->unit->feedback().spend();
    for (TensorState* kept : e->kept) kept->spend();
    if (auto spent = e->job->unit->feedback().take_spent(); !spent.empty())
      runner_.run_in_background([freed = std::move(spent)] {});
  }
}

Status Session::Impl::undo() {
  const std::lock_guard one_at_a_time(commit_mutex_);
  const std::lock_guard lock(mutex_);
  if (!options_.undo)
    return {Code::kInvalid, "undo: the session does not keep earlier residuals: open it with undo"};
  if (std::ranges::any_of(entries_, [](const auto& e) { return e->open; }))
    return {Code::kInvalid,
            fmt::format("undo: round {} is open: call undo() after commit(), and before the next sync()",
                        round_)};
  if (!undo_.possible)
    return {Code::kInvalid,
            "undo: no round can be undone: no round was committed since the session was opened or restored, "
            "or since the last undo(), or a change of choices or schedule with that round already applies"};
  undo_.possible = false;
  for (LayoutEntry* e : undo_.entries) {
    if (undo_.finite) e->job->unit->feedback().undo();
    for (TensorState* kept : e->kept) kept->undo();
    e->used = e->used_before;
  }
  sum_decayed_ -= undo_.forgotten;
  values_dropped_ -= undo_.values_dropped;
  sum_dropped_ -= undo_.sum_dropped;
  last_round_dropped_ = undo_.dropped;
  committed_choices_ = undo_.choices;
  --round_;
  ++rounds_undone_;
  runner_.take_back(!undo_.finite);
  return {};
}

}  // namespace tithe
