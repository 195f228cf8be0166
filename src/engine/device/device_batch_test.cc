// SPDX-License-Identifier: Apache-2.0
// Buckets of many tensors on a GPU: the number of launches and waits, and the bits of the host path.
// TITHE_TEST_GPU=real uses a real GPU, where nothing is counted.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <deque>
#include <optional>

#include "support/gpu/gpu_bucket.h"

namespace tithe {
namespace {

using testing::at;
using testing::fake_gpu;
using testing::GpuTensors;
using testing::OnGpus;
using testing::Ranks;
using testing::text;

// fp32 tensors of odd sizes. `halves`: every third tensor is fp16 or bf16.
struct Many {
  std::deque<std::vector<float>> floats;
  std::deque<std::vector<std::uint16_t>> words;
  std::vector<std::string> keys;
  std::vector<Tensor> tensors;

  Many(Many&&) = default;  // a copy's tensors would point to the other's values
  Many(std::size_t count, Rank rank, int round, bool halves) {
    unsigned draw = static_cast<unsigned>(17 + rank + 100 * round);
    for (std::size_t k = 0; k < count; ++k) keys.push_back(fmt::format("t{:03}", k));
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t n = 1 + k * 37 % 611 + (k % 40 == 0 ? 5000 : 0);
      Tensor t{.key = keys[k], .data = nullptr, .n = n};
      std::vector<float> values;
      for (std::size_t i = 0; i < n; ++i) {
        draw = draw * 1664525U + 1013904223U;
        values.push_back((static_cast<float>(draw >> 8) * 0x1p-24F - 0.5F) * static_cast<float>(1 + k % 7));
      }
      if (halves && k % 3 == 1) {
        t.dtype = k % 2 == 0 ? DType::kF16 : DType::kBF16;
        std::vector<std::uint16_t>& to = words.emplace_back();
        for (const float v : values) to.push_back(k % 2 == 0 ? engine::to_fp16(v) : engine::to_bf16(v));
        t.data = to.data();
      } else {
        t.data = floats.emplace_back(std::move(values)).data();
      }
      tensors.push_back(t);
    }
  }
  bool operator==(const Many& other) const {
    for (std::size_t k = 0; k < tensors.size(); ++k)
      if (std::memcmp(tensors[k].data, other.tensors[k].data, tensors[k].n * bytes_of(tensors[k].dtype)) != 0)
        return false;
    return true;
  }
};

struct Calls {
  std::uint64_t launches = 0, waits = 0, copies = 0;
  static Calls now() {
    const auto of = [](const char* function) { return fake_gpu().calls_of(function); };
    return {of("cuLaunchKernel"), of("cuStreamSynchronize"),
            of("cuMemcpyHtoDAsync") + of("cuMemcpyDtoHAsync") + of("cuMemcpyDtoDAsync")};
  }
};

// Returns the calls of the driver between sync() and the end of wait(). Not counted: commit() looks for excessive
// residuals in one tensor of 64 per round (ResidualLedger::drop_excessive), with a copy and a wait for each.
Calls round(Session& session, Many& bucket, bool there, GpuTensors* kept = nullptr) {
  std::optional<GpuTensors> own;
  if (there && kept == nullptr) kept = &own.emplace();
  const std::vector<Tensor> given = there ? kept->take(bucket.tensors) : bucket.tensors;
  const Calls before = Calls::now();
  const Result<Ticket> ticket = there ? session.sync(given, kept->origin()) : session.sync(given);
  EXPECT_EQ(text(ticket.status()), "ok");
  if (!ticket.ok()) return {};
  EXPECT_EQ(text(session.wait(*ticket)), "ok");
  const Calls after = Calls::now();
  EXPECT_EQ(text(session.commit()), "ok");
  if (there) kept->read(given, bucket.tensors);
  return {after.launches - before.launches, after.waits - before.waits, after.copies - before.copies};
}

SessionOptions many_options(const std::string& codec, const std::string& strategy) {
  return {.codec = codec,
          .strategy = strategy,
          .lanes = 2,
          .min_values = 0,
          .timeout = std::chrono::seconds(900),
          .seed = 5,
          .device = "on,min_values=1"};
}

// ---- Launches, waits and copies

struct Budget {
  const char* codec;
  std::uint64_t launches, waits;
};
class Budgets : public OnGpus, public ::testing::WithParamInterface<Budget> {};

// A bucket of 161 tensors. Encode has one launch per kernel of the codec, and one wait; lists have a second wait, after
// which their lengths are known. Decode has the codec's kernels for each payload, or one kernel for all payloads; one
// launch for the largest magnitude; and one wait. Encode of topk is a radix selection with 14 kernels, because each
// digit needs the counts of all thread blocks; decode copies the base and adds the pairs, for each of two payloads.
TEST_P(Budgets, DoNotDependOnTheNumberOfTensors) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not count";
  std::array<Calls, 2> used;
  for (const std::size_t count : {1, 161}) {
    fake_gpu().reset(1);
    Ranks all(open_loop(2), many_options(GetParam().codec, "gather"));
    for (int k = 0; k < 3; ++k)
      all.each([&](Rank r) {
        Many bucket(count, r, k, false);
        const Calls calls = round(all[r], bucket, r == 1);
        if (r != 1 || k != 2) return;
        used[count == 1 ? 0 : 1] = calls;
        const std::string plan = all[r].plan_text();
        EXPECT_FALSE(testing::has(plan, "on the host")) << plan;
      });
  }
  EXPECT_EQ(used[0].launches, used[1].launches);
  EXPECT_EQ(used[0].waits, used[1].waits);
  EXPECT_EQ(used[0].copies, used[1].copies);
  EXPECT_EQ(used[1].launches, GetParam().launches);
  EXPECT_EQ(used[1].waits, GetParam().waits);
  EXPECT_LE(used[1].copies, 8U);
}
INSTANTIATE_TEST_SUITE_P(All, Budgets,
                         ::testing::Values(Budget{"fp8", 3, 2}, Budget{"onebit", 3, 2},
                                           Budget{"natural", 3, 2}, Budget{"eden:bits=3", 3, 2},
                                           Budget{"bf16", 3, 2}, Budget{"topk:ratio=0.05", 19, 3}),
                         [](const auto& of) { return std::to_string(of.index); });

