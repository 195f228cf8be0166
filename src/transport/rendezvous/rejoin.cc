// SPDX-License-Identifier: Apache-2.0
// Ranks agree on the members of the next epoch through a Board, which keeps the first value of each key.
//
// Keys, each with the epoch as its prefix: `come.NAME` is written by a member of the previous epoch, with the names of
// the members that it lost. `new.K` holds the name of the K-th new rank. `members` holds the decision: the number of
// members that stay, then one name per line, staying members first. `address.RANK` is used by all_gather. Since only
// the first `members` counts, all ranks read the same decision.
#include "tithe/rejoin.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <thread>

#include "base/text.h"
#include "transport/rendezvous/rendezvous.h"

namespace tithe {
namespace {

using Clock = std::chrono::steady_clock;
using Text = Board::Text;
using Names = std::vector<std::string>;

constexpr std::chrono::milliseconds kPollInterval{5};
// A member of a later epoch writes its address at once; if it does not within this time, it was lost.
constexpr std::chrono::milliseconds kGatherTimeout{5'000};
constexpr std::size_t kMaxNameBytes = 200;
constexpr std::size_t kMaxNewRanks = 1 << 16;

std::string key_of(std::uint64_t epoch, std::string_view what) { return fmt::format("{}.{}", epoch, what); }
Text bytes_of(std::string_view s) { return {s.begin(), s.end()}; }
std::string text_of(const Text& b) { return {b.begin(), b.end()}; }

std::string joined(const Names& names) { return fmt::format("{}", fmt::join(names, "\n")); }

Clock::time_point now(const RejoinOptions& r) { return r.now ? r.now() : Clock::now(); }

void pause(const RejoinOptions& r) {
  if (r.sleep)
    r.sleep(kPollInterval);
  else
    std::this_thread::sleep_for(kPollInterval);
}

Names lines_of(const std::string& text) {
  Names out;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// The text as a number; empty if any part of it is no number.
std::optional<std::size_t> number_in(const std::string& text) {
  std::size_t n = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, n);
  return error == std::errc{} && at == end ? std::optional(n) : std::nullopt;
}

std::string shown(const Names& names) {
  std::string out;
  for (const std::string& n : names) out += (out.empty() ? "'" : ", '") + printable(n, kMaxNameBytes) + "'";
  return out;
}

bool contains(const Names& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// More than half of the previous members, or exactly half of them with the first one.
bool is_quorum(const Names& registered, const Names& before) {
  if (2 * registered.size() != before.size()) return 2 * registered.size() > before.size();
  return contains(registered, before.front());
}

Status check(const RejoinOptions& r) {
  const auto wrong = [](const std::string& n) {
    return n.empty() || n.size() > kMaxNameBytes || n.find('\n') != std::string::npos;
  };
  Names all = r.before;
  if (r.before.empty() || !contains(r.before, r.me)) all.push_back(r.me);
  if (!r.before.empty() && !contains(r.before, r.me))
    return {
        Code::kInvalid,
        fmt::format("rejoin: {} is not among the previous members: {}; a new rank must pass an empty list",
                    shown({r.me}), shown(r.before))};
  if (std::ranges::any_of(all, wrong))
    return {Code::kInvalid, "rejoin: a name must have 1 to 200 bytes and no line break"};
  if (std::set<std::string>(all.begin(), all.end()).size() != all.size())
    return {Code::kInvalid, fmt::format("rejoin: two members have the same name: {}", shown(all))};
  if (!r.board.put_first || !r.board.get) return {Code::kInvalid, "rejoin: a board is needed"};
  if (r.min_world < 1 || r.max_world < r.min_world)
    return {Code::kInvalid,
            fmt::format("rejoin: min_world={} must be at least 1, and max_world={} at least min_world",
                        r.min_world, r.max_world)};
  return {};
}

// Two ranks that decide at once may see different members. The board keeps one decision, which holds for both.
class RejoinProtocol {
 public:
  explicit RejoinProtocol(const RejoinOptions& r) : r_(r), deadline_(now(r) + r.timeout), epoch_(r.epoch) {}

  Result<RejoinResult> run() {
    TITHE_TRY(r_.before.empty() ? find_epoch() : register_self());
    for (;; pause(r_)) {
      if (r_.interrupted && r_.interrupted()) return rendezvous::cancelled_error();
      Result<std::optional<Text>> decided = r_.board.get(key_of(epoch_, "members"));
      if (!decided.ok()) return decided.status();
      if (!*decided && !r_.before.empty()) {
        TITHE_TRY(read_board());
        if (can_decide()) {
          Result<Text> stored =
              r_.board.put_first(key_of(epoch_, "members"),
                                 bytes_of(fmt::format("{}\n{}", registered_.size(), joined(members_))));
          if (!stored.ok()) return stored.status();
          *decided = std::move(*stored);
        }
      }
      if (*decided) {
        Names members = lines_of(text_of(**decided));
        const std::optional<std::size_t> stay = number_in(members.front());
        members.erase(members.begin());
        if (!stay || *stay > members.size()) return invalid_members(members);
        // A new rank may have the name of a member that stays. Their positions in the list tell them apart.
        const auto new_ones = members.begin() + static_cast<std::ptrdiff_t>(*stay);
        const auto mine = r_.before.empty() ? std::find(new_ones, members.end(), r_.me)
                                            : std::find(members.begin(), new_ones, r_.me);
        if (mine != (r_.before.empty() ? members.end() : new_ones)) return outcome(members);
        if (!r_.before.empty())
          return Status(Code::kPeerLost, fmt::format("the other ranks continued without this rank as epoch "
                                                     "{}: {}; this rank may rejoin as a new rank",
                                                     epoch_, shown(members)));
        ++epoch_;
        TITHE_TRY(register_self());
      }
      if (now(r_) >= deadline_) return timeout_error();
    }
  }

 private:
  // A new rank registers in the first epoch without a decision.
  Status find_epoch() {
    for (;; ++epoch_) {
      const Result<std::optional<Text>> decided = r_.board.get(key_of(epoch_, "members"));
      if (!decided.ok()) return decided.status();
      if (!*decided) return register_self();
    }
  }

  Status register_self() {
    if (!r_.before.empty())
      return r_.board.put_first(key_of(epoch_, "come." + r_.me), bytes_of(joined(r_.missed))).status();
    for (std::size_t k = 0; k < kMaxNewRanks; ++k) {
      const Result<Text> stored =
          r_.board.put_first(key_of(epoch_, fmt::format("new.{}", k)), bytes_of(r_.me));
      if (!stored.ok()) return stored.status();
      if (text_of(*stored) == r_.me) return {};
    }
    return {Code::kInvalid, "rejoin: too many new ranks"};
  }

  // Reads the members that have registered, and the new ranks.
  Status read_board() {
    registered_.clear();
    missed_ = lost_members(r_);  // before reading the members: a member may register and then be lost
    for (const std::string& name : r_.before) {
      const Result<std::optional<Text>> value = r_.board.get(key_of(epoch_, "come." + name));
      if (!value.ok()) return value.status();
      if (!*value) continue;
      registered_.push_back(name);
      for (std::string& lost : lines_of(text_of(**value))) missed_.insert(std::move(lost));
    }
    members_ = registered_;
    for (std::size_t k = 0; members_.size() < static_cast<std::size_t>(r_.max_world); ++k) {
      const Result<std::optional<Text>> value = r_.board.get(key_of(epoch_, fmt::format("new.{}", k)));
      if (!value.ok()) return value.status();
      if (!*value) break;
      const std::string name = text_of(**value);
      if (!contains(members_, name) && !contains(r_.before, name) && !contains(r_.taken, name))
        members_.push_back(name);
    }
    return {};
  }

  // The first registered member decides. If it dies, the next one decides, one window later.
  bool can_decide() {
    const auto moment = now(r_);
    if (!is_quorum(registered_, r_.before) || members_.size() < static_cast<std::size_t>(r_.min_world)) {
      quorum_at_.reset();
      return false;
    }
    if (!quorum_at_) quorum_at_ = moment;
    if (std::exchange(previously_missed_, missed_) != missed_) missed_at_ = moment;
    const bool all = registered_.size() == r_.before.size();
    if (!all && epoch_ == 0) return false;
    if (all && !complete_at_) complete_at_ = moment;
    const bool all_accounted = std::ranges::all_of(
        r_.before, [&](const auto& n) { return contains(registered_, n) || missed_.contains(n); });
    // If every missing member was reported lost, the one reported last still has a whole window to register.
    const auto ready = all             ? *complete_at_
                       : all_accounted ? std::max(*quorum_at_, missed_at_) + r_.window
                                       : *quorum_at_ + std::max<Clock::duration>(r_.window, r_.timeout / 2);
    const auto position = std::ranges::find(registered_, r_.me) - registered_.begin();
    return moment >= ready + position * r_.window;
  }

  Status invalid_members(const Names& members) const {
    return {Code::kCorrupt,
            fmt::format("the board's list of members of epoch {} is invalid: {}", epoch_, shown(members))};
  }

  Result<RejoinResult> outcome(const Names& members) const {
    if (std::set<std::string>(members.begin(), members.end()).size() != members.size())
      return invalid_members(members);
    const auto rank = static_cast<Rank>(std::ranges::find(members, r_.me) - members.begin());
    return RejoinResult{
        .epoch = epoch_,
        .members = members,
        .rank = rank,
        .all_gather = [r = r_, epoch = epoch_, members,
                       rank](ByteView mine) { return gather(r, epoch, members, rank, mine); },
        .joined = !r_.before.empty() && epoch_ > 0 &&
                  std::ranges::any_of(members, [&](const auto& n) { return !contains(r_.before, n); })};
  }

  // Members of the previous epoch that were lost since. Another process may reuse the name of an older epoch's member.
  static std::set<std::string> lost_members(const RejoinOptions& r) {
    std::set<std::string> out;
    if (r.lost)
      for (std::string& name : r.lost())
        if (contains(r.before, name)) out.insert(std::move(name));
    return out;
  }

  static Result<std::vector<Text>> gather(const RejoinOptions& options, std::uint64_t epoch,
                                          const Names& members, Rank rank, ByteView mine) {
    const auto key = [&](std::size_t r) { return key_of(epoch, fmt::format("address.{}", r)); };
    const Result<Text> stored = options.board.put_first(key(static_cast<std::size_t>(rank)), mine);
    if (!stored.ok()) return stored.status();
    const auto deadline =
        now(options) + (epoch == 0 ? options.timeout : std::min(options.timeout, kGatherTimeout));
    std::vector<Text> all(members.size());
    for (std::size_t r = 0; r < members.size();) {
      // The loss is read before the address, because a member that continues closes its old session. A member that was
      // reported lost and still registered was only suspected.
      const bool left = lost_members(options).contains(members[r]) && !contains(options.missed, members[r]);
      Result<std::optional<Text>> value = options.board.get(key(r));
      if (!value.ok()) return value.status();
      if (*value) {
        if ((*value)->size() > rendezvous::kMaxBlobBytes)
          return Status(Code::kCorrupt, fmt::format("the address of rank {} is too long", r),
                        static_cast<Rank>(r));
        all[r++] = std::move(**value);
        continue;
      }
      if (options.interrupted && options.interrupted()) return rendezvous::cancelled_error();
      if (left || now(options) >= deadline)
        return Status(left ? Code::kPeerLost : Code::kTimeout,
                      fmt::format("rank {} ({}) is a member of epoch {} and did not join it", r,
                                  shown({members[r]}), epoch),
                      static_cast<Rank>(r));
      pause(options);
    }
    return all;
  }

  Status timeout_error() const {
    if (r_.before.empty())
      return {Code::kTimeout, fmt::format("no group of ranks admitted {}, which waits for epoch {}; if the "
                                          "other ranks reform later, raise timeout",
                                          shown({r_.me}), epoch_)};
    Names missing;
    for (const std::string& n : r_.before)
      if (!contains(registered_, n)) missing.push_back(n);
    return {Code::kTimeout,
            fmt::format("epoch {} cannot begin: {} of the {} previous members joined, a quorum is more than "
                        "half of them, or half including {}; {} ranks are present, min_world is {}; missing: "
                        "{}; if the missing ranks are only late, raise timeout",
                        epoch_, registered_.size(), r_.before.size(), shown({r_.before.front()}),
                        members_.size(), r_.min_world, missing.empty() ? "none" : shown(missing))};
  }

  const RejoinOptions& r_;
  const Clock::time_point deadline_;
  std::uint64_t epoch_;
  Names registered_, members_;  // registered previous members; with the new ranks
  std::set<std::string> missed_;
  std::set<std::string> previously_missed_;  // as of the previous read_board()
  Clock::time_point missed_at_;              // time of the last change of previously_missed_
  std::optional<Clock::time_point> quorum_at_, complete_at_;
};

}  // namespace

Result<RejoinResult> rejoin(const RejoinOptions& options) {
  TITHE_TRY(check(options));
  return RejoinProtocol(options).run();
}

Result<bool> new_ranks_waiting(const Board& board, std::uint64_t next_epoch, const Names& members,
                               int max_world) {
  if (members.size() >= static_cast<std::size_t>(max_world)) return false;
  for (std::size_t k = 0; k < kMaxNewRanks; ++k) {
    const Result<std::optional<Text>> value = board.get(key_of(next_epoch, fmt::format("new.{}", k)));
    if (!value.ok()) return value.status();
    if (!*value) return false;
    if (!contains(members, text_of(**value))) return true;
  }
  return false;
}

}  // namespace tithe
