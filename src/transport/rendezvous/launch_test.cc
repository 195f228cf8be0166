// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tithe/connect.h"

namespace tithe {
namespace {

using Variables = std::map<std::string, std::string>;

// The launch for these variables, with all other launcher variables unset.
Result<Launch> launch_under(const Variables& variables) {
  constexpr const char* kAll[] = {
      "RANK",       "WORLD_SIZE",   "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK",
      "PMI_SIZE",   "SLURM_PROCID", "SLURM_NTASKS",         "MASTER_ADDR",          "MASTER_PORT",
      "TITHE_FILE", "TITHE_TOKEN",  "TITHE_TOKEN_FILE"};
  Variables before;
  for (const char* name : kAll) {
    if (const char* v = std::getenv(name)) before[name] = v;
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  Result<Launch> out = launch_from_environment();
  for (const char* name : kAll) unsetenv(name);
  for (const auto& [name, value] : before) setenv(name.c_str(), value.c_str(), 1);
  return out;
}

Variables operator+(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kMaster{{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}};

TEST(Launch, every_launcher_is_recognised) {
  for (const auto& [rank, world] : {std::pair{"RANK", "WORLD_SIZE"},
                                    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                    {"PMI_RANK", "PMI_SIZE"},
                                    {"SLURM_PROCID", "SLURM_NTASKS"}}) {
    const auto launch = launch_under(kMaster + Variables{{rank, "3"}, {world, "8"}});
    ASSERT_TRUE(launch.ok()) << launch.status().what();
    EXPECT_EQ(launch->rank, 3);
    EXPECT_EQ(launch->world, 8);
    EXPECT_EQ(launch->host, "node7");
    EXPECT_EQ(launch->port, 29500);
    EXPECT_EQ(launch->file, "");
  }
}

TEST(Launch, torchrun_inside_mpirun_inside_slurm) {
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}};
  const Variables mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
  const Variables torch{{"RANK", "5"}, {"WORLD_SIZE", "16"}};
  EXPECT_EQ(launch_under(kMaster + slurm + mpi)->world, 4);
  EXPECT_EQ(launch_under(kMaster + slurm + mpi + torch)->world, 16);
}

TEST(Launch, a_file_instead_of_a_host) {
  const auto launch = launch_under({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TITHE_FILE", "/shared/job7"}});
  ASSERT_TRUE(launch.ok());
  EXPECT_EQ(launch->file, "/shared/job7");
  EXPECT_EQ(launch->host, "");
}

TEST(Launch, one_rank_needs_no_endpoint) {
  EXPECT_TRUE(launch_under({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).ok());
}

TEST(Launch, names_what_is_missing_or_wrong) {
  const Variables place{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  const auto expect = [](const Variables& v, const char* culprit) {
    const Status s = launch_under(v).status();
    EXPECT_EQ(s.code(), Code::kInvalid) << culprit;
    EXPECT_NE(s.what().find(culprit), std::string::npos) << s.what();
  };
  expect(kMaster, "RANK");
  expect(kMaster + Variables{{"RANK", "0"}}, "WORLD_SIZE");
  expect(kMaster + Variables{{"SLURM_PROCID", "0"}}, "SLURM_NTASKS");
  expect(kMaster + Variables{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK=2");
  expect(kMaster + Variables{{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, "RANK=-1");
  expect(kMaster + Variables{{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "WORLD_SIZE=two");
  expect(kMaster + Variables{{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "WORLD_SIZE=0");
  expect(place, "MASTER_ADDR");
  expect(place + Variables{{"MASTER_ADDR", "node7"}}, "MASTER_PORT");
  expect(place + Variables{{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "0"}}, "MASTER_PORT=0");
  expect(place + Variables{{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "99999"}}, "MASTER_PORT=99999");
}

}  // namespace
}  // namespace tithe
