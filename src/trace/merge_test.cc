// SPDX-License-Identifier: Apache-2.0
// The merged trace, as a viewer reads it.
#include "trace/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "support/traces.h"

namespace tithe::trace {
namespace {

using Json = nlohmann::json;

Json merged(const std::vector<RankTrace>& traces) {
  const Result<Matched> matched = match(traces);
  EXPECT_TRUE(matched.ok()) << matched.status().what();
  const Result<std::vector<Clock>> clocks = align(traces, matched->messages);
  EXPECT_TRUE(clocks.ok()) << clocks.status().what();
  std::string out;
  merge(traces, matched->messages, *clocks, [&](std::string_view text) { out += text; });
  return Json::parse(out);
}

std::int64_t ns(const Json& e, const char* name) { return std::llround(e.at(name).get<double>() * 1000); }

// Checks the promises of chrome.h and merge.h for any trace.
void expect_sound(const Json& json) {
  using Slice = std::pair<std::int64_t, std::int64_t>;
  std::map<std::pair<int, int>, std::vector<Slice>> threads;
  std::map<std::string, std::pair<int, std::int64_t>> open;      // by id: rank, begin
  std::map<std::uint64_t, std::pair<int, std::int64_t>> arrows;  // begun arrows
  std::map<int, std::int64_t> under_way;
  std::size_t ended = 0;
  for (const Json& e : json.at("traceEvents")) {
    const std::string phase = e.at("ph");
    const int rank = e.at("pid");
    if (phase == "M") continue;
    EXPECT_GE(ns(e, "ts"), 0) << e;
    if (phase == "X") {
      EXPECT_GE(ns(e, "dur"), 0) << e;
      threads[{rank, e.at("tid").get<int>()}].emplace_back(ns(e, "ts"), ns(e, "ts") + ns(e, "dur"));
    } else if (phase == "b") {
      EXPECT_TRUE(open.try_emplace(e.at("id"), rank, ns(e, "ts")).second) << e;
    } else if (phase == "e") {
      const auto begun = open.find(e.at("id"));
      ASSERT_NE(begun, open.end()) << e;
      EXPECT_EQ(begun->second.first, rank) << e;
      EXPECT_LE(begun->second.second, ns(e, "ts")) << e;
      ++ended;
    } else if (phase == "C") {
      under_way[rank] = e.at("args").at("bytes");
      EXPECT_GE(under_way[rank], 0) << e;
    }
  }
  EXPECT_EQ(ended, open.size());
  for (const auto& [rank, bytes] : under_way) EXPECT_EQ(bytes, 0) << "rank " << rank;
  for (auto& [thread, slices] : threads) {
    std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    std::vector<Slice> stack;
    for (const Slice& s : slices) {
      while (!stack.empty() && stack.back().second <= s.first) stack.pop_back();
      if (!stack.empty()) {
        EXPECT_LE(s.second, stack.back().second) << "thread " << thread.second << " of rank " << thread.first;
      }
      stack.push_back(s);
    }
  }
  for (const Json& e : json.at("traceEvents"))
    if (e.at("ph") == "s") {
      EXPECT_TRUE(arrows.try_emplace(e.at("id"), e.at("pid"), ns(e, "ts")).second) << e;
    }
  std::size_t arrived = 0;
  for (const Json& e : json.at("traceEvents")) {
    if (e.at("ph") != "f") continue;
    ++arrived;
    const auto begun = arrows.find(e.at("id"));
    ASSERT_NE(begun, arrows.end()) << "the receive has no send";
    EXPECT_LE(begun->second.second, ns(e, "ts"));
    EXPECT_NE(begun->second.first, e.at("pid"));
  }
  EXPECT_EQ(arrived, arrows.size());
}

TEST(Merge, ContainsAllEventsOfAllRanks) {
  const testing::SyntheticJob job{.world = 3, .ahead = {0, 9'000'000'000, -9'000'000'000}};
  const std::vector<RankTrace> traces = job.traces();
  const Json json = merged(traces);
  expect_sound(json);
  std::map<std::string, std::size_t> count;
  for (const Json& e : json.at("traceEvents")) {
    ++count[e.at("ph")];
    if (e.contains("args") && e.at("args").contains("op")) ++count[e.at("args").at("op")];
  }
  EXPECT_EQ(count["s"], 8 * 6U);
  EXPECT_EQ(count["f"], 8 * 6U);
  EXPECT_EQ(count["send"], 8 * 6U);
  EXPECT_EQ(count["recv"], 8 * 6U);
  EXPECT_EQ(count["encode"], 8 * 3U);
  EXPECT_EQ(count["bucket"], 8 * 3U);
  EXPECT_EQ(count["commit"], 8 * 3U);
}

TEST(Merge, ReceivesBeginAtTheSendAndEndAtTheArrival) {
  const testing::SyntheticJob job{.ahead = {0, 5'000'000}, .rounds = 4, .spread_ns = 0};
  int seen = 0;
  std::map<std::tuple<std::uint32_t, int>, std::int64_t> sent;
  const Json json = merged(job.traces());
  for (const Json& e : json.at("traceEvents"))
    if (e.at("ph") == "b" && e.at("args").at("op") == "send")
      sent[{e.at("args").at("round"), e.at("args").at("chunk")}] = ns(e, "ts");
  for (const Json& e : json.at("traceEvents")) {
    if (e.at("ph") != "b" || e.at("args").at("op") != "recv") continue;
    ++seen;
    EXPECT_EQ(ns(e, "ts"), (sent[{e.at("args").at("round"), e.at("args").at("chunk")}]));
    EXPECT_EQ(ns(e.at("args"), "end_us") - ns(e, "ts"), job.min_transit_ns);
    EXPECT_LE(ns(e.at("args"), "posted_us"), ns(e, "ts"));
  }
  EXPECT_EQ(seen, 8);
}

TEST(Merge, IsCausalUnderClockDrift) {
  const testing::SyntheticJob job{
      .world = 3, .ahead = {0, 1, -77}, .drift = {0, 30e-6, -90e-6}, .rounds = 300, .round_ns = 100'000'000};
  expect_sound(merged(job.traces()));
}

}  // namespace
}  // namespace tithe::trace
