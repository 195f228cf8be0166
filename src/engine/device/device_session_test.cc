// SPDX-License-Identifier: Apache-2.0
// Sessions with buckets on a GPU, by default a fake one (tests/support/gpu/fake_gpu.h): the same bits as from host
// memory, and failures. TITHE_TEST_GPU=real uses a real GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/gpu/gpu_bucket.h"
#include "tithe/tithe.h"

namespace tithe {
namespace {

using testing::at;
using testing::Bucket;
using testing::fake_gpu;
using testing::GpuTensors;
using testing::has;
using testing::OnGpus;
using testing::Ranks;
using testing::round;
using testing::text;

class Codecs : public OnGpus, public ::testing::WithParamInterface<const char*> {};

// In `there`, the bucket of rank 0 alternates between the GPU and the host, and the bucket of rank 1 is on the GPU.
// In `here`, all buckets are on the host.
TEST_P(Codecs, equal_bits_on_host_and_gpu) {
  for (const auto& [strategy, lanes] : {std::pair{"ring", 0}, {"gather", 2}}) {
    SessionOptions o = options(GetParam());
    o.strategy = strategy;
    o.lanes = lanes;
    Ranks here(open_loop(2), o), there(open_loop(2), o);
    for (int k = 0; k < 5; ++k) {
      std::vector<Bucket> want, got;
      for (Rank r = 0; r < 2; ++r) want.emplace_back(r, k), got.emplace_back(r, k);
      if (k == 2)
        for (auto* all : {&want, &got}) (*all)[1].large[77] = NAN;
      here.each([&](Rank r) { EXPECT_EQ(text(round(here[r], want[at(r)], false)), "ok"); });
      there.each([&](Rank r) {
        EXPECT_EQ(text(round(there[r], got[at(r)], r == 1 || k % 2 == 0, k % 3 != 0)), "ok");
      });
      for (Rank r = 0; r < 2; ++r) {
        ASSERT_TRUE(want[at(r)] == got[at(r)]) << "round " << k << ", rank " << r << ", " << strategy;
        ASSERT_EQ(here[r].last_round_dropped(), there[r].last_round_dropped());
        if (k == 1 || k == 4) {
          ASSERT_EQ(testing::of_any_job(here[r]), testing::of_any_job(there[r]))
              << "round " << k << ", rank " << r;
        }
      }
    }
    EXPECT_EQ(here[1].stats().gradient_norm, there[1].stats().gradient_norm);
    EXPECT_EQ(here[1].stats().residual_norm, there[1].stats().residual_norm);
  }
}
INSTANTIATE_TEST_SUITE_P(All, Codecs,
                         ::testing::Values("fp8", "onebit", "qsgd:bits=4", "topk:ratio=0.05", "natural",
                                           "onebit:feedback=none", "dgc:ratio=0.05", "eden:bits=3",
                                           "eden:bits=4,scale=unbiased,feedback=none", "powersgd:rank=1",
                                           "bf16"),
                         [](const auto& of) { return std::to_string(of.index); });

TEST_F(OnGpus, listed_are_the_path_of_each_part_and_the_reason) {
  const auto plan_of = [](const SessionOptions& o, std::vector<std::string>* lines = nullptr) {
    Ranks one(open_loop(1), o);
    Bucket bucket(0, 0);
    EXPECT_EQ(text(round(one[0], bucket, true)), "ok");
    if (lines != nullptr) *lines = one[0].messages();
    return one[0].plan_text();
  };
  SessionOptions o = options("onebit");
  std::vector<std::string> lines;
  EXPECT_TRUE(has(plan_of(o, &lines), "  parts 0, 1, 2, 3, 4, 5, 6: on GPU 0, ")) << plan_of(o);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(has(lines[0], "0.1 MB for residuals and copies of the bucket of 'small' and 4 other tensors"))
      << lines[0];
  o.device = "on";
  EXPECT_TRUE(has(plan_of(o), "on the host: parts 0, 1, 2, 3, 4, 5, 6: chunks of fewer than 65536 "))
      << plan_of(o);
  o.device = "off";
  EXPECT_TRUE(has(plan_of(o), ": device=off\n"));
  EXPECT_TRUE(has(plan_of(options("dgc:feedback=momentum")), ": its feedback is momentum\n"));
  EXPECT_TRUE(has(plan_of(options("onebit:clip=1")), ": its gradient is clipped\n"));
  EXPECT_TRUE(has(plan_of(options("qsgd_shared")), ": qsgd_shared has phases\n"));
  EXPECT_TRUE(has(plan_of(options("powersgd:rank=1")), "on the host: "));
  EXPECT_TRUE(
      has(plan_of(options("zip")), ": tithe generates no kernels for this codec with these settings\n"));
}

TEST_F(OnGpus, TensorsInWrongMemoryAreRefusedBeforeAnyWork) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "the machine may have one GPU";
  fake_gpu().set_devices(2);
  Ranks one(open_loop(1), options("onebit"));
  Bucket bucket(0, 0);
  const std::vector<Tensor> here = bucket.tensors();
  GpuTensors gpu, other(1);
  std::vector<Tensor> mixed = gpu.take(here);
  const std::vector<Tensor> right = mixed;
  mixed[2] = other.take(here)[2];
  Result<Ticket> ticket = one[0].sync(mixed, gpu.origin());
  EXPECT_EQ(text(ticket.status()),
            "invalid: tensor 'large' is on GPU 1, and its bucket was passed as data on GPU 0");
  mixed[2] = here[2];
  ticket = one[0].sync(mixed, gpu.origin());
  EXPECT_EQ(text(ticket.status()),
            "invalid: tensor 'large' is in host memory, and its bucket was passed as data on GPU 0");
  ticket = one[0].sync(right, {.device = 2, .stream = 0});
  EXPECT_EQ(text(ticket.status()), "unsupported: a bucket on GPU 2: there is no GPU 2: the driver has 2");
  ticket = one[0].sync(right, gpu.origin());
  ASSERT_TRUE(ticket.ok()) << text(ticket.status());
  EXPECT_EQ(text(one[0].wait(*ticket)), "ok");
  EXPECT_EQ(text(one[0].commit()), "ok");
}

TEST_F(OnGpus, InvalidValuesOfTheOptionAreRefused) {
  for (const char* wrong :
       {"", "yes", "on,min_values=", "on,min_values=0", "on,min_values=-1", "on,min_values=1k", "ON"}) {
    SessionOptions o = options("onebit");
    o.device = wrong;
    Ranks one(open_loop(1), o);
    EXPECT_EQ(one.open_status(0).code(), Code::kInvalid) << wrong;
    EXPECT_TRUE(has(one.open_status(0).what(), "must be off, on, or on,min_values=")) << wrong;
  }
}

TEST_F(OnGpus, MoveFromOneGpuToAnother) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "the machine may have one GPU";
  fake_gpu().set_devices(2);
  Ranks here(open_loop(1), options("onebit")), there(open_loop(1), options("onebit"));
  for (int k = 0; k < 4; ++k) {
    Bucket want(0, k), got(0, k);
    EXPECT_EQ(text(round(here[0], want, false)), "ok");
    GpuTensors gpu(k / 2);
    const std::vector<Tensor> on_gpu = gpu.take(got.tensors());
    const Result<Ticket> ticket = there[0].sync(on_gpu, gpu.origin());
    ASSERT_TRUE(ticket.ok()) << text(ticket.status());
    EXPECT_EQ(text(there[0].commit()), "ok");
    gpu.read(on_gpu, got.tensors());
    EXPECT_TRUE(want == got) << k;
  }
  EXPECT_EQ(testing::of_any_job(here[0]), testing::of_any_job(there[0]));
}

