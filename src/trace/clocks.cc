// SPDX-License-Identifier: Apache-2.0
// Clock alignment in three steps: match sends with receives, take the tightest bound for each pair of ranks, and solve
// the difference constraints by shortest paths.
#include "trace/clocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace tithe::trace {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kMaxPieces = 4096;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

// ---- Matching sends and receives

// One end of a frame: the sender's event or the receiver's.
struct End {
  std::uint32_t round, part;
  int chunk, phase, from, to;
  std::int64_t time;
  std::size_t event;
  auto frame() const { return std::tie(round, part, chunk, phase, from, to); }
  bool operator<(const End& o) const {
    return std::tuple_cat(frame(), std::tie(time)) < std::tuple_cat(o.frame(), std::tie(o.time));
  }
};

void gather(const RankTrace& trace, std::vector<End>& sends, std::vector<End>& recvs) {
  const int me = trace.origin.rank;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& e = trace.events[i];
    if (!is_message(e)) continue;
    if (e.op == "send")
      sends.push_back({e.round, e.part, e.chunk, e.phase, me, e.peer, e.begin_ns, i});
    else
      recvs.push_back({e.round, e.part, e.chunk, e.phase, e.peer, me, e.end_ns, i});
  }
}

std::set<std::uint32_t> ended_rounds(const RankTrace& trace) {
  std::set<std::uint32_t> rounds;
  for (const TraceEvent& e : trace.events)
    if (is_call(e) && e.op == "commit") rounds.insert(e.round);
  return rounds;
}

Status not_one_job(const End& e, std::string_view why) {
  return {Code::kInvalid,
          fmt::format("the files are not from one job: in round {}, the frame of part {}, chunk {} from rank "
                      "{} to rank {} {}. Give the files of one run, one of each rank",
                      e.round, e.part, e.chunk, e.from, e.to, why)};
}

// ---- Bounds

struct Bound {
  int from, to;
  std::int64_t most;  // upper bound of clock of `to` minus clock of `from`
};

struct Interval {
  std::int64_t ahead = 0, error = 0;
};

// Bellman-Ford: the least sum of bounds from rank 0 to each rank or, with `backwards`, from each rank to rank 0. False
// if the bounds contradict each other, that is, if there is a cycle with a negative sum.
bool shortest(std::span<const Bound> bounds, bool backwards, std::vector<std::int64_t>& least) {
  std::fill(least.begin(), least.end(), kNone);
  least[0] = 0;
  for (std::size_t turn = 0; turn <= least.size(); ++turn) {
    bool changed = false;
    for (const Bound& b : bounds) {
      const std::int64_t from = least[at(backwards ? b.to : b.from)];
      std::int64_t& to = least[at(backwards ? b.from : b.to)];
      if (from == kNone || (to != kNone && from + b.most >= to)) continue;
      to = from + b.most;
      changed = true;
    }
    if (!changed) return true;
  }
  return false;
}

struct Solved {
  std::vector<Interval> ranks;
  bool agree = true;                  // false: the bounds contradict each other
  std::optional<int> unreached = {};  // a rank without a path from or to rank 0
};

Solved solve(std::span<const Bound> bounds, std::size_t world) {
  std::vector<std::int64_t> out(world), back(world);
  Solved solved{.ranks = std::vector<Interval>(world)};
  const bool there = shortest(bounds, false, out), again = shortest(bounds, true, back);
  solved.agree = there && again;
  for (std::size_t r = 0; r < world; ++r) {
    if (out[r] == kNone || back[r] == kNone) {
      solved.unreached = static_cast<int>(r);
      return solved;
    }
    solved.ranks[r] = {(out[r] - back[r]) / 2, (out[r] + back[r] + 1) / 2};
  }
  return solved;
}

// The tightest bound of each pair in one piece of the trace, and the time of the piece by each rank's clock.
struct Piece {
  std::map<std::pair<int, int>, std::int64_t> least;
  std::vector<std::int64_t> first, last;
};

std::vector<Piece> cut(std::span<const RankTrace> traces, std::span<const Message> messages,
                       std::span<const std::uint32_t> rounds, std::size_t pieces) {
  std::vector<Piece> out(pieces);
  for (Piece& p : out) {
    p.first.assign(traces.size(), kNone);
    p.last.assign(traces.size(), -kNone);
  }
  for (const Message& m : messages) {
    const TraceEvent& send = traces[at(m.from)].events[m.send];
    const TraceEvent& recv = traces[at(m.to)].events[m.recv];
    const auto place =
        static_cast<std::size_t>(std::lower_bound(rounds.begin(), rounds.end(), send.round) - rounds.begin());
    Piece& p = out[place * pieces / rounds.size()];
    const std::int64_t transit = recv.end_ns - send.begin_ns;
    const auto [it, fresh] = p.least.try_emplace({m.from, m.to}, transit);
    if (!fresh) it->second = std::min(it->second, transit);
    const auto see = [&](int rank, std::int64_t time) {
      p.first[at(rank)] = std::min(p.first[at(rank)], time);
      p.last[at(rank)] = std::max(p.last[at(rank)], time);
    };
    see(m.from, send.begin_ns);
    see(m.to, recv.end_ns);
  }
  return out;
}

Solved solve(const Piece& piece, std::size_t world) {
  std::vector<Bound> bounds;
  for (const auto& [pair, most] : piece.least) bounds.push_back({pair.first, pair.second, most});
  return solve(bounds, world);
}

}  // namespace

