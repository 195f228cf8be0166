// SPDX-License-Identifier: Apache-2.0
// States: how a session is saved and continues, in its own world or in another one.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/rng.h"
#include "base/text.h"
#include "engine/session/session_impl.h"
#include "feedback/lost_rank_residuals.h"

namespace tithe::engine {
namespace {

using feedback::ResidualStore;

constexpr int kMaxRanks = 1 << 16;  // of a state that names none

std::uint64_t hash_of(std::uint64_t hash, std::string_view text) {
  hash = mix64(hash ^ text.size());
  for (const char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::string quoted(std::string_view name) { return fmt::format("'{}'", printable(name, kMaxMemberBytes)); }

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + quoted(name);
  return out;
}

// A new rank begins without the residuals of the rank whose state it reads.
void forget_residuals(ResidualStore::Map& kept) {
  for (auto& [key, of] : kept) {
    of.loose_residual.clear();
    of.loose_velocity.clear();
  }
}

// The first difference between two states that should be of one round of one job; empty: there is none.
std::string difference(const SavedHead& a, const SavedHead& b) {
  if (a.job != b.job) return fmt::format("jobs {:016x} and {:016x}", a.job, b.job);
  if (a.round != b.round) return fmt::format("rounds {} and {}", a.round, b.round);
  if (a.world != b.world) return fmt::format("worlds of {} and {} ranks", a.world, b.world);
  if (a.members != b.members) return "names of ranks";
  if (a.codec != b.codec || a.opened != b.opened)
    return fmt::format("codecs or choices, '{}' and '{}'", a.codec, b.codec);
  if (a.schedule != b.schedule || a.schedule_state != b.schedule_state)
    return "schedules, or the evaluations and learning rates reported to them";
  if (a.link != b.link) return fmt::format("links, '{}' and '{}'", a.link, b.link);
  return "";
}

}  // namespace

Result<std::vector<std::uint8_t>> SessionImpl::state(bool residuals) {
  // After the session's end, the state of its last commit is still valid: steps of a round write beside it.
  if (const Status s = commit(); !s.ok() && runner_.status().ok()) return s;
  const std::lock_guard lock(mutex_);
  SavedHead head{.rank = member_.me,
                 .world = member_.world,
                 .round = rounds_.round(),
                 .job = rounds_.job(),
                 .decided = advisor_ == nullptr ? std::string() : advisor_->decided(),
                 .members = options_.members};
  plan_.save(head);
  Result<std::vector<std::uint8_t>> bytes = save(head, residuals_.store(), residuals);
  if (residuals)
    for (const auto& e : layouts_.entries())
      if (const Status& lost = e->unit().feedback().lost(); !lost.ok())
        return Status(lost.code(),
                      fmt::format("the residuals were on a GPU that does not respond, so no state can "
                                  "contain them: resume from a state that was saved earlier; common_state() "
                                  "returns everything except the residuals: {}",
                                  lost.what()));
  return bytes;
}

// The checks before a session continues from a state of any rank. Returns the state's choices.
Result<std::shared_ptr<const Choices>> SessionImpl::check_state(const SavedHead& head,
                                                                const ResidualStore::Map& saved) const {
  const std::lock_guard lock(mutex_);
  Result<std::shared_ptr<const Choices>> choices = plan_.check_saved(head, saved);
  if (choices.ok()) TITHE_TRY(layouts_.check_kinds(**choices));
  return choices;
}

Status SessionImpl::resume(const SavedHead& head, ResidualStore::Map&& saved,
                           const std::shared_ptr<const Choices>& choices) {
  release_undo();
  TITHE_TRY(residuals_.restore(std::move(saved)));
  if (choices != plan_.current()) use(choices, {});
  plan_.restore(head);
  rounds_.restore(head.job, head.round);
  if (advisor_ != nullptr) advisor_->restored(head.decided, plan_.choices().rules());
  return {};
}

Status SessionImpl::restore(ByteView bytes) {
  SavedHead head;
  ResidualStore::Map saved;
  TITHE_TRY(load(bytes, head, saved));
  if (head.world != member_.world)
    return {
        Code::kInvalid,
        fmt::format("state was saved by {0} ranks, this job has {1}: resume with {0} ranks, pass the states "
                    "of all {0} ranks to restore(), or start without the state (its residuals are then lost)",
                    head.world, member_.world)};
  const std::string name = head.name(head.rank);
  if (head.rank != member_.me || name != name_of(member_.me))
    return {Code::kInvalid, fmt::format("state of rank {} ({}), this is rank {} ({}): pass each rank's own "
                                        "state to it, or the states of all ranks to every rank",
                                        head.rank, quoted(name), member_.me, quoted(name_of(member_.me)))};
  const Result<std::shared_ptr<const Choices>> choices = check_state(head, saved);
  if (!choices.ok()) return choices.status();
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  TITHE_TRY(resume(head, std::move(saved), *choices));
  resumed_.clear();
  show_job(true);
  return {};
}

// States are read one by one, since each may be as large as the model, and those of lost ranks once more.
Status SessionImpl::restore(std::span<const ByteView> states, Lost lost) {
  if (member_.servers > 0)
    return {Code::kUnsupported,
            "states of another world size cannot be restored with servers: set servers=0, or resume with the "
            "same number of ranks and pass each rank its own state"};
  if (states.empty())
    return {Code::kInvalid, "restore: no state was passed; pass the states that the ranks saved"};
  SavedHead first;
  ResidualStore::Map mine;
  TensorSizes tensors;
  std::map<std::string, std::size_t> given;  // index in `states`, by name
  bool own = false;
  for (std::size_t i = 0; i < states.size(); ++i) {
    SavedHead head;
    ResidualStore::Map saved;
    TITHE_TRY(load(states[i], head, saved));
    if (head.world > kMaxRanks) return {Code::kCorrupt, "these bytes are not a saved state of a session"};
    const std::string name = head.name(head.rank);
    if (!given.emplace(name, i).second)
      return {Code::kInvalid,
              fmt::format("restore: two states are of rank {}: pass one state of each rank", quoted(name))};
    if (i == 0) {
      first = head;
      tensors = sizes_of(saved);
    } else {
      std::string other = difference(head, first);
      if (other.empty() && sizes_of(saved) != tensors) other = "tensors or their sizes";
      if (!other.empty())
        return {Code::kMismatch, fmt::format("restore: the states of ranks {} and {} are not from the same "
                                             "round of the same job: they differ in {}",
                                             quoted(name), quoted(first.name(first.rank)), other)};
      if (first.decided.empty()) first.decided = head.decided;
    }
    const bool is_mine = name == name_of(member_.me);
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
    if (stays && name == name_of(member_.me) && !own)
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
      hash = mix64(hash ^ checksum_of(states[given.at(name)]));
    } else {
      unknown.push_back(name);
    }
  }
  const Result<std::shared_ptr<const Choices>> choices = check_state(first, mine);
  if (!choices.ok()) return choices.status();

