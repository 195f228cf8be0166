// SPDX-License-Identifier: Apache-2.0
// The events in a session's trace, and the events that a recording keeps.
#include "engine/run/recorder.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

// Runs one round of these tensors in one bucket, and commits it.
void round_of(Session& session, const std::vector<std::string>& keys,
              std::vector<std::vector<float>>& values) {
  std::vector<Tensor> bucket;
  for (std::size_t i = 0; i < keys.size(); ++i)
    bucket.push_back({.key = keys[i], .data = values[i].data(), .n = values[i].size()});
  const Result<Ticket> ticket = session.sync(bucket);
  ASSERT_TRUE(ticket.ok()) << text(ticket.status());
  const Status waited = session.wait(*ticket);
  ASSERT_TRUE(waited.ok()) << text(waited);
  const Status committed = session.commit();
  ASSERT_TRUE(committed.ok()) << text(committed);
}

void round_of(Session& session, std::size_t n = 1000) {
  std::vector<std::vector<float>> values{std::vector<float>(n, 1.0F)};
  round_of(session, {"w"}, values);
}

TEST(Recorder, TraceShowsEveryStepOfARound) {
  for (const int lanes : {0, 2}) {
    Ranks ranks(open_loop(2), {.codec = "fp32", .strategy = "ring", .lanes = lanes, .min_values = 0});
    ranks.each([&](Rank r) {
      ranks[r].trace(true);
      EXPECT_TRUE(ranks[r].tracing());
      round_of(ranks[r]);
      std::map<std::string_view, int> count;
      std::int64_t last = 0;  // lanes record separately; the reader sorts
      for (const TraceEvent& e : ranks[r].take_trace()) {
        ++count[e.op];
        EXPECT_GE(e.end_ns, last);
        last = e.end_ns;
        EXPECT_LE(e.begin_ns, e.end_ns);
        const bool call = e.op == "bucket" || e.op == "wait" || e.op == "commit";
        const bool message = e.op == "send" || e.op == "recv";
        EXPECT_EQ(e.lane < 0, call) << e.op;
        EXPECT_EQ(e.lane == 0, message) << e.op;
        EXPECT_EQ(e.peer, message || e.op == "check" ? 1 - r : -1) << e.op;
        if (call) continue;
        EXPECT_GT(e.ready_ns, 0) << e.op;
        EXPECT_LE(e.ready_ns, e.begin_ns) << e.op;
        EXPECT_EQ(e.key, "w");
        EXPECT_EQ(e.codec, "fp32");
        if (message) {
          EXPECT_EQ(e.bytes, 64 + 4 * 500U);
        }
      }
      EXPECT_EQ(count["send"], 2);
      EXPECT_EQ(count["recv"], 2);
      EXPECT_EQ(count["merge"], 1);
      EXPECT_EQ(count["store"], 2);
      EXPECT_EQ(count["bucket"], 1);
      EXPECT_EQ(count["wait"], 2) << "the caller's wait, and the wait in commit()";
      EXPECT_EQ(count["commit"], 1);
      EXPECT_TRUE(ranks[r].take_trace().empty());
      const SessionStats s = ranks[r].stats();
      EXPECT_EQ(s.frames_sent, 2U);
      EXPECT_EQ(s.bytes_sent, 2 * (64 + 4 * 500U));
      EXPECT_EQ(s.values, 1000U);
      EXPECT_GT(s.encode_ns, 0U);
      EXPECT_GT(s.wait_ns, 0U);
      EXPECT_EQ(s.events_lost, 0U);
    });
  }
}

// commit() waits for buckets without a waiting caller: the lane that finishes the last bucket ends this rank's work.
TEST(Recorder, CommitIsOneEventForAllBuckets) {
  for (const int lanes : {0, 2}) {
    Ranks ranks(open_loop(3),
                {.codec = "fp32", .strategy = "server", .lanes = lanes, .average = false, .min_values = 0});
    ranks.each([&](Rank r) {
      ranks[r].trace(true);
      for (int round = 0; round < 3; ++round) {
        std::vector<std::vector<float>> values(4, std::vector<float>(2000, 1.0F));
        for (std::size_t k = 0; k < values.size(); ++k) {
          const Tensor bucket[] = {
              {.key = std::to_string(k), .data = values[k].data(), .n = values[k].size()}};
          ASSERT_TRUE(ranks[r].sync(bucket).ok());
        }
        const Status committed = ranks[r].commit();
        ASSERT_TRUE(committed.ok()) << text(committed);
        for (const auto& v : values) EXPECT_EQ(v, std::vector<float>(2000, 3.0F));
        std::int64_t last_bucket = 0, waited = 0;
        int buckets = 0, waits = 0;
        for (const TraceEvent& e : ranks[r].take_trace()) {
          if (e.op == "bucket") ++buckets, last_bucket = std::max(last_bucket, e.end_ns);
          if (e.op == "wait") ++waits, waited = e.end_ns;
        }
        EXPECT_EQ(buckets, 4);
        EXPECT_EQ(waits, 1);
        EXPECT_GE(waited, last_bucket);
      }
    });
  }
}