// If GPU memory is short, the parts that do not fit run on the host, one message says so, and the bits are the same.
TEST_F(OnGpus, fallback_to_the_host_if_memory_is_short) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real GPU has more memory";
  std::size_t parts = 0, codecs = 0;
  for (const std::uint64_t kilobytes : {70, 100, 130, 160, 200, 240}) {
    fake_gpu().reset(kilobytes);
    Ranks here(open_loop(1), options("onebit")), there(open_loop(1), options("onebit"));
    fake_gpu().set_memory(kilobytes << 10);
    std::vector<std::string> lines;
    for (int k = 0; k < 2; ++k) {
      Bucket want(0, k), got(0, k);
      EXPECT_EQ(text(round(here[0], want, false)), "ok");
      EXPECT_EQ(text(round(there[0], got, true)), "ok");
      EXPECT_TRUE(want == got) << k;
      for (const std::string& line : there[0].messages())
        if (has(line, " cannot allocate ")) lines.push_back(line);
    }
    for (const std::string& line : lines) {
      parts += has(line, "runs on the host: a fake GPU cannot allocate ") ? 1 : 0;
      codecs += has(line, "onebit: on the host: a fake GPU cannot allocate ") ? 1 : 0;
      EXPECT_EQ(std::ranges::count(lines, line), 1) << line;
    }
    EXPECT_EQ(lines.empty(), !has(there[0].plan_text(), " cannot allocate "));
  }
  EXPECT_GT(parts, 0U);
  EXPECT_GT(codecs, 0U);
  fake_gpu().reset(1);
}

