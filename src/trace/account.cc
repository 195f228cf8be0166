// SPDX-License-Identifier: Apache-2.0
// Unions of intervals: the busy time of a rank is the length that its steps and sends cover together.
#include "trace/account.h"

#include <algorithm>
#include <map>

namespace tithe::trace {
namespace {

constexpr std::size_t kCold = 2;  // rounds

using Span = std::pair<std::int64_t, std::int64_t>;

// The length of [low, high] that the spans cover together.
std::int64_t covered(std::vector<Span>& all, std::int64_t low, std::int64_t high) {
  std::sort(all.begin(), all.end());
  std::int64_t sum = 0, from = low;
  for (const Span& i : all) {
    const std::int64_t begin = std::max(i.first, from), end = std::min(i.second, high);
    if (end <= begin) continue;
    sum += end - begin;
    from = end;
  }
  return sum;
}

}  // namespace

std::vector<Round> rounds_of(const RankTrace& trace) {
  std::map<std::uint32_t, Round> all;
  std::vector<Span> commits;  // end, round
  for (const TraceEvent& e : trace.events) {
    Round& round = all[e.round];
    round.number = e.round;
    if (e.lane >= 0) continue;
    if (e.op == "bucket") round.buckets.push_back({e.begin_ns, e.end_ns, e.bytes});
    if (e.op == "backward") round.backward = {e.begin_ns, e.end_ns};
    if (e.op == "commit") round.end = e.end_ns;
  }
  std::vector<Round> whole;
  const Round* before = nullptr;
  for (auto& [number, round] : all) {
    std::sort(round.buckets.begin(), round.buckets.end(),
              [](const Bucket& a, const Bucket& b) { return a.handed < b.handed; });
    if (round.end == 0 || round.buckets.empty()) continue;
    const bool next = before != nullptr && before->number + 1 == number;
    round.begin = next ? std::min(before->end, round.buckets[0].handed) : round.buckets[0].handed;
    before = &round;
    whole.push_back(round);
  }
  if (whole.size() > 2 * kCold) whole.erase(whole.begin(), whole.begin() + kCold);
  return whole;
}

// Steps and messages of a round belong to lanes >= 0; receives are ignored, since their time includes waiting.
Account account(const RankTrace& trace, std::span<const Round> rounds) {
  Account sum;
  sum.rounds = rounds.size();
  if (rounds.empty()) return sum;
  // Compute steps and sends; sends alone.
  std::map<std::uint32_t, std::pair<std::vector<Span>, std::vector<Span>>> busy;
  for (const Round& r : rounds) busy[r.number];
  for (const TraceEvent& e : trace.events) {
    const auto found = busy.find(e.round);
    if (found == busy.end() || e.lane < 0) continue;
    const auto spent = static_cast<double>(e.end_ns - e.begin_ns);
    if (is_message(e) && e.op != "send") continue;
    found->second.first.emplace_back(e.begin_ns, e.end_ns);
    if (is_message(e)) {
      found->second.second.emplace_back(e.begin_ns, e.end_ns);
      continue;
    }
    sum.queue += static_cast<double>(std::max<std::int64_t>(0, e.begin_ns - e.ready_ns));
    if (e.op == "encode" || e.op == "own")
      sum.encode += spent;
    else if (e.op == "merge" || e.op == "store")
      sum.merge += spent;
    else
      sum.other += spent;
  }
  for (const Round& r : rounds) {
    const std::int64_t first = r.buckets.front().handed;
    const std::int64_t backward = r.backward ? r.backward->second : r.buckets.back().handed;
    const std::int64_t hidden =
        std::clamp<std::int64_t>(backward - first, 0, std::max<std::int64_t>(0, r.end - first));
    auto& [all, sends] = busy[r.number];
    sum.step += static_cast<double>(r.end - r.begin);
    sum.send += static_cast<double>(covered(sends, first, r.end));
    sum.waiting += static_cast<double>(r.end - first - covered(all, first, r.end));
    sum.hidden += static_cast<double>(hidden);
    sum.open += static_cast<double>(r.end - first - hidden);
  }
  const auto n = static_cast<double>(rounds.size());
  for (double* part : {&sum.step, &sum.encode, &sum.merge, &sum.other, &sum.send, &sum.queue, &sum.waiting,
                       &sum.hidden, &sum.open})
    *part /= n;
  return sum;
}

}  // namespace tithe::trace
