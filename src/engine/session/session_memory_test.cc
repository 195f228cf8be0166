// SPDX-License-Identifier: Apache-2.0
// The memory of a session: docs/reference/resources.md, "Memory".
#include <gtest/gtest.h>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/program/convert.h"
#include "support/allocation_limit.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

constexpr int kRoundsToForget = 16;  // as documented in session.h

using Floats = std::vector<float>;

Floats wave(std::size_t n, int salt) {
  Floats v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = std::sin(static_cast<float>(5 * i) + static_cast<float>(salt));
  return v;
}

struct Named {
  std::string key;
  Floats values;
};

Status round_of(Session& session, std::vector<Named*> bucket) {
  std::vector<Tensor> tensors;
  for (Named* t : bucket) tensors.push_back({.key = t->key, .data = t->values.data(), .n = t->values.size()});
  const Result<Ticket> ticket = session.sync(tensors);
  if (!ticket.ok()) return ticket.status();
  TITHE_TRY(session.wait(*ticket));
  return session.commit();
}

std::size_t layouts(const Session& session) {
  const std::string plan = session.plan_text();
  std::size_t count = 0;
  for (std::size_t at = plan.find("layout "); at != std::string::npos; at = plan.find("layout ", at + 1))
    ++count;
  return count;
}

// The bytes that a world allocates for n values per rank besides the gradients, after three rounds.
double held_by(const SessionOptions& options, int world, std::size_t n) {
  std::vector<Named> gradients;
  for (Rank r = 0; r < world; ++r) gradients.push_back({"w", wave(n, r)});
  const std::int64_t before = testing::allocated_bytes();
  Ranks ranks(open_loop(world), options);
  ranks.each([&](Rank r) {
    for (int k = 0; k < 3; ++k)
      ASSERT_TRUE(round_of(ranks[r], {&gradients[static_cast<std::size_t>(r)]}).ok());
  });
  return static_cast<double>(testing::allocated_bytes() - before);
}

