// SPDX-License-Identifier: Apache-2.0
// Clocks with known differences, and files of different jobs.
#include "trace/clocks.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/traces.h"

namespace tithe::trace {
namespace {

using testing::SyntheticJob;

std::vector<Clock> aligned(const std::vector<RankTrace>& traces) {
  EXPECT_TRUE(check_ranks(traces).ok());
  const Result<Matched> matched = match(traces);
  EXPECT_TRUE(matched.ok()) << matched.status().what();
  EXPECT_EQ(matched->alone, 0U);
  Result<std::vector<Clock>> clocks = align(traces, matched->messages);
  EXPECT_TRUE(clocks.ok()) << clocks.status().what();
  return std::move(*clocks);
}

// Checks that no frame arrives before it was sent, by the aligned clocks.
void expect_causal(const std::vector<RankTrace>& traces, const std::vector<Clock>& clocks,
                   std::int64_t slack = 0) {
  const Result<Matched> matched = match(traces);
  for (const Message& m : matched->messages) {
    const auto from = static_cast<std::size_t>(m.from), to = static_cast<std::size_t>(m.to);
    EXPECT_LE(clocks[from].by_rank0(traces[from].events[m.send].begin_ns),
              clocks[to].by_rank0(traces[to].events[m.recv].end_ns) + slack);
  }
}

TEST(Clocks, ErrorsBoundTheTrueOffsets) {
  for (const std::uint64_t seed : {1, 2, 3})
    for (const int world : {1, 2, 5}) {
      const SyntheticJob job{
          .world = world, .ahead = {0, 5'000'000'000, -3'000'000, 12, 999'999}, .seed = seed};
      const std::vector<RankTrace> traces = job.traces();
      const std::vector<Clock> clocks = aligned(traces);
      ASSERT_EQ(clocks.size(), static_cast<std::size_t>(world));
      for (int r = 0; r < world; ++r) {
        const auto i = static_cast<std::size_t>(r);
        EXPECT_LE(std::abs(clocks[i].ahead(0) - job.ahead[i]), clocks[i].error_ns()) << "rank " << r;
        EXPECT_LE(clocks[i].error_ns(), 2 * (job.min_transit_ns + job.spread_ns));
      }
      EXPECT_EQ(clocks[0].ahead(0), 0);
      EXPECT_EQ(clocks[0].error_ns(), 0);
    }
}

TEST(Clocks, OffsetIsHalfTheDifferenceOfTheLeastTransitTimes) {
  // Equal transit times in both directions leave no error.
  const SyntheticJob job{.ahead = {0, 1'000'000}, .spread_ns = 0};
  const std::vector<Clock> clocks = aligned(job.traces());
  EXPECT_EQ(clocks[1].ahead(0), 1'000'000);
  EXPECT_EQ(clocks[1].error_ns(), job.min_transit_ns);
}

TEST(Clocks, NoFrameArrivesBeforeItIsSent) {
  for (const bool one_way : {false, true}) {
    const SyntheticJob job{
        .world = 6, .ahead = {0, 800'000, -900'000, 70'000, 5, -5'000'000}, .one_way = one_way};
    const std::vector<RankTrace> traces = job.traces();
    expect_causal(traces, aligned(traces));
  }
}

// Neighbours in a ring have no direct path back; the rest of the ring is the path.
TEST(Clocks, AreAlignedAlongARing) {
  const SyntheticJob job{.world = 4, .ahead = {0, 40'000'000, -7'000'000, 1'000'000'000}, .one_way = true};
  const std::vector<Clock> clocks = aligned(job.traces());
  for (std::size_t r = 1; r < 4; ++r) {
    EXPECT_LE(std::abs(clocks[r].ahead(0) - job.ahead[r]), clocks[r].error_ns());
    EXPECT_LE(clocks[r].error_ns(), 4 * (job.min_transit_ns + job.spread_ns));
  }
}

TEST(Clocks, DriftIsCorrected) {
  // 40 ppm over a minute are 2.4 ms; a frame takes some 0.05 ms.
  const SyntheticJob job{.world = 3,
                         .ahead = {0, 2'000'000, -1'000'000},
                         .drift = {0, 40e-6, -25e-6},
                         .rounds = 600,
                         .round_ns = 100'000'000,
                         .spread_ns = 30'000};
  const std::vector<RankTrace> traces = job.traces();
  const std::vector<Clock> clocks = aligned(traces);
  EXPECT_GT(clocks[1].pieces(), 1U);
  for (int r = 1; r < 3; ++r)
    for (std::int64_t t = 2'000'000'000; t < 60'000'000'000; t += 1'000'000'000) {
      const std::int64_t own = job.by_clock_of(r, t);
      const std::int64_t wrong = clocks[static_cast<std::size_t>(r)].by_rank0(own) - t;
      EXPECT_LE(std::abs(wrong), 100'000) << "rank " << r << " at " << t;
    }
  expect_causal(traces, clocks, 100'000);
}

TEST(Clocks, NeedFramesInBothDirections) {
  std::vector<RankTrace> traces = SyntheticJob{}.traces();
  for (RankTrace& t : traces)
    std::erase_if(t.events, [&](const TraceEvent& e) {
      return is_message(e) && (e.op == "send") == (t.origin.rank == 1);
    });
  const Result<Matched> matched = match(traces);
  ASSERT_TRUE(matched.ok());
  const Result<std::vector<Clock>> clocks = align(traces, matched->messages);
  ASSERT_FALSE(clocks.ok());
  EXPECT_NE(clocks.status().what().find("from rank 0 to rank 1 and back"), std::string::npos);
}

void expect_refused(const std::vector<RankTrace>& traces, std::string_view why) {
  Status s = check_ranks(traces);
  if (s.ok()) s = match(traces).status();
  EXPECT_EQ(s.code(), Code::kInvalid) << why;
  EXPECT_NE(s.what().find(why), std::string::npos) << s.what();
  EXPECT_NE(s.what().find("ive "), std::string::npos) << "no cure: " << s.what();
}

TEST(Clocks, RefuseTracesOfSeveralJobs) {
  expect_refused({}, "no trace: give");
  std::vector<RankTrace> traces = SyntheticJob{.world = 3}.traces();
  traces[2].origin.rank = 1;
  expect_refused(traces, "rank 1 occurs twice");
  traces.pop_back();
  expect_refused(traces, "rank 2 is missing");
  for (const int what : {0, 1, 2}) {
    traces = SyntheticJob{}.traces();
    if (what == 0) traces[1].origin.world = 3;
    if (what == 1) traces[1].origin.run = 8;
    if (what == 2) traces[1].origin.job = "cd";
    expect_refused(traces, "not from one job");
  }
  traces = SyntheticJob{}.traces();
  for (TraceEvent& e : traces[1].events)
    if (e.op == "recv" && e.round == 3) e.bytes = 1;
  expect_refused(traces,
                 "in round 3, the frame of part 3, chunk 0 from rank 0 to rank 1 arrived with another size");
  traces = SyntheticJob{}.traces();
  std::erase_if(traces[1].events, [](const TraceEvent& e) { return e.op == "recv" && e.round == 3; });
  expect_refused(traces, "was sent but did not arrive");
  traces = SyntheticJob{}.traces();
  std::erase_if(traces[1].events, [](const TraceEvent& e) { return e.op == "send" && e.round == 3; });
  expect_refused(traces, "arrived but was not sent");
}

// A failed job, or a full trace: sends and receives of the last round may be unmatched.
TEST(Clocks, UnfinishedRoundsCanHaveUnmatchedFrames) {
  std::vector<RankTrace> traces = SyntheticJob{}.traces();
  std::erase_if(traces[1].events,
                [](const TraceEvent& e) { return e.round == 7 && (e.op == "recv" || e.op == "commit"); });
  const Result<Matched> matched = match(traces);
  ASSERT_TRUE(matched.ok()) << matched.status().what();
  EXPECT_EQ(matched->alone, 1U);
  EXPECT_EQ(matched->messages.size(), 15U);
  EXPECT_TRUE(align(traces, matched->messages).ok());
}

// After restore() a session counts rounds from the restored state.
TEST(Clocks, EqualFramesAreMatchedInOrder) {
  std::vector<RankTrace> traces = SyntheticJob{.ahead = {0, 1'000'000}}.traces();
  for (RankTrace& t : traces)
    for (TraceEvent& e : t.events) e.round /= 2;
  const Result<Matched> matched = match(traces);
  ASSERT_TRUE(matched.ok());
  EXPECT_EQ(matched->messages.size(), 16U);
  const std::vector<Clock> clocks = aligned(traces);
  EXPECT_LE(std::abs(clocks[1].ahead(0) - 1'000'000), clocks[1].error_ns());
  expect_causal(traces, clocks);
}

}  // namespace
}  // namespace tithe::trace
