// SPDX-License-Identifier: Apache-2.0
// Residuals and codec memories stay on a GPU between rounds, and residuals move between the GPU and the host.
// TITHE_TEST_GPU=real uses a real GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "support/gpu/gpu_bucket.h"

namespace tithe {
namespace {

using testing::Bucket;
using testing::fake_gpu;
using testing::GpuTensors;
using testing::OnGpus;
using testing::Ranks;
using testing::round;
using testing::text;

// From round 2 on, all driver calls that create something fail: a steady round must make none of them.
TEST_F(OnGpus, SteadyRoundsCreateNoDriverObjects) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not fail on demand";
  for (const char* codec : {"onebit", "fp8", "powersgd:rank=1"}) {
    fake_gpu().reset(1);
    Ranks here(open_loop(1), options(codec)), there(open_loop(1), options(codec));
    Bucket want(0, 0), got(0, 0);
    GpuTensors gpu;
    const std::vector<Tensor> on_gpu = gpu.take(got.tensors());
    for (int k = 0; k < 5; ++k) {
      if (k == 2)
        for (const char* more :
             {"cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuStreamCreate", "cuModuleLoadData"})
          fake_gpu().fail(more, 1, 2, true);
      EXPECT_EQ(text(round(here[0], want, false)), "ok");
      const Result<Ticket> ticket = there[0].sync(on_gpu, gpu.origin());
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      EXPECT_EQ(text(there[0].commit()), "ok") << codec << ", round " << k;
    }
    fake_gpu().forgive();
    gpu.read(on_gpu, got.tensors());
    EXPECT_TRUE(want == got) << codec;
  }
}

// A state without the number of its job, which differs between two jobs, and without the checksum
// (docs/reference/format_state.md, "State").
std::vector<std::uint8_t> of_any_job(std::vector<std::uint8_t> state) {
  state.resize(state.size() - 8);
  std::fill_n(state.begin() + 24, 8, std::uint8_t{0});
  return state;
}

// Other choices, other groups, and another session that resumes from the state: residuals move between the GPU and
// the host, and between parts, without a change of any bit.
TEST_F(OnGpus, ResidualsFollowChoicesGroupsAndStates) {
  for (const char* other : {"fp8", "topk:ratio=0.05", "powersgd:rank=1"}) {
    std::vector<std::vector<std::uint8_t>> states;
    std::vector<Bucket> last;
    for (const bool there : {false, true}) {
      std::optional<Ranks> one(std::in_place, open_loop(1), options("onebit"));
      const auto go = [&](int k, bool apart) {
        Bucket bucket(0, k);
        std::vector<Tensor> whole = bucket.tensors();
        const auto groups =
            apart ? std::vector<std::vector<Tensor>>{{whole[0], whole[2]}, {whole[1], whole[3], whole[4]}}
                  : std::vector<std::vector<Tensor>>{whole};
        GpuTensors gpu[2];
        std::vector<Tensor> on_gpu[2];
        for (std::size_t g = 0; g < groups.size(); ++g) {
          if (there) on_gpu[g] = gpu[g].take(groups[g]);
          const Result<Ticket> ticket =
              there ? (*one)[0].sync(on_gpu[g], gpu[g].origin()) : (*one)[0].sync(groups[g]);
          ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        }
        EXPECT_EQ(text((*one)[0].commit()), "ok");
        for (std::size_t g = 0; g < groups.size() && there; ++g) gpu[g].read(on_gpu[g], groups[g]);
        last.push_back(bucket);
      };
      go(0, false);
      EXPECT_EQ(text((*one)[0].propose(fmt::format(R"({{"*": "{}"}})", other))), "ok");
      for (int k = 1; k < 4; ++k) go(k, false);
      go(4, true);
      states.push_back(*(*one)[0].state());
      one.emplace(open_loop(1), options("onebit"));
      EXPECT_EQ(text((*one)[0].restore(states.back())), "ok");
      go(5, true);
      states.push_back(*(*one)[0].state());
    }
    for (std::size_t k = 0; k < 2; ++k)
      EXPECT_TRUE(of_any_job(states[k]) == of_any_job(states[k + 2])) << other << ", state " << k;
    for (std::size_t k = 0; k < last.size() / 2; ++k)
      EXPECT_TRUE(last[k] == last[k + last.size() / 2]) << other << ", round " << k;
  }
}

}  // namespace
}  // namespace tithe
