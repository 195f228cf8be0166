// SPDX-License-Identifier: Apache-2.0
// The file of a rank: written, read back, truncated and changed.
#include "trace/rank_trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/rng.h"
#include "support/traces.h"

namespace tithe::trace {
namespace {

std::string written(const RankTrace& trace) {
  std::string out;
  write(trace.origin, trace.events, [&](std::string_view text) { out += text; });
  return out;
}

Result<RankTrace> read_text(const std::string& text) {
  std::istringstream in(text);
  return read(in);
}

void expect_same(const RankTrace& a, const RankTrace& b) {
  EXPECT_EQ(a.origin.rank, b.origin.rank);
  EXPECT_EQ(a.origin.world, b.origin.world);
  EXPECT_EQ(a.origin.run, b.origin.run);
  EXPECT_EQ(a.origin.job, b.origin.job);
  EXPECT_EQ(a.origin.host, b.origin.host);
  EXPECT_EQ(a.origin.lost, b.origin.lost);
  ASSERT_EQ(a.events.size(), b.events.size());
  for (std::size_t i = 0; i < a.events.size(); ++i) {
    const TraceEvent &x = a.events[i], &y = b.events[i];
    EXPECT_EQ(std::tie(x.op, x.key, x.codec), std::tie(y.op, y.key, y.codec));
    EXPECT_EQ(std::tie(x.round, x.bucket, x.part, x.chunk, x.phase, x.peer, x.lane, x.bytes),
              std::tie(y.round, y.bucket, y.part, y.chunk, y.phase, y.peer, y.lane, y.bytes));
    EXPECT_EQ(std::tie(x.ready_ns, x.begin_ns, x.end_ns), std::tie(y.ready_ns, y.begin_ns, y.end_ns));
  }
}

RankTrace made() {
  std::vector<RankTrace> all = testing::SyntheticJob{.ahead = {0, 123'456'789'123'456}, .rounds = 2}.traces();
  RankTrace trace = std::move(all[1]);
  trace.origin.lost = 5;
  trace.origin.run = ~std::uint64_t{0};
  for (const std::string_view key : {"a \"quoted\\ key", "{}],\n", "ключ", ""}) {
    TraceEvent e{.op = "backward", .lane = -1, .ready_ns = 10, .begin_ns = 10, .end_ns = 1'000'000'007};
    e.key = *trace.names.emplace(key == "{}],\n" ? "{}], " : key).first;
    trace.events.push_back(e);
  }
  return trace;
}

TEST(RankTrace, RoundTrips) {
  const RankTrace trace = made();
  const Result<RankTrace> again = read_text(written(trace));
  ASSERT_TRUE(again.ok()) << again.status().what();
  expect_same(trace, *again);
  const RankTrace nothing;
  const Result<RankTrace> empty = read_text(written(nothing));
  ASSERT_TRUE(empty.ok()) << empty.status().what();
  expect_same(nothing, *empty);
}

TEST(RankTrace, IsChromeTracingJson) {
  const RankTrace trace = made();
  const nlohmann::json json = nlohmann::json::parse(written(trace));
  std::size_t shown = 0;
  for (const auto& e : json.at("traceEvents")) {
    const std::string phase = e.at("ph");
    shown += phase == "X" || phase == "b";
    if (phase == "M") continue;
    EXPECT_GE(e.at("ts").get<double>(), 0);
    if (phase == "X") {
      EXPECT_GE(e.at("dur").get<double>(), 0);
    }
  }
  EXPECT_EQ(shown, trace.events.size());
}

TEST(RankTrace, TruncatedTracesAreRefused) {
  const std::string text = written(made());
  for (std::size_t n = 0; n < text.size() - 1; n += n < 600 ? 1 : 37)
    EXPECT_FALSE(read_text(text.substr(0, n)).ok()) << n << " of " << text.size() << " bytes";
  const Status cut = read_text(text.substr(0, text.size() - 4)).status();
  EXPECT_EQ(cut.code(), Code::kCorrupt);
  EXPECT_NE(cut.what().find("trace again"), std::string::npos) << cut.what();
  std::string shorter = text;  // a line in the middle is missing
  const std::size_t line = shorter.find("\n{\"name\":\"encode");
  shorter.erase(line, shorter.find('\n', line + 1) - line);
  EXPECT_EQ(read_text(shorter).status().code(), Code::kCorrupt);
}

TEST(RankTrace, RefusesInvalidTraces) {
  for (const char* text :
       {"", "\n", "{}", "[]\n", "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n]}\n", "GIF89a"}) {
    const Status s = read_text(text).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << text;
    EXPECT_NE(s.what().find("TITHE_TRACE=FILE"), std::string::npos);
  }
  std::string later = written(made());
  later.replace(later.find("\"format\":1"), 10, "\"format\":2");
  EXPECT_EQ(read_text(later).status().code(), Code::kUnsupported);
  std::string odd = written(made());
  odd.replace(odd.find("\"world\":2"), 9, "\"world\":0");
  EXPECT_EQ(read_text(odd).status().code(), Code::kCorrupt);
  odd = written(made());
  odd.replace(odd.find("\"peer\":0"), 8, "\"peer\":9");
  const Status s = read_text(odd).status();
  EXPECT_EQ(s.code(), Code::kCorrupt);
  EXPECT_TRUE(s.what().starts_with("line ")) << s.what();
}

TEST(RankTrace, DamagedTracesAreRefusedOrValid) {
  const std::string text = written(made());
  std::uint64_t draw = 1;
  const auto next = [&](std::size_t n) { return static_cast<std::size_t>(mix64(++draw) % n); };
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    for (std::size_t k = 0; k <= next(3); ++k) {
      const std::size_t at = next(changed.size());
      if (next(2) == 0)
        changed[at] = static_cast<char>(next(256));
      else
        changed.erase(at, next(40));
      if (changed.empty()) break;
    }
    const Result<RankTrace> trace = read_text(changed);
    if (!trace.ok()) continue;
    for (const TraceEvent& e : trace->events) {
      ASSERT_LE(e.begin_ns, e.end_ns);
      ASSERT_LT(e.peer, trace->origin.world);
      ASSERT_FALSE(e.op.empty());
    }
    std::string again;
    write(trace->origin, trace->events, [&](std::string_view piece) { again += piece; });
    ASSERT_TRUE(read_text(again).ok()) << "a trace that was read can be written and read again";
  }
}

}  // namespace
}  // namespace tithe::trace