Status check_ranks(std::span<const RankTrace> traces) {
  if (traces.empty()) return {Code::kInvalid, "no trace: give the files of all ranks"};
  const Origin& first = traces.front().origin;
  std::set<int> there;
  for (const RankTrace& t : traces) {
    const Origin& o = t.origin;
    if (o.world != first.world || o.run != first.run || o.job != first.job)
      return {
          Code::kInvalid,
          fmt::format("the files are not from one job: rank {} was in a world of {} (run {}, job '{}'), rank "
                      "{} in a world of {} (run {}, job '{}'). Give the files of one run, one of each rank",
                      first.rank, first.world, first.run, first.job, o.rank, o.world, o.run, o.job)};
    if (!there.insert(o.rank).second)
      return {Code::kInvalid,
              fmt::format("rank {} occurs twice: give one file of each rank, all of one run", o.rank)};
  }
  for (int r = 0; r < first.world; ++r)
    if (!there.contains(r))
      return {Code::kInvalid,
              fmt::format("the trace of rank {} is missing: give the files of all {} ranks", r, first.world)};
  return {};
}

// Sorts sends and receives by frame and time, then merges the two lists.
Result<Matched> match(std::span<const RankTrace> traces) {
  std::vector<End> sends, recvs;
  std::vector<std::set<std::uint32_t>> ended;
  for (const RankTrace& t : traces) {
    gather(t, sends, recvs);
    ended.push_back(ended_rounds(t));
  }
  std::sort(sends.begin(), sends.end());
  std::sort(recvs.begin(), recvs.end());
  Matched out;
  const auto alone = [&](const End& e, std::string_view why) -> Status {
    ++out.alone;
    const bool whole = ended[at(e.from)].contains(e.round) && ended[at(e.to)].contains(e.round);
    return whole ? not_one_job(e, why) : Status{};
  };
  std::size_t s = 0, r = 0;
  while (s < sends.size() || r < recvs.size()) {
    if (r == recvs.size() || (s < sends.size() && sends[s].frame() < recvs[r].frame())) {
      TITHE_TRY(alone(sends[s++], "was sent but did not arrive"));
    } else if (s == sends.size() || recvs[r].frame() < sends[s].frame()) {
      TITHE_TRY(alone(recvs[r++], "arrived but was not sent"));
    } else {
      const Message m{sends[s].from, sends[s].to, sends[s].event, recvs[r].event};
      if (traces[at(m.from)].events[m.send].bytes != traces[at(m.to)].events[m.recv].bytes)
        return not_one_job(sends[s], "arrived with another size");
      out.messages.push_back(m);
      ++s;
      ++r;
    }
  }
  return out;
}

Clock::Clock(std::vector<Point> points, std::int64_t error_ns)
    : points_(std::move(points)), error_ns_(error_ns) {
  std::sort(points_.begin(), points_.end(), [](const Point& a, const Point& b) { return a.at_ns < b.at_ns; });
}

std::int64_t Clock::ahead(std::int64_t own_ns) const {
  if (points_.size() == 1) return points_[0].ahead_ns;
  const auto after = std::upper_bound(points_.begin() + 1, points_.end() - 1, own_ns,
                                      [](std::int64_t t, const Point& p) { return t < p.at_ns; });
  const Point &a = *(after - 1), &b = *after;
  if (a.at_ns == b.at_ns) return a.ahead_ns;
  const double slope = static_cast<double>(b.ahead_ns - a.ahead_ns) / static_cast<double>(b.at_ns - a.at_ns);
  return a.ahead_ns + static_cast<std::int64_t>(slope * static_cast<double>(own_ns - a.at_ns));
}

// Starts with one piece, and halves the pieces while their bounds contradict each other.
Result<std::vector<Clock>> align(std::span<const RankTrace> traces, std::span<const Message> messages) {
  const std::size_t world = traces.size();
  if (world == 1) return std::vector<Clock>(1);
  std::set<std::uint32_t> all;
  for (const Message& m : messages) all.insert(traces[at(m.from)].events[m.send].round);
  const std::vector<std::uint32_t> rounds(all.begin(), all.end());
  std::vector<Piece> pieces = cut(traces, messages, rounds, 1);
  std::vector<Solved> solved{solve(pieces[0], world)};
  if (solved[0].unreached)
    return Status(
        Code::kInvalid,
        fmt::format("no frames go from rank 0 to rank {} and back, so their clocks cannot be compared: "
                    "trace at least one whole round",
                    *solved[0].unreached));
  const auto contradicts = [](const Solved& s) { return !s.agree; };
  while (std::any_of(solved.begin(), solved.end(), contradicts) &&
         2 * pieces.size() <= std::min(rounds.size(), kMaxPieces)) {
    std::vector<Piece> finer = cut(traces, messages, rounds, 2 * pieces.size());
    std::vector<Solved> again;
    for (const Piece& p : finer) again.push_back(solve(p, world));
    if (std::any_of(again.begin(), again.end(), [](const Solved& s) { return s.unreached.has_value(); }))
      break;
    pieces = std::move(finer);
    solved = std::move(again);
  }
  std::vector<Clock> clocks;
  for (std::size_t r = 0; r < world; ++r) {
    std::vector<Clock::Point> points;
    std::int64_t error = 0;
    for (std::size_t p = 0; p < pieces.size(); ++p) {
      points.push_back(
          {pieces[p].first[r] + (pieces[p].last[r] - pieces[p].first[r]) / 2, solved[p].ranks[r].ahead});
      error = std::max({error, solved[p].ranks[r].error, -solved[p].ranks[r].error});
    }
    clocks.emplace_back(std::move(points), error);
  }
  return clocks;
}

}  // namespace tithe::trace