// Two copies of residuals (the last commit's and the open round's), and the frames of a round.
TEST(SessionMemory, BytesPerValueMatchTheDocumentedTable) {
  struct Row {
    const char *codec, *strategy;
    double residual, payload;  // bytes per value
    double frames;             // payloads of the whole part, for 4 ranks
  };
  constexpr Row kRows[] = {
      {"fp32", "server", 0, 4, 3 - 3.0 / 4},
      {"fp32", "ring", 0, 4, 2 - 1.0 / 4},
      {"fp8", "server", 8, 1, 3 - 2.0 / 4},
      {"bf16", "ring", 8, 2, 3 - 2.0 / 4},
      {"fp8", "gather", 8, 1, 4},
      {"fp8:feedback=none", "server", 0, 1, 3 - 2.0 / 4},
  };
  for (const Row& row : kRows) {
    const SessionOptions options{.codec = row.codec, .strategy = row.strategy, .min_values = 0};
    const double few = held_by(options, 4, 200'000);
    const double per_value = (held_by(options, 4, 600'000) - few) / 4 / 400'000;
    EXPECT_LE(per_value, row.residual + row.frames * row.payload + 0.2)
        << row.codec << " by " << row.strategy;
    EXPECT_GE(per_value, 0.5 * row.payload) << "the measurement must see the memory";
  }
}

// Only active parts have frames: a bucket that is larger than its window needs no more frames.
TEST(SessionMemory, OnlyActivePartsHaveFrames) {
  constexpr std::size_t kPart = std::size_t{1} << 21;  // 16 MiB of frames for two ranks, so four parts fit
  for (const char* strategy : {"server", "gather"}) {
    const SessionOptions options{
        .codec = "fp32", .strategy = strategy, .lanes = 2, .min_values = 0, .part_values = kPart};
    const double few = held_by(options, 2, 5 * kPart);
    const double per_value = (held_by(options, 2, 9 * kPart) - few) / 2 / (4 * kPart);
    EXPECT_LE(per_value, 0.1) << strategy;
    EXPECT_GE(few, 2 * 3 * 8 * kPart) << "the measurement must see the frames";
  }
}

#ifdef MADV_PAGEOUT
std::int64_t kilobytes(const std::string& what) {
  std::ifstream sums("/proc/self/smaps_rollup");
  for (std::string line; std::getline(sums, line);)
    if (line.starts_with(what + ":")) return std::stoll(line.substr(what.size() + 1));
  return -1;
}

// Simulates memory pressure: the system takes pages that were lent (MADV_FREE). Without swap, other pages stay.
void take_pages() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char minus = 0;
    std::istringstream(line) >> std::hex >> begin >> minus >> end;
    if (end - begin >= std::uintptr_t{4} << 20 && line.find(" rw-p ") != std::string::npos)
      (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_PAGEOUT);
  }
}

// Between rounds a session needs one of the two residual copies, and no frames. Its results do not change if the
// system takes the other pages.
TEST(SessionMemory, BetweenRoundsTheSystemMayReclaimFramesAndOneResidualCopy) {
  if (kilobytes("LazyFree") < 0) GTEST_SKIP() << "this kernel has no LazyFree counter";
  constexpr std::size_t kN = 5'000'000;
  constexpr std::int64_t kCopy = kN * sizeof(float) / 1024, kHuge = 4096;  // KiB
  for (const std::string codec : {"fp8", "topk:ratio=0.01,feedback=momentum"}) {
    const int copies = codec == "fp8" ? 1 : 2;
    const auto run = [&](bool takes) {
      std::vector<Floats> seen;
      Ranks ranks(open_loop(2), {.codec = codec, .min_values = 0});
      for (int k = 0; k < 4; ++k) {
        std::vector<Named> mine = {{"w", wave(kN, k)}, {"w", wave(kN, k + 10)}};
        if (k == 2) mine[1].values[7] = NAN;  // a dropped round lends its output
        ranks.each(
            [&](Rank r) { EXPECT_TRUE(round_of(ranks[r], {&mine[static_cast<std::size_t>(r)]}).ok()); });
        seen.push_back(std::move(mine[0].values));
        if (!takes) continue;
        const std::int64_t more = kilobytes("LazyFree"), resident = kilobytes("Rss");
        EXPECT_GE(more, 2 * copies * (kCopy - kHuge)) << codec << ", round " << k;
        take_pages();
        EXPECT_LE(kilobytes("Rss"), resident - more / 2)
            << codec << ", round " << k << ": the pages were not released";
      }
      for (Rank r = 0; r < 2; ++r) EXPECT_TRUE(ranks[r].residual("w", seen.emplace_back(kN)).ok());
      return seen;
    };
    const std::vector<Floats> want = run(false), got = run(true);
    for (std::size_t k = 0; k < want.size(); ++k)
      EXPECT_TRUE(std::memcmp(got[k].data(), want[k].data(), sizeof(float) * kN) == 0) << codec << ", " << k;
  }
}
#endif

// Staging memory is shared too. Results in memory of an earlier part must be correct.
TEST(SessionMemory, PartsThatShareMemoryHaveTheirOwnResults) {
  constexpr std::size_t kPart = std::size_t{1} << 20, kN = 9 * kPart + 12'345;
  for (const char* strategy : {"server", "gather", "ring"}) {
    Ranks ranks(open_loop(2), {.codec = "bf16",
                               .strategy = strategy,
                               .lanes = 2,
                               .average = false,
                               .min_values = 0,
                               .part_values = kPart});
    ranks.each([&](Rank r) {
      for (int round = 0; round < 2; ++round) {
        std::vector<std::uint16_t> halves(kN);
        const auto at = [&](std::size_t i, Rank rank) {
          return static_cast<float>((i / 1000 + static_cast<std::size_t>(rank + round)) % 100);
        };
        for (std::size_t i = 0; i < kN; ++i) halves[i] = engine::to_bf16(at(i, r));
        const Tensor t{.key = "w", .data = halves.data(), .n = kN, .dtype = DType::kBF16};
        const Result<Ticket> ticket = ranks[r].sync({&t, 1});
        ASSERT_TRUE(ticket.ok());
        ASSERT_TRUE(ranks[r].wait(*ticket).ok());
        ASSERT_TRUE(ranks[r].commit().ok());
        for (std::size_t i = 0; i < kN; i += 97)
          ASSERT_EQ(engine::from_bf16(halves[i]), at(i, 0) + at(i, 1)) << strategy << ", value " << i;
      }
    });
  }
}

// DistributedDataParallel regroups its buckets after the first round.
TEST(SessionMemory, ARemovedLayoutLeavesNoMemory) {
  constexpr std::size_t kN = 100'000;
  const SessionOptions options{.codec = "topk:ratio=0.1", .min_values = 0};
  const auto held = [&](int rounds_before, std::size_t* seen, std::array<Floats, 2>* unsent) {
    std::vector<std::array<Named, 2>> all(2);
    for (int r = 0; r < 2; ++r)
      all[static_cast<std::size_t>(r)] = {Named{"a", wave(kN, r)}, {"b", wave(kN, r + 2)}};
    const std::int64_t before = testing::allocated_bytes();
    Ranks ranks(open_loop(2), options);
    ranks.each([&](Rank r) {
      auto& [a, b] = all[static_cast<std::size_t>(r)];
      for (int k = 0; k < rounds_before; ++k) ASSERT_TRUE(round_of(ranks[r], {&a, &b}).ok());
      for (int k = 0; k < kRoundsToForget - 1; ++k) ASSERT_TRUE(round_of(ranks[r], {&b, &a}).ok());
      EXPECT_EQ(layouts(ranks[r]), rounds_before > 0 ? 2U : 1U) << "the layout may return until then";
      ASSERT_TRUE(round_of(ranks[r], {&b, &a}).ok());
      EXPECT_EQ(layouts(ranks[r]), 1U);
    });
    *seen = static_cast<std::size_t>(testing::allocated_bytes() - before);
    ranks.each([&](Rank r) {
      auto& [a, b] = all[static_cast<std::size_t>(r)];
      if (r == 0) {
        (*unsent)[0].resize(kN);
        (*unsent)[1].resize(kN);
        EXPECT_TRUE(ranks[r].residual("a", (*unsent)[0]).ok());
        EXPECT_TRUE(ranks[r].residual("b", (*unsent)[1]).ok());
      }
      // If the layout returns, it is new on all ranks, and the residuals move into it.
      a.values.assign(kN, 0.0F);
      b.values.assign(kN, 0.0F);
      const Status s = round_of(ranks[r], {&a, &b});
      EXPECT_TRUE(s.ok()) << text(s);
    });
    double sum = 0;
    for (const float v : all[0][0].values) sum += std::fabs(v);
    EXPECT_GT(sum, 0) << "the residuals must be sent";
    EXPECT_EQ(all[0][0].values, all[1][0].values);
  };
  std::size_t fresh = 0, regrouped = 0;
  std::array<Floats, 2> owed_fresh, unsent_regrouped;
  held(0, &fresh, &owed_fresh);
  held(2, &regrouped, &unsent_regrouped);
  EXPECT_GT(fresh, 2 * 2 * kN * sizeof(float)) << "the measurement must see the residuals";
  EXPECT_LE(regrouped, fresh + 16'384) << "a removed layout must free its memory";
  double unsent = 0;
  for (const float v : unsent_regrouped[0]) unsent += std::fabs(v);
  EXPECT_GT(unsent, 0) << "removing a layout must keep the residuals";
}

// Layouts that alternate stay: none of them is unused for long.
TEST(SessionMemory, AlternatingLayoutsAreKept) {
  Ranks ranks(open_loop(2), {.codec = "onebit", .min_values = 0});
  ranks.each([&](Rank r) {
    Named a{"a", wave(500, r)}, b{"b", wave(700, r)};
    for (int k = 0; k < 3 * kRoundsToForget; ++k) {
      const bool turned = k % 8 >= 4;
      ASSERT_TRUE(round_of(ranks[r], turned ? std::vector{&b, &a} : std::vector{&a, &b}).ok());
    }
    EXPECT_EQ(layouts(ranks[r]), 2U);
  });
}

// A layout with a tensor that no other layout has stays, because it holds that tensor's residual.
TEST(SessionMemory, TheOnlyLayoutOfATensorIsKept) {
  Ranks ranks(open_loop(2), {.codec = "onebit", .min_values = 0});
  ranks.each([&](Rank r) {
    Named a{"a", wave(500, r)}, b{"b", wave(700, r)};
    ASSERT_TRUE(round_of(ranks[r], {&a, &b}).ok());
    Floats unsent(700), later(700);
    ASSERT_TRUE(ranks[r].residual("b", unsent).ok());
    for (int k = 0; k < 2 * kRoundsToForget; ++k) ASSERT_TRUE(round_of(ranks[r], {&a}).ok());
    EXPECT_EQ(layouts(ranks[r]), 2U);
    ASSERT_TRUE(ranks[r].residual("b", later).ok());
    EXPECT_EQ(unsent, later);
    EXPECT_NE(unsent, Floats(700)) << "the residual must not be zero";
  });
}

// In the first case residuals cannot be allocated, in the second the staging memory for values of another type.
TEST(SessionMemory, AllocationFailuresStateThePurposeAndTheBytes) {
  struct Case {
    const char* codec;
    DType dtype;
    std::size_t most;  // the largest allocation that succeeds
  };
  for (const Case& c :
       {Case{"onebit", DType::kF32, 100'000}, {"onebit:feedback=none", DType::kF16, 1'000'000}}) {
    Ranks ranks(open_loop(2), {.codec = c.codec, .timeout = std::chrono::seconds(5)});
    Floats weight(500'000), bias(10);
    const Tensor bucket[] = {
        {.key = "bias", .data = bias.data(), .n = bias.size()},
        {.key = "layer.weight", .data = weight.data(), .n = weight.size(), .dtype = c.dtype}};
    Status status;
    {
      const testing::AllocationLimit little(c.most);
      status = ranks[0].sync(bucket).status();
    }
    EXPECT_EQ(status.code(), Code::kIo) << text(status);
    EXPECT_EQ(status.peer(), 0);
    for (const char* word : {"rank 0", "no memory", "'layer.weight'", "500000 values", " MB"})
      EXPECT_NE(status.what().find(word), std::string::npos) << word << ": " << text(status);
    EXPECT_FALSE(ranks[0].sync(bucket).ok()) << "the session must have ended";
    EXPECT_TRUE(ranks[0].state().ok());
    const Result<Ticket> other = ranks[1].sync(bucket);  // rank 1 may already have received the failure
    const Status heard = other.ok() ? ranks[1].wait(*other) : other.status();
    EXPECT_EQ(heard.peer(), 0) << text(heard);
  }
}

// The reference implementations allocate in a step. Such an exception must not leave the lane.
TEST(SessionMemory, AnAllocationFailureInALaneEndsOnlyTheSession) {
  for (const int lanes : {0, 1, 2})
    for (const std::size_t most : {std::size_t{100'000}, std::size_t{0}}) {
      Ranks ranks(open_loop(1), {.codec = "topk:ratio=0.01",
                                 .lanes = lanes,
                                 .min_values = 0,
                                 .timeout = std::chrono::seconds(5),
                                 .force_reference = true});
      Named w{"layer.weight", wave(500'000, 1)};
      ASSERT_TRUE(round_of(ranks[0], {&w}).ok());
      const Tensor t{.key = w.key, .data = w.values.data(), .n = w.values.size()};
      Status status;
      std::thread later;  // memory becomes available again in time for the verdict
      if (most == 0)
        later = std::thread([] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          testing::limit_allocations(SIZE_MAX);
        });
      {
        const testing::AllocationLimit little(most);
        const Result<Ticket> ticket = ranks[0].sync({&t, 1});
        status = ticket.ok() ? ranks[0].wait(*ticket) : ticket.status();
      }
      if (later.joinable()) later.join();
      EXPECT_EQ(status.code(), Code::kIo) << lanes << " lanes: " << text(status);
      EXPECT_EQ(status.peer(), 0);
      EXPECT_NE(status.what().find("rank 0 has no memory"), std::string::npos) << text(status);
      if (most > 0) {
        EXPECT_NE(status.what().find("'layer.weight'"), std::string::npos) << text(status);
      }
      EXPECT_FALSE(ranks[0].sync({&t, 1}).ok()) << "the session must have ended";
      EXPECT_TRUE(ranks[0].state().ok());
    }
}

TEST(SessionMemory, OpeningWithoutMemoryIsRefused) {
  auto transports = open_loop(1);
  const testing::AllocationLimit little(2'000);
  const auto session = Session::open(std::move(transports[0]), {.codec = "fp32"});
  EXPECT_EQ(session.status().code(), Code::kIo) << text(session.status());
  EXPECT_NE(session.status().what().find("no memory to open a session"), std::string::npos);
}

TEST(SessionMemory, AStateCanBeSavedAfterAnAllocationFailure) {
  Ranks ranks(open_loop(1), {.codec = "topk:ratio=0.01"});
  Named w{"w", wave(500'000, 1)};
  ASSERT_TRUE(round_of(ranks[0], {&w}).ok());
  {
    const testing::AllocationLimit little(100'000);
    EXPECT_EQ(ranks[0].state().status().code(), Code::kIo);
  }
  EXPECT_TRUE(ranks[0].state().ok());
}

}  // namespace
}  // namespace tithe
