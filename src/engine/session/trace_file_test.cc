// SPDX-License-Identifier: Apache-2.0
// The trace file of a session, requested by TITHE_TRACE or SessionOptions::trace.
#include "engine/session/trace_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "support/ranks.h"
#include "trace/clocks.h"

namespace tithe {
namespace {

namespace fs = std::filesystem;
using engine::trace_path;
using testing::Ranks;
using testing::text;

struct Folder {
  Folder() : path(fs::temp_directory_path() / ("tithe_trace_" + std::to_string(getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const char* name) const { return (path / name).string(); }
  std::set<std::string> names() const {
    std::set<std::string> all;
    for (const auto& entry : fs::directory_iterator(path)) all.insert(entry.path().filename());
    return all;
  }
  fs::path path;
};

trace::RankTrace read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Result<trace::RankTrace> t = trace::read(in);
  EXPECT_TRUE(t.ok()) << path << ": " << t.status().what();
  return std::move(*t);
}

Status round_of(Session& session, std::vector<float>& v) {
  const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
  const Result<Ticket> ticket = session.sync({&t, 1});
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

TEST(TraceFile, PathsContainTheRank) {
  EXPECT_EQ(trace_path("trace.json", 3, 1), "trace.rank3.json");
  EXPECT_EQ(trace_path("a.b/trace", 0, 1), "a.b/trace.rank0");
  EXPECT_EQ(trace_path("/x/.trace", 0, 1), "/x/.trace.rank0");
  EXPECT_EQ(trace_path("t{rank}of.json", 12, 1), "t12of.json");
  EXPECT_EQ(trace_path("trace.json", 3, 2), "trace.2.rank3.json")
      << "trace.rank*.json must match the files of one session only";
  EXPECT_EQ(trace_path("t{rank}.json", 3, 2), "t3.2.json");
}

TEST(TraceFile, early_refuses_an_unwritable_path) {
  const Folder folder;
  for (const std::string& pattern : {folder / "nowhere/trace.json", folder / "folder.json"}) {
    fs::create_directories(folder.path / "folder.rank0.json");
    auto ranks = open_loop(1);
    const auto opened = Session::open(std::move(ranks[0]), {.trace = pattern});
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), Code::kIo);
    EXPECT_NE(opened.status().what().find(".rank0.json"), std::string::npos) << opened.status().what();
  }
}

TEST(TraceFile, whole_trace_is_written_at_the_end) {
  const Folder folder;
  {
    Ranks ranks(open_loop(3), {.codec = "onebit", .strategy = "ring", .run = 5, .trace = folder / "t.json"});
    ranks.each([&](Rank r) {
      std::vector<float> v(20'000, 1.0F);
      for (int round = 0; round < 4; ++round) ASSERT_TRUE(round_of(ranks[r], v).ok());
      ranks[r].mark("mine", 1, 2);
      EXPECT_TRUE(ranks[r].take_trace().empty()) << "a recording for a file does not start a trace in memory";
    });
    EXPECT_EQ(folder.names(),
              (std::set<std::string>{"t.rank0.json.part", "t.rank1.json.part", "t.rank2.json.part"}));
  }
  EXPECT_EQ(folder.names(), (std::set<std::string>{"t.rank0.json", "t.rank1.json", "t.rank2.json"}));
  std::vector<trace::RankTrace> traces;
  for (const char* name : {"t.rank0.json", "t.rank1.json", "t.rank2.json"})
    traces.push_back(read(folder / name));
  ASSERT_TRUE(trace::check_ranks(traces).ok());
  EXPECT_EQ(traces[1].origin.run, 5U);
  std::map<std::string_view, int> count;
  for (const TraceEvent& e : traces[1].events) ++count[e.op];
  EXPECT_EQ(count["send"], 4 * 4);
  EXPECT_EQ(count["recv"], 4 * 4);
  EXPECT_EQ(count["commit"], 4);
  EXPECT_EQ(count["mine"], 1);
  const auto matched = trace::match(traces);
  ASSERT_TRUE(matched.ok()) << text(matched.status());
  EXPECT_EQ(matched->messages.size(), 3 * 4 * 4U);
  EXPECT_EQ(matched->alone, 0U);
  const auto clocks = trace::align(traces, matched->messages);
  ASSERT_TRUE(clocks.ok()) << text(clocks.status());
  for (const trace::Clock& c : *clocks)
    EXPECT_LE(std::abs(c.ahead(0)), c.error_ns()) << "all ranks have the same clock";
}

// Simulates a full disk by a limit on the size of files.
TEST(TraceFile, AFullDiskIsReportedAndLeavesNoPartialFile) {
  const Folder folder;
  Ranks ranks(open_loop(1), {.trace = folder / "full.json"});
  std::vector<float> v(20'000, 1.0F);
  ASSERT_TRUE(round_of(ranks[0], v).ok());
  rlimit had{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &had), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{100, had.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const Status status = ranks[0].write_trace();
  setrlimit(RLIMIT_FSIZE, &had);
  EXPECT_EQ(status.code(), Code::kIo) << text(status);
  EXPECT_NE(status.what().find("full.rank0.json: cannot write: File too large"), std::string::npos)
      << text(status);
  EXPECT_EQ(folder.names(), std::set<std::string>{});
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(ranks[0].write_trace().ok()) << "without the limit the file is written";
  EXPECT_EQ(folder.names(), std::set<std::string>{"full.rank0.json"});
}

TEST(TraceFile, own_file_for_each_session_and_rank) {
  const Folder folder;
  const std::string pattern = folder / "g.json";
  for (int session = 0; session < 2; ++session) Ranks(open_loop(2), {.trace = pattern});
  EXPECT_EQ(folder.names(),
            (std::set<std::string>{"g.2.rank0.json", "g.2.rank1.json", "g.rank0.json", "g.rank1.json"}));
}

TEST(TraceFile, TheEnvironmentVariableEnablesIt) {
  const Folder folder;
  setenv("TITHE_TRACE", (folder / "env.json").c_str(), 1);
  { const Ranks one(open_loop(1), {}); }
  { const Ranks one(open_loop(1), {.trace = folder / "option.json"}); }
  unsetenv("TITHE_TRACE");
  EXPECT_EQ(folder.names(), (std::set<std::string>{"env.rank0.json", "option.rank0.json"}));
}

// A failed session may never be closed, so the failing call writes the file.
TEST(TraceFile, AFailedSessionWritesIt) {
  const Folder folder;
  Ranks ranks(open_loop(2), {.codec = "fp32", .trace = folder / "f.json"});
  ranks.each([&](Rank r) {
    std::vector<float> v(20'000, 1.0F);
    ASSERT_TRUE(round_of(ranks[r], v).ok());
    if (r == 1) {
      ranks.close(1);
    } else {
      EXPECT_FALSE(round_of(ranks[0], v).ok());
      EXPECT_TRUE(folder.names().contains("f.rank0.json"));
    }
  });
}

}  // namespace
}  // namespace tithe