// In a ring each rank also merges: the number of groups depends on the ranks, not on the tensors.
TEST_F(OnGpus, ARingHasOneBatchPerStepOfItsGraph) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not count";
  Ranks all(open_loop(2), many_options("fp8", "ring"));
  Calls used;
  for (int k = 0; k < 3; ++k)
    all.each([&](Rank r) {
      Many bucket(161, r, k, false);
      const Calls calls = round(all[r], bucket, r == 1);
      if (r == 1 && k == 2) used = calls;
    });
  // Encode and send a chunk; merge the other chunk, encode and send it; store both, with two launches each.
  EXPECT_EQ(used.launches, 7U);
  EXPECT_EQ(used.waits, 5U);
}

// ---- Bits

void expect_equal_bits(const SessionOptions& options, int rounds, std::size_t count) {
  Ranks here(open_loop(2), options), there(open_loop(2), options);
  for (int k = 0; k < rounds; ++k) {
    std::vector<Many> want, got;
    for (Rank r = 0; r < 2; ++r) want.emplace_back(count, r, k, true), got.emplace_back(count, r, k, true);
    if (k == 2)
      for (auto* both : {&want, &got}) static_cast<float*>((*both)[1].tensors[33].data)[7] = NAN;
    here.each([&](Rank r) { round(here[r], want[at(r)], false); });
    there.each([&](Rank r) { round(there[r], got[at(r)], true); });
    for (Rank r = 0; r < 2; ++r) {
      ASSERT_TRUE(want[at(r)] == got[at(r)]) << "round " << k << ", rank " << r;
      ASSERT_EQ(here[r].last_round_dropped(), k == 2);
      ASSERT_EQ(there[r].last_round_dropped(), k == 2);
      ASSERT_EQ(testing::of_any_job(here[r]), testing::of_any_job(there[r]))
          << "round " << k << ", rank " << r;
    }
  }
}