// Every call of the driver fails once: either the round's result is right, or the session ends with an error.
TEST_F(OnGpus, EachDriverFailureIsReportedOrHarmless) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not fail on demand";
  std::vector<Bucket> want;
  {
    Ranks here(open_loop(1), options("onebit"));
    for (int k = 0; k < 2; ++k) EXPECT_EQ(text(round(here[0], want.emplace_back(0, k), false)), "ok");
  }
  unsigned reported = 0, passed = 0;
  for (unsigned nth = 1;; nth += 1 + nth / 8) {
    fake_gpu().reset(nth);
    bool over = false;
    {
      Ranks there(open_loop(1), options("onebit"));
      Bucket first(0, 0), second(0, 1);
      EXPECT_EQ(text(round(there[0], first, true)), "ok");
      GpuTensors gpu;
      const std::vector<Tensor> on_gpu = gpu.take(second.tensors());
      const std::uint64_t calls = fake_gpu().calls();
      fake_gpu().fail("*", nth, 1, false);
      const auto all = [&]() -> Status {
        const Result<Ticket> ticket = there[0].sync(on_gpu, gpu.origin());
        if (!ticket.ok()) return ticket.status();
        TITHE_TRY(there[0].wait(*ticket));
        return there[0].commit();
      };
      const Status status = all();
      over = fake_gpu().calls() - calls < nth;
      fake_gpu().forgive();  // else the planned failure may hit a call of this test
      if (status.ok() && !over) {
        gpu.read(on_gpu, second.tensors());
        EXPECT_TRUE(second == want[1]) << nth;
        ++passed;
      } else if (!status.ok()) {
        ++reported;
        const bool wrong_memory = status.code() == Code::kInvalid && has(status.what(), " is in ");
        EXPECT_TRUE(wrong_memory || status.code() == Code::kIo) << text(status);
        EXPECT_TRUE(wrong_memory || has(status.what(), "CUDA_ERROR_INVALID_VALUE")) << text(status);
      }
      EXPECT_STREQ(fake_gpu().problem(), "");
    }
    if (over) break;
  }
  EXPECT_GT(reported, 5U);
  RecordProperty("passed", static_cast<int>(passed));
  fake_gpu().reset(1);
}

// The context is lost during a round: both sessions end, and the residuals on the GPU are lost.
TEST_F(OnGpus, ALostContextEndsTheSession) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "the test would break a real GPU";
  for (const int lanes : {0, 2}) {
    fake_gpu().reset(1);
    SessionOptions o = options("onebit");
    o.lanes = lanes;
    Ranks all(open_loop(2), o);
    std::vector<std::vector<std::uint8_t>> saved(2);
    all.each([&](Rank r) {
      Bucket bucket(r, 0);
      EXPECT_EQ(text(round(all[r], bucket, r == 1)), "ok");
      saved[at(r)] = *all[r].state();
    });
    fake_gpu().fail("kernel", 9, 719, true);
    all.each([&](Rank r) {
      Bucket bucket(r, 1);
      const Status status = round(all[r], bucket, r == 1);
      EXPECT_FALSE(status.ok());
      EXPECT_TRUE(has(status.what(), "CUDA_ERROR_LAUNCH_FAILED")) << text(status);
    });
    const auto state = all[1].state();
    EXPECT_EQ(state.status().code(), Code::kIo);
    EXPECT_TRUE(has(state.status().what(), "resume from a state that was saved earlier"))
        << text(state.status());
    EXPECT_TRUE(all[1].common_state().ok());
    EXPECT_EQ(*all[0].state(), saved[0]);
  }
  fake_gpu().reset(1);
}