// A step is ready when all steps that it waits for have run, so not before the bucket's hand-over.
TEST(Recorder, AStepIsReadyWhenItsPredecessorsHaveRun) {
  Ranks ranks(open_loop(2), {.codec = "onebit", .strategy = "server", .min_values = 0, .part_values = 2000});
  ranks.each([&](Rank r) {
    ranks[r].trace(true);
    for (int round = 0; round < 3; ++round) round_of(ranks[r], 10'000);
    std::map<std::tuple<std::uint32_t, std::uint32_t, int>, std::int64_t> encoded, handed;
    const std::vector<TraceEvent> events = ranks[r].take_trace();
    for (const TraceEvent& e : events) {
      if (e.op == "encode") encoded[{e.round, e.part, e.chunk}] = e.end_ns;
      if (e.op == "bucket") handed[{e.round, 0, 0}] = e.begin_ns;
    }
    int sends = 0;
    for (const TraceEvent& e : events) {
      if (e.op == "encode") {
        EXPECT_GE(e.ready_ns, (handed[{e.round, 0, 0}]));
      }
      if (e.op != "send") continue;
      ++sends;
      ASSERT_TRUE(encoded.contains({e.round, e.part, e.chunk}));
      EXPECT_GE(e.ready_ns, (encoded[{e.round, e.part, e.chunk}]));
    }
    EXPECT_EQ(sends, 3 * 5 * 2);
  });
}

TEST(Recorder, EventsContainTheKeyOfTheFirstTensorOfTheirPart) {
  Ranks ranks(open_loop(2), {.codec = "onebit", .strategy = "server"});
  ranks.each([&](Rank r) {
    ranks[r].trace(true);
    std::vector<std::vector<float>> values{std::vector<float>(5), std::vector<float>(9000, 1.0F),
                                           std::vector<float>(0), std::vector<float>(7000, 2.0F)};
    round_of(ranks[r], {"bias", "large", "empty", "last"}, values);
    std::set<std::pair<std::string_view, std::string_view>> seen;
    std::uint64_t handed = 0;
    for (const TraceEvent& e : ranks[r].take_trace()) {
      if (e.op == "encode") seen.insert({e.key, e.codec});
      if (e.op == "bucket") handed = e.bytes;
    }
    EXPECT_TRUE(seen.contains({"large", "onebit"}));
    EXPECT_TRUE(seen.contains({"last", "onebit"}));
    EXPECT_TRUE(seen.contains({"bias", "fp32"}));
    EXPECT_EQ(seen.size(), 3U);
    EXPECT_EQ(handed, 4 * 16'005U);
  });
}

TEST(Recorder, CallersCanAddMarks) {
  Ranks one(open_loop(1), {.codec = "fp32"});
  Session& session = one[0];
  EXPECT_FALSE(session.tracing());
  session.mark("before", 1, 2);
  session.trace(true);
  round_of(session);
  session.mark(std::string("back") + "ward", 10, 20);
  int marks = 0;
  for (const TraceEvent& e : session.take_trace()) {
    EXPECT_NE(e.op, "before") << "tracing was off";
    if (e.op != "backward") continue;
    ++marks;
    EXPECT_EQ(e.begin_ns, 10);
    EXPECT_EQ(e.end_ns, 20);
    EXPECT_EQ(e.round, 1U) << "the open round, or the next one";
  }
  EXPECT_EQ(marks, 1);
}

// The promise `bounded`.
TEST(Recorder, KeepsTheLastEventsAndCountsTheOthers) {
  constexpr std::size_t kMaxEvents = 65'536;
  engine::Recorder recorder(1);
  recorder.trace(true);
  const std::string_view op = recorder.name("mark");
  for (std::size_t i = 0; i < kMaxEvents + 100; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    recorder.call(op, 0, at, at);
  }
  EXPECT_EQ(recorder.total().events_lost, 100U);
  const std::vector<TraceEvent> events = recorder.take_trace();
  ASSERT_EQ(events.size(), kMaxEvents);
  EXPECT_EQ(events.front().end_ns, 100);
  EXPECT_EQ(events.back().end_ns, static_cast<std::int64_t>(kMaxEvents) + 99);
  recorder.call(op, 0, 7, 7);
  EXPECT_EQ(recorder.take_trace().size(), 1U) << "tracing continues after take_trace()";
  recorder.trace(false);
  recorder.call(op, 0, 8, 8);
  EXPECT_TRUE(recorder.take_trace().empty());
}

TEST(Recorder, AFileRecordingKeepsTheFirstEventsAndCountsTheOthers) {
  constexpr std::size_t kMaxEvents = 262'144;
  engine::Recorder recorder(1);
  recorder.keep();
  const std::string_view op = recorder.name("mark");
  for (std::size_t i = 0; i < kMaxEvents + 100; ++i) {
    const auto at = static_cast<std::int64_t>(i);
    recorder.call(op, 0, at, at);
  }
  EXPECT_TRUE(recorder.take_trace().empty()) << "take_trace() does not return the recording for a file";
  const engine::Recorder::Recording kept = recorder.kept();
  ASSERT_EQ(kept.events.size(), kMaxEvents);
  EXPECT_EQ(kept.lost, 100U);
  EXPECT_EQ(kept.events.front().end_ns, 0);
}

}  // namespace
}  // namespace tithe