  feedback::LostResiduals book;
  for (const std::string& name : gone) {
    SavedHead head;
    ResidualStore::Map lost_states;
    TITHE_TRY(load(states[given.at(name)], head, lost_states));
    if (lost == Lost::kSpread) {
      feedback::redistribute(lost_states, member_.me, member_.world, mine, book);
    } else if (member_.me == 0) {
      feedback::discard(lost_states, book);
    }
  }
  TITHE_TRY(commit());
  const std::lock_guard lock(mutex_);
  TITHE_TRY(resume(first, std::move(mine), *choices));
  const bool same = gone.empty() && unknown.empty() && stay == here.size();
  resumed_ = same ? std::string() : fmt::format("{} ranks {:016x}", first.world, hash);
  show_job(true);
  residuals_.lose_unknown(unknown.size());
  if (member_.me == 0 && !unknown.empty())
    log(fmt::format("round {}: lost together with their residuals, which are unknown: {}", rounds_.round(),
                    list(unknown)));
  if (member_.me == 0 && !gone.empty())
    log(fmt::format("round {}: the residuals of lost ranks are {}: {}", rounds_.round(),
                    lost == Lost::kSpread ? "spread over all" : "discarded", list(gone)));
  residuals_.discard_lost(book);
  for (const auto& [key, gave] : book) {
    log(fmt::format(
        "round {}: tensor '{}': {} residual values of lost ranks are discarded, their sum is {:.6g}",
        rounds_.round(), printable(key, 200), gave.values, gave.sum));
  }
  return {};
}

// Cards contain this text: the members, and the states from which they resumed.
std::string SessionImpl::ranks_text() const {
  std::string out;
  if (!options_.members.empty()) {
    std::uint64_t hash = 0;
    for (const std::string& name : options_.members) hash = hash_of(hash, name);
    out = fmt::format("{}{:016x} in epoch {}", kOfMembers, hash, options_.epoch);
  }
  if (!resumed_.empty()) out += std::string(kResumed) + resumed_;
  return out;
}

// Peers compare the job, and the states from which this rank resumed.
void SessionImpl::show_job(bool restored) {
  runner_.be_of_job(rounds_.job() == 0 && resumed_.empty() ? 0 : hash_of(mix64(rounds_.job()), resumed_),
                    restored);
}

// ---- reform()

Status SessionImpl::may_reform(Rank rank, int world, const std::vector<std::string>& members,
                               std::uint64_t epoch) const {
  if (world < 1 || rank < 0 || rank >= world)
    return {Code::kInvalid, fmt::format("reform: rank {} must be below the world size of {}", rank, world)};
  if (members.empty())
    return {
        Code::kInvalid,
        "reform: members must name the ranks, because ranks of the previous world are identified by name"};
  TITHE_TRY(check_members(members, world));
  const std::string& name = members[static_cast<std::size_t>(rank)];
  if (name != name_of(member_.me))
    return {Code::kInvalid, fmt::format("reform: this rank is {}, and member {} of the new world is {}",
                                        quoted(name_of(member_.me)), rank, quoted(name))};
  if (epoch <= options_.epoch)
    return {Code::kInvalid, fmt::format("reform: epoch={} must be greater than this session's epoch {}",
                                        epoch, options_.epoch)};
  if (member_.servers >= world)
    return {Code::kInvalid,
            fmt::format("reform: servers={} in a world of {} ranks: at least one rank must not be a server",
                        member_.servers, world)};
  const Result<Hosts> hosts = options_.hosts.empty() ? Hosts{} : Hosts::parse(options_.hosts, world);
  if (!hosts.ok()) return hosts.status();
  if (const auto choices = choices_of(options_, world, *hosts); !choices.ok()) return choices.status();
  return {};
}

SessionOptions SessionImpl::options_in(std::vector<std::string> members, std::uint64_t epoch) const {
  SessionOptions next = options_;
  if (!plan_.link_given()) next.link.clear();
  next.members = std::move(members);
  next.epoch = epoch;
  return next;
}

// The sums and messages belong to the session and not to its world.
void SessionImpl::follow(SessionImpl& old, const SessionStats& stats) {
  const std::scoped_lock lock(old.mutex_, mutex_);
  before_ = stats;
  residuals_.discard_lost(old.residuals_.lost());
  messages_.insert(messages_.begin(), old.messages_.begin(), old.messages_.end());
}

}  // namespace tithe::engine
