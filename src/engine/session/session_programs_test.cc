// SPDX-License-Identifier: Apache-2.0
// Sessions whose codec is a file in the codec language.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/ledger.h"
#include "support/values.h"
#include "tithe/tithe.h"

namespace tithe {
namespace {

namespace fs = std::filesystem;

using testing::Ranks;
using testing::text;

class SessionPrograms : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TITHE_CXX", "none", 1);
    folder_ = fs::temp_directory_path() / ("tithe_programs_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    ::unsetenv("TITHE_CXX");
    fs::remove_all(folder_);
  }
  std::string write(const std::string& name, const std::string& doc) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path) << "codec half \"" << doc << "\"\nsend\n  v: f32[] = x\ndecode\n  v\n";
    return path;
  }
  static Status step(Session& session) {
    std::vector<float> v(5000, 1.0F);
    const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
    const Result<Ticket> ticket = session.sync({&t, 1});
    if (!ticket.ok()) return ticket.status();
    return session.wait(*ticket);
  }
  fs::path folder_;
};

TEST_F(SessionPrograms, ARankWithADifferingProgramOfTheSameNameIsNamed) {
  const std::string most = write("a.codec", "as all have it"), odd = write("b.codec", "one word differs");
  Ranks ranks(open_loop(3), SessionOptions{.codec = most, .lanes = 0}, [&](Rank r, SessionOptions& o) {
    if (r == 1) o.codec = odd;
  });
  ranks.each([&](Rank r) {
    const Status s = step(ranks[r]);
    EXPECT_EQ(s.code(), Code::kMismatch) << text(s);
    EXPECT_EQ(s.peer(), 1) << text(s);
    EXPECT_NE(s.what().find("codec half@"), std::string::npos) << text(s);
    EXPECT_NE(s.what().find(" instead of half@"), std::string::npos) << text(s);
  });
}

TEST_F(SessionPrograms, EqualContentUnderOtherNamesIsOneCodec) {
  const std::string one = write("a.codec", "the same"), two = write("b.codec", "the same");
  Ranks ranks(open_loop(2), SessionOptions{.codec = one, .lanes = 0}, [&](Rank r, SessionOptions& o) {
    if (r == 1) o.codec = two;
  });
  ranks.each([&](Rank r) {
    const Status s = step(ranks[r]);
    EXPECT_TRUE(s.ok()) << text(s);
  });
}

// A file of codecs/ with several phases gives the same bits as the library's codec of that name.
TEST_F(SessionPrograms, PhasesGiveTheResultsOfTheLibrarysCodec) {
  const auto results = [](const std::string& codec, const std::string& strategy) {
    Ranks ranks(open_loop(3), SessionOptions{.codec = codec, .strategy = strategy, .lanes = 0});
    std::vector<std::vector<float>> all(3);
    ranks.each([&](Rank r) {
      for (unsigned round = 0; round < 3; ++round) {
        std::vector<float> v =
            harness::values(harness::Data::kHeavy, 3001, 10 * round + static_cast<unsigned>(r));
        const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
        const Result<Ticket> ticket = ranks[r].sync({&t, 1});
        ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        const Status s = ranks[r].wait(*ticket);
        ASSERT_TRUE(s.ok()) << text(s);
        ASSERT_TRUE(ranks[r].commit().ok());
        all[static_cast<std::size_t>(r)].insert(all[static_cast<std::size_t>(r)].end(), v.begin(), v.end());
      }
    });
    return all;
  };
  for (const char* strategy : {"ring", "server", "tree"})
    for (const char* name : {"qsgd_shared", "terngrad_shared", "scalecom"}) {
      const auto want = results(name, strategy);
      const auto got = results(std::string(TITHE_SOURCE_DIR "/codecs/") + name + ".codec", strategy);
      EXPECT_EQ(got, want) << name << " by " << strategy;
      EXPECT_EQ(got[0], got[1]);
      EXPECT_EQ(got[0], got[2]);
      EXPECT_NE(got[0], std::vector<float>(got[0].size()));
    }
}

}  // namespace
}  // namespace tithe