// The driver fails in sync(): the session ends on both ranks, and both name the failed rank.
TEST_F(OnGpus, AFailureInSyncEndsTheSession) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not fail on demand";
  for (const int lanes : {0, 2}) {
    fake_gpu().reset(1);
    SessionOptions o = options("onebit");
    o.lanes = lanes;
    Ranks all(open_loop(2), o);
    fake_gpu().fail("cuEventRecord", 1, 1, true);
    all.each([&](Rank r) {
      Bucket bucket(r, 0);
      const Status status = round(all[r], bucket, r == 1);
      EXPECT_EQ(status.code(), Code::kIo) << text(status);
      EXPECT_TRUE(has(status.what(), "CUDA_ERROR_INVALID_VALUE")) << text(status);
      EXPECT_EQ(all[r].commit().peer(), 1) << "a round without the bucket cannot be committed";
    });
  }
  fake_gpu().reset(1);
}

TEST_F(OnGpus, TheCInterfaceAcceptsGpuTensorsAndUndo) {
  std::vector<std::vector<float>> kept;
  for (const bool there : {false, true}) {
    tithe_transport* transport = nullptr;
    tithe_session* session = nullptr;
    tithe_options o;
    tithe_options_init(&o);
    o.codec = "onebit";
    o.min_values = 0;
    o.lanes = 0;
    o.undo = 1;
    o.device = "on,min_values=1";
    ASSERT_EQ(tithe_open_loop(1, &transport, nullptr), TITHE_OK);
    ASSERT_EQ(tithe_session_open(transport, &o, &session, nullptr), TITHE_OK);
    std::vector<float> values, left(9000);
    for (int k = 0; k < 4; ++k) {
      values = Bucket(0, k).large;
      const Tensor here{.key = "w", .data = values.data(), .n = values.size()};
      GpuTensors gpu;
      const std::vector<Tensor> on_gpu = gpu.take({&here, 1});
      const tithe_tensor t{"w", there ? on_gpu[0].data : here.data, here.n, TITHE_F32, 0, nullptr};
      void* const stream = reinterpret_cast<void*>(gpu.origin().stream);  // NOLINT(performance-no-int-to-ptr)
      std::uint64_t ticket = 0;
      ASSERT_EQ(there ? tithe_sync_on(session, &t, 1, 0, stream, &ticket, nullptr)
                      : tithe_sync(session, &t, 1, &ticket, nullptr),
                TITHE_OK);
      ASSERT_EQ(tithe_commit(session, nullptr), TITHE_OK);
      if (there) gpu.read(on_gpu, {&here, 1});
      if (k == 1) {
        ASSERT_EQ(tithe_undo(session, nullptr), TITHE_OK);
      }
    }
    ASSERT_EQ(tithe_residual(session, "w", left.data(), left.size(), nullptr), TITHE_OK);
    EXPECT_EQ(tithe_sync_on(session, nullptr, 0, -1, nullptr, nullptr, nullptr), TITHE_INVALID);
    tithe_session_close(session);
    kept.push_back(values);
    kept.push_back(left);
  }
  EXPECT_EQ(kept[0], kept[2]);
  EXPECT_EQ(kept[1], kept[3]);
}

// A child of fork() must not use its parent's GPU.
TEST_F(OnGpus, AForkedChildIsRefused) {
  Ranks one(open_loop(1), options("onebit"));
  Bucket bucket(0, 0);
  GpuTensors gpu;
  const std::vector<Tensor> on_gpu = gpu.take(bucket.tensors());
  Result<Ticket> ticket = one[0].sync(on_gpu, gpu.origin());
  EXPECT_EQ(text(one[0].commit()), "ok");
  const ::pid_t child = ::fork();
  if (child == 0) {
    const Result<Ticket> refused = one[0].sync(on_gpu, gpu.origin());
    ::_exit(refused.status().code() == Code::kInvalid && has(refused.status().what(), "before a fork") ? 0
                                                                                                       : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ticket = one[0].sync(on_gpu, gpu.origin());
  EXPECT_EQ(text(one[0].commit()), "ok");
}

}  // namespace
}  // namespace tithe