class ManyTensors : public OnGpus, public ::testing::WithParamInterface<const char*> {};
TEST_P(ManyTensors, HaveTheBitsOfTheHostPath) {
  for (const auto& [strategy, lanes] : {std::pair{"ring", 0}, {"gather", 2}, {"tree", 3}}) {
    SCOPED_TRACE(strategy);
    SessionOptions options = many_options(GetParam(), strategy);
    options.lanes = lanes;
    options.part_values = 3000;
    expect_equal_bits(options, 5, 60);
  }
}
INSTANTIATE_TEST_SUITE_P(All, ManyTensors,
                         ::testing::Values("fp8", "onebit", "eden:bits=3", "natural", "topk:ratio=0.05",
                                           "dgc:ratio=0.05", "qsgd:bits=4"),
                         [](const auto& of) { return std::to_string(of.index); });

// Tensors with their own codecs and options, some of them on the host.
TEST_F(OnGpus, TensorsKeepTheirOwnCodecs) {
  SessionOptions options = many_options("fp8", "gather");
  options.rules = testing::there(parse_rules(R"({
    "*1": "onebit", "*2": {"codec": "topk:ratio=0.1", "strategy": "ring"}, "*3": "eden:bits=3", "*4": "eden:bits=4",
    "*5": "qsgd:bits=4", "*6": "qsgd:bits=2", "*7": "fp32", "*8": "powersgd:rank=1", "*": "fp8"})"));
  expect_equal_bits(options, 4, 60);
}

// `least` counts the values of a tensor's chunks, not of the bucket.
TEST_F(OnGpus, SmallTensorsStayOnTheHostIfToldSo) {
  SessionOptions options = many_options("onebit", "gather");
  options.device = "on,min_values=400";
  Ranks one(open_loop(1), options);
  Many bucket(9, 0, 0, false);  // of 5001, 38, 75, 112, ..., 297 values
  round(one[0], bucket, true);
  const std::string plan = one[0].plan_text();
  EXPECT_TRUE(testing::has(plan, "chunks of fewer than 400 values")) << plan;
  EXPECT_TRUE(testing::has(plan, "  part 0: on GPU 0, ")) << plan;
  options.device = "on,min_values=1";
  expect_equal_bits(options, 3, 40);
}

// ---- Memory

// From round 2 on nothing is allocated, whichever lanes run the batches.
TEST_F(OnGpus, ManyTensorsNeedNoMoreMemoryAfterTheSecondRound) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a real driver does not fail on demand";
  for (const char* codec : {"fp8", "topk:ratio=0.05", "eden:bits=3"}) {
    fake_gpu().reset(1);
    Ranks all(open_loop(2), many_options(codec, "ring"));
    std::vector<Many> buckets;
    for (Rank r = 0; r < 2; ++r) buckets.emplace_back(50, r, 0, true);
    GpuTensors gpus[2];
    std::vector<std::vector<Tensor>> given(2);
    for (Rank r = 0; r < 2; ++r) given[at(r)] = gpus[r].take(buckets[at(r)].tensors);
    std::uint64_t alive = 0;
    for (int k = 0; k < 6; ++k) {
      if (k == 2) {
        alive = fake_gpu().alive();
        for (const char* more : {"cuMemAlloc", "cuMemHostAlloc", "cuEventCreate", "cuStreamCreate"})
          fake_gpu().fail(more, 1, 2, true);
      }
      all.each([&](Rank r) {
        const Result<Ticket> ticket = all[r].sync(given[at(r)], gpus[r].origin());
        ASSERT_EQ(text(ticket.status()), "ok");
        EXPECT_EQ(text(all[r].commit()), "ok") << codec << ", round " << k;
      });
    }
    EXPECT_EQ(fake_gpu().alive(), alive);
    fake_gpu().forgive();
  }
}

}  // namespace
}  // namespace tithe
