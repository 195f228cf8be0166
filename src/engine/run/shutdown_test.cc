// SPDX-License-Identifier: Apache-2.0
#include "engine/run/shutdown.h"

#include <gtest/gtest.h>

#include "support/runner_parts.h"

namespace tithe::engine {
namespace {

using std::chrono::milliseconds;

TEST(Shutdown, the_first_farewell_of_a_rank_and_its_evidence_make_its_report) {
  testing::RunnerPartsOf ranks(3);
  Shutdown& shutdown = ranks[0].state.shutdown;
  const Evidence evidence{.finding = Finding::kSilent, .witness = 7, .silent_peers = {2, 2, 9, 1}};
  const Farewell farewell{.code = Code::kTimeout, .blamed = 2, .round = 4, .what = "it sent nothing"};
  const FailureReport* report = shutdown.take_farewell(1, farewell, evidence);
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->finding, Finding::kSilent);
  EXPECT_EQ(report->witness, 1) << "rank 7 does not exist";
  EXPECT_EQ(report->silent_peers, std::vector<Rank>{2}) << "once, of this world, and not itself";
  EXPECT_EQ(shutdown.take_farewell(1, farewell, evidence), nullptr);
  EXPECT_EQ(shutdown.take_farewell(2, farewell, std::nullopt)->finding, Finding::kAccused);
}

// Rank 1 reports that rank 0 is silent to it. Rank 0 receives nothing from rank 1 either, so it reports that too.
TEST(Shutdown, a_rank_reports_its_accuser_if_neither_receives_from_the_other) {
  for (const bool answers : {true, false}) {
    testing::RunnerPartsOf ranks(3);
    RunnerState& state = ranks[0].state;
    state.peer(1).last_message = state.now() - milliseconds(answers ? 100 : 900);
    ranks[0].failures.fail({Finding::kSilent, {Code::kTimeout, "it sent nothing", 0}, 1});
    state.shutdown.send_report(*state.transport, state.peers, 0, true, state.now());
    EXPECT_TRUE(state.shutdown.report_sent());
    EXPECT_EQ(state.shutdown.silent(1), !answers);
  }
}

}  // namespace
}  // namespace tithe::engine
