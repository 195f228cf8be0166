// SPDX-License-Identifier: Apache-2.0
#pragma once
// Traces of a synthetic job with known clock offsets and known transit times of frames.
#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "trace/clocks.h"

namespace tithe::testing {

struct SyntheticJob {
  int world = 2;
  std::vector<std::int64_t> ahead = {};  // by rank; missing entries are 0
  std::vector<double> drift = {};        // by rank: seconds per second
  std::uint32_t rounds = 8;
  std::int64_t round_ns = 10'000'000;
  std::int64_t min_transit_ns = 20'000, spread_ns = 100'000;  // of a frame's transit
  bool one_way = false;                                       // a ring: rank r sends to r + 1 alone
  std::uint64_t seed = 1;

  std::int64_t by_clock_of(int rank, std::int64_t t) const {
    const auto r = static_cast<std::size_t>(rank);
    const double run = r < drift.size() ? drift[r] * static_cast<double>(t) : 0;
    return t + (r < ahead.size() ? ahead[r] : 0) + static_cast<std::int64_t>(run);
  }

  std::vector<trace::RankTrace> traces() const {
    std::vector<trace::RankTrace> all;
    for (int r = 0; r < world; ++r) {
      trace::RankTrace t;
      t.origin = {
          .rank = r, .world = world, .run = 7, .job = "ab", .host = "host" + std::to_string(r), .lost = 0};
      all.push_back(std::move(t));
    }
    std::uint64_t draw = seed;
    const auto at = [&](int rank) -> trace::RankTrace& { return all[static_cast<std::size_t>(rank)]; };
    for (std::uint32_t round = 0; round < rounds; ++round) {
      const std::int64_t begin = 1'000'000'000 + round * round_ns;
      for (int from = 0; from < world; ++from) {
        for (int to = 0; to < world; ++to) {
          if (to == from || (one_way && to != (from + 1) % world)) continue;
          const std::int64_t sent = begin + 1000 * (10 * from + to);
          const std::int64_t transit =
              min_transit_ns +
              static_cast<std::int64_t>(mix64(++draw) % static_cast<std::uint64_t>(spread_ns + 1));
          TraceEvent e{.op = "send", .round = round, .part = 3, .chunk = from, .peer = to, .bytes = 500};
          e.key = "w";
          e.codec = "onebit";
          e.ready_ns = by_clock_of(from, sent - 500);
          e.begin_ns = by_clock_of(from, sent);
          e.end_ns = by_clock_of(from, sent + transit);
          at(from).events.push_back(e);
          e.op = "recv";
          e.peer = from;
          e.ready_ns = e.begin_ns = by_clock_of(to, begin);
          e.end_ns = by_clock_of(to, sent + transit);
          at(to).events.push_back(e);
        }
        TraceEvent e{.op = "encode", .round = round, .part = 3, .chunk = from, .lane = 1, .bytes = 500};
        e.key = "w";
        e.codec = "onebit";
        e.ready_ns = by_clock_of(from, begin - 6000);
        e.begin_ns = by_clock_of(from, begin - 5000);
        e.end_ns = by_clock_of(from, begin - 1000);
        at(from).events.push_back(e);
        e = {.op = "bucket", .round = round, .lane = -1, .bytes = 4000};
        e.key = "w";
        e.ready_ns = e.begin_ns = by_clock_of(from, begin - 6000);
        e.end_ns = by_clock_of(from, begin + round_ns / 2);
        at(from).events.push_back(e);
        e = {.op = "commit", .round = round, .lane = -1};
        e.ready_ns = e.begin_ns = by_clock_of(from, begin + round_ns / 2);
        e.end_ns = by_clock_of(from, begin + round_ns / 2 + 10'000);
        at(from).events.push_back(e);
      }
    }
    return all;
  }
};

}  // namespace tithe::testing
