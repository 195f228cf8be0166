// SPDX-License-Identifier: Apache-2.0
// Promises of session.h that have no suite; tests/conformance/law_suite.cc tests the laws.
#include "tithe/session.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "engine/program/convert.h"
#include "support/allocation_limit.h"
#include "support/ranks.h"
#include "tithe/seam/catalogue.h"

// Counts allocations while a test asks for it, and the allocated bytes at all times.
namespace {
std::atomic<bool> g_counting{false};
std::atomic<int> g_allocations{0};
std::atomic<std::int64_t> g_held{0};                  // bytes
std::atomic<std::size_t> g_max_allocation{SIZE_MAX};  // bytes: larger allocations fail

void* allocate(std::size_t n, std::size_t align) {
  if (g_counting) ++g_allocations;
  if (n > g_max_allocation) throw std::bad_alloc();
  void* p =
      align == 0 ? std::malloc(n > 0 ? n : 1) : std::aligned_alloc(align, (n + align - 1) / align * align);
  if (p == nullptr) throw std::bad_alloc();
  g_held += static_cast<std::int64_t>(malloc_usable_size(p));
  return p;
}
void release(void* p) {
  g_held -= static_cast<std::int64_t>(malloc_usable_size(p));
  std::free(p);
}
}  // namespace
[[gnu::noinline]] void* operator new(std::size_t n) { return allocate(n, 0); }
[[gnu::noinline]] void operator delete(void* p) noexcept { release(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { release(p); }
[[gnu::noinline]] void* operator new[](std::size_t n, std::align_val_t a) {
  return allocate(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { release(p); }

namespace tithe {

std::int64_t testing::allocated_bytes() { return g_held; }
void testing::limit_allocations(std::size_t bytes) { g_max_allocation = bytes; }

namespace {

using testing::at;
using testing::Ranks;
using testing::text;

// Runs and commits one round of one tensor on one rank.
void round_of(Session& session, std::string_view key, std::vector<float>& v) {
  const Tensor t{.key = key, .data = v.data(), .n = v.size()};
  const Result<Ticket> ticket = session.sync({&t, 1});
  ASSERT_TRUE(ticket.ok()) << text(ticket.status());
  const Status waited = session.wait(*ticket);
  ASSERT_TRUE(waited.ok()) << text(waited);
  const Status committed = session.commit();
  ASSERT_TRUE(committed.ok()) << text(committed);
}

std::vector<float> ramp(std::size_t n, float scale) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = scale * (static_cast<float>(i % 13) - 6.0F);
  return v;
}

TEST(Session, MeanOfFp32OnEveryStrategyAndLaneCount) {
  for (const Strategy* strategy : all_strategies())
    for (const int lanes : {0, 1, 3}) {
      Ranks ranks(open_loop(4), {.codec = "fp32",
                                 .strategy = std::string(strategy->name),
                                 .lanes = lanes,
                                 .min_values = 0,
                                 .part_values = 400});
      ranks.each([&](Rank r) {
        for (int round = 0; round < 3; ++round) {
          std::vector<float> v = ramp(1000, static_cast<float>(r + 1 + round));
          const std::vector<float> want = ramp(1000, 2.5F + static_cast<float>(round));
          round_of(ranks[r], "w", v);
          EXPECT_EQ(v, want) << strategy->name << ", " << lanes << " lanes, rank " << r;
        }
      });
    }
}

TEST(Session, HalfTypesAreConvertedAndScattered) {
  Ranks ranks(open_loop(2), {.codec = "fp32", .strategy = "ring", .min_values = 100});
  ranks.each([&](Rank r) {
    std::vector<std::uint16_t> b(300), h(20);
    std::vector<float> f(50);
    for (std::size_t i = 0; i < b.size(); ++i)
      b[i] = engine::to_bf16(static_cast<float>(i % 64) * static_cast<float>(r));
    for (std::size_t i = 0; i < h.size(); ++i)
      h[i] = engine::to_fp16(static_cast<float>(i) + static_cast<float>(r));
    for (float& x : f) x = static_cast<float>(r) * 4;
    const Tensor bucket[] = {{"b", b.data(), b.size(), DType::kBF16},
                             {"none", nullptr, 0},
                             {"f", f.data(), f.size()},
                             {"h", h.data(), h.size(), DType::kF16}};
    const Result<Ticket> ticket = ranks[r].sync(bucket);
    ASSERT_TRUE(ticket.ok()) << text(ticket.status());
    ASSERT_TRUE(ranks[r].wait(*ticket).ok());
    for (std::size_t i = 0; i < b.size(); ++i)
      EXPECT_EQ(engine::from_bf16(b[i]), static_cast<float>(i % 64) / 2);
    for (std::size_t i = 0; i < h.size(); ++i)
      EXPECT_EQ(engine::from_fp16(h[i]), static_cast<float>(i) + 0.5F);
    for (const float x : f) EXPECT_EQ(x, 2.0F);
  });
}

TEST(Session, ConversionsRoundTripEveryHalf) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<std::uint16_t>(h);
    const float f = engine::from_fp16(bits);
    const float b = engine::from_bf16(bits);
    EXPECT_TRUE(std::isnan(f) || engine::to_fp16(f) == bits) << h;
    EXPECT_TRUE(std::isnan(b) || engine::to_bf16(b) == bits) << h;
  }
  // Halfway from the largest value to 2^16: ties to even, which is Inf.
  EXPECT_EQ(engine::to_fp16(65520.0F), 0x7c00);
  EXPECT_EQ(engine::to_fp16(65519.0F), 0x7bff);
  EXPECT_EQ(engine::to_fp16(0x1p-25F), 0x0000);  // half of the smallest value: ties to even, which is 0
  EXPECT_TRUE(std::isnan(engine::from_fp16(engine::to_fp16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(engine::from_bf16(engine::to_bf16(std::nanf("")))));
}

// Momentum correction against its definition, value by value, on one rank: the sent values and the residual.
TEST(Session, MomentumFollowsItsDefinition) {
  constexpr std::size_t kN = 100;
  for (const bool nesterov : {false, true})
    for (const bool mask : {false, true})
      for (const double clip : {0.0, 5.0}) {
        std::string codec = "topk:ratio=0.1,feedback=momentum,mu=0.5";
        codec += nesterov ? ",nesterov=on" : "";
        codec += mask ? ",mask=on" : ",mask=off";
        codec += clip > 0 ? ",clip=5" : "";
        Ranks ranks(open_loop(1), {.codec = codec, .min_values = 0});
        std::vector<float> velocity(kN), left(kN);
        for (int round = 0; round < 6; ++round) {
          std::vector<float> grad(kN);
          for (std::size_t i = 0; i < kN; ++i)
            grad[i] = std::sin(static_cast<float>(i * 7 + 3) * (1.0F + static_cast<float>(round)));
          double norm = 0;
          for (const float g : grad) norm += double{g} * g;
          norm = std::sqrt(norm);
          const float s = clip > 0 && norm > clip ? static_cast<float>(clip / norm) : 1.0F;
          std::vector<float> sent = grad;
          round_of(ranks[0], "w", sent);
          int count = 0;
          for (std::size_t i = 0; i < kN; ++i) {
            const float g = s * grad[i];
            velocity[i] = nesterov ? 0.5F * (velocity[i] + g) : 0.5F * velocity[i] + g;
            left[i] += nesterov ? velocity[i] + g : velocity[i];
            if (sent[i] == 0) continue;
            ++count;
            EXPECT_NEAR(sent[i], left[i], 1e-5) << codec << " round " << round << " value " << i;
            left[i] = 0;
            if (mask) velocity[i] = 0;
          }
          EXPECT_EQ(count, 10);
          std::vector<float> kept(kN);
          ASSERT_TRUE(ranks[0].residual("w", kept).ok());
          for (std::size_t i = 0; i < kN; ++i) EXPECT_NEAR(kept[i], left[i], 1e-5);
        }
      }
}

// The residual decays every round; a sent value is sent undecayed.
TEST(Session, DecayReducesTheResidualEveryRound) {
  Ranks ranks(open_loop(2),
              {.codec = "topk:ratio=0.5,feedback=decay,beta=0.25", .strategy = "gather", .min_values = 0});
  ranks.each([&](Rank r) {
    float waits = 0;
    for (int round = 0; round < 4; ++round) {
      std::vector<float> v = {100.0F, 8.0F};
      round_of(ranks[r], "w", v);
      EXPECT_EQ(v, (std::vector<float>{100.0F, 0.0F}));
      waits = 0.25F * (waits + 8.0F);
      std::vector<float> kept(2);
      ASSERT_TRUE(ranks[r].residual("w", kept).ok());
      EXPECT_EQ(kept, (std::vector<float>{0.0F, waits}));
    }
  });
}

TEST(Session, MomentumAppliesToUncompressedTensors) {
  Ranks ranks(open_loop(2), {.codec = "topk:ratio=0.1,feedback=momentum,mu=0.5", .min_values = 1000});
  ranks.each([&](Rank r) {
    for (const float want : {2.0F, 3.0F, 3.5F}) {
      std::vector<float> v(10, 2.0F);
      round_of(ranks[r], "bias", v);
      EXPECT_EQ(v, std::vector<float>(10, want));
    }
  });
}

// DDP rebuilds its buckets after the first step: a tensor's residual follows its key.
TEST(Session, ResidualsFollowTheirKeys) {
  Ranks moved(open_loop(2), {.codec = "topk:ratio=0.01", .min_values = 0});
  Ranks alone(open_loop(2), {.codec = "topk:ratio=0.01", .min_values = 0});
  for (Ranks* ranks : {&moved, &alone})
    ranks->each([&](Rank r) {
      for (int round = 0; round < 4; ++round) {
        std::vector<float> a = ramp(1000, static_cast<float>(r + 1)),
                           b = ramp(500, static_cast<float>(2 * r + 1));
        std::vector<Tensor> bucket = {{"a", a.data(), a.size()}, {"b", b.data(), b.size()}};
        if (ranks == &moved && round % 2 == 1) std::swap(bucket[0], bucket[1]);
        const Result<Ticket> ticket = (*ranks)[r].sync(bucket);
        ASSERT_TRUE(ticket.ok()) << text(ticket.status());
        ASSERT_TRUE((*ranks)[r].wait(*ticket).ok());
        ASSERT_TRUE((*ranks)[r].commit().ok());
      }
    });
  for (Rank r = 0; r < 2; ++r)
    for (const auto& [key, n] : {std::pair{"a", 1000U}, std::pair{"b", 500U}}) {
      std::vector<float> x(n), y(n);
      ASSERT_TRUE(moved[r].residual(key, x).ok());
      ASSERT_TRUE(alone[r].residual(key, y).ok());
      EXPECT_EQ(x, y) << key;
      EXPECT_NE(x, std::vector<float>(n));
    }
}

TEST(Session, AKeyIsRefusedTwiceInARound) {
  Ranks ranks(open_loop(2), {.codec = "fp32"});
  ranks.each([&](Rank r) {
    for (int step = 0; step < 3; ++step) {
      std::vector<float> v(10, 1.0F), w(5, 2.0F);
      const Tensor both[] = {{.key = "v", .data = v.data(), .n = v.size()},
                             {.key = "w", .data = w.data(), .n = w.size()}};
      const Result<Ticket> ticket = ranks[r].sync({&both[0], 1});
      ASSERT_TRUE(ticket.ok()) << text(ticket.status());
      EXPECT_EQ(ranks[r].sync({&both[0], 1}).status().code(), Code::kInvalid);
      EXPECT_NE(ranks[r].sync(both).status().what().find("commit()"), std::string::npos);
      ASSERT_TRUE(ranks[r].wait(*ticket).ok());
      EXPECT_EQ(ranks[r].wait(*ticket).code(), Code::kInvalid);
      EXPECT_EQ(ranks[r].sync({&both[0], 1}).status().code(), Code::kInvalid) << "done, but not committed";
      ASSERT_TRUE(ranks[r].commit().ok());
      EXPECT_EQ(ranks[r].stats().rounds, static_cast<std::uint64_t>(step) + 1);
    }
  });
}

TEST(Session, RefusesInvalidOptionsAndCalls) {
  const auto refused = [](const SessionOptions& o) {
    return Session::open(std::move(open_loop(1)[0]), o).status();
  };
  EXPECT_EQ(refused({.codec = "zap"}).code(), Code::kInvalid);
  EXPECT_EQ(refused({.strategy = "star"}).code(), Code::kInvalid);
  EXPECT_EQ(refused({.lanes = -1}).code(), Code::kInvalid);
  EXPECT_EQ(refused({.timeout = std::chrono::milliseconds(0)}).code(), Code::kInvalid);
  EXPECT_EQ(
      refused({.timeout = std::chrono::milliseconds(2), .patience = std::chrono::milliseconds(1)}).code(),
      Code::kInvalid);
  EXPECT_EQ(Session::open(nullptr, {}).status().code(), Code::kInvalid);
  EXPECT_NE(refused({.hosts = "2x2"}).what().find("hosts '2x2'"), std::string::npos);

  Ranks ranks(open_loop(1), {});
  float v[4] = {};
  const Tensor twice[] = {{"w", v, 2}, {"w", v + 2, 2}};
  EXPECT_EQ(ranks[0].sync(twice).status().code(), Code::kInvalid);
  const Tensor unnamed{"", v, 2};
  EXPECT_EQ(ranks[0].sync({&unnamed, 1}).status().code(), Code::kInvalid);
  const Tensor nowhere{"w", nullptr, 2};
  EXPECT_EQ(ranks[0].sync({&nowhere, 1}).status().code(), Code::kInvalid);
  const Tensor good{"w", v, 4};
  ASSERT_TRUE(ranks[0].sync({&good, 1}).ok());
  const Tensor shrunk{"w", v, 3};
  EXPECT_EQ(ranks[0].sync({&shrunk, 1}).status().code(), Code::kInvalid);
  EXPECT_EQ(ranks[0].wait(99).code(), Code::kInvalid);
  EXPECT_EQ(ranks[0].residual("x", std::span<float>(v)).code(), Code::kInvalid);
  EXPECT_TRUE(ranks[0].commit().ok()) << "a refused call must change nothing";
}

TEST(Session, RefusesForeignStates) {
  Ranks two(open_loop(2), {.codec = "topk", .min_values = 0});
  two.each([&](Rank r) {
    std::vector<float> v = ramp(100, 1);
    round_of(two[r], "w", v);
  });
  std::vector<std::uint8_t> state = *two[0].state();
  EXPECT_EQ(two[1].restore(state).code(), Code::kInvalid);
  Ranks other(open_loop(2), {.codec = "onebit"});
  EXPECT_EQ(other[0].restore(state).code(), Code::kInvalid);
  for (std::size_t i = 0; i < state.size(); ++i) {
    std::vector<std::uint8_t> bad = state;
    bad[i] ^= 1;
    EXPECT_EQ(two[0].restore(bad).code(), Code::kCorrupt);
    EXPECT_EQ(two[0].restore(ByteView(state).first(i)).code(), Code::kCorrupt);
  }
  EXPECT_TRUE(two[0].restore(state).ok());
}

// Allocations in the last 6 of 12 rounds, on two ranks, of a tensor in three parts. A failed call counts as an
// allocation.
int allocations_of_six_rounds(const std::string& codec, const char* schedule, int lanes, bool traced = false,
                              const char* pacer = "off", const char* proposed = nullptr,
                              bool reference = false) {
  Ranks ranks(open_loop(2), {.codec = codec,
                             .strategy = "server",
                             .schedule = schedule,
                             .lanes = lanes,
                             .part_values = 7'000,
                             .force_reference = reference,
                             .pacer = pacer});
  std::vector<float> v[2] = {ramp(20'000, 1), ramp(20'000, 2)};
  g_allocations = 0;
  std::atomic<int> waiting{0};
  ranks.each([&](Rank r) {
    ranks[r].trace(traced);
    if (proposed != nullptr) {  // all ranks apply it after the same round
      if (r == 0 && !ranks[r].propose(proposed).ok()) ++g_allocations;
      while (ranks[r].proposal().state != Proposal::State::kSwitched) round_of(ranks[r], "w", v[at(r)]);
    }
    for (int round = 0; round < 12; ++round) {
      if (round == 6) {  // counting begins when both ranks are here
        ++waiting;
        while (waiting < 2) std::this_thread::yield();
        g_counting = true;
      }
      const Tensor t{.key = "w", .data = v[at(r)].data(), .n = v[at(r)].size()};
      const Result<Ticket> ticket = ranks[r].sync({&t, 1});
      if (!ticket.ok() || !ranks[r].wait(*ticket).ok() || !ranks[r].commit().ok()) ++g_allocations;
    }
    ++waiting;
    while (waiting < 4) std::this_thread::yield();
    g_counting = false;
  });
  return g_allocations;
}

TEST(Session, steady_rounds_allocate_nothing) {
  g_allocations = 0;
  g_counting = true;
  ::operator delete(::operator new(1));
  g_counting = false;
  ASSERT_EQ(g_allocations, 1) << "the counter must count this allocation";
  const std::pair<const char*, const char*> kinds[] = {{"fp32", "none"},
                                                       {"onebit", "none"},
                                                       {"topk:ratio=0.05", "none"},
                                                       {"topk:ratio=0.05", "warmup:12+theta:1+recover"},
                                                       {"dgc:ratio=0.05,feedback=momentum", "none"}};
  // The number of queued frames varies with the load of the machine, so a queue may grow after any number of rounds.
  // Allocations by a round itself occur in every attempt.
  for (const auto& [codec, schedule] : kinds)
    for (const int lanes : {0, 2}) {
      int least = 1;
      for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
        least = std::min(least, allocations_of_six_rounds(codec, schedule, lanes));
      EXPECT_EQ(least, 0) << codec << ", schedule " << schedule << ", " << lanes << " lanes";
    }
  for (const int lanes : {0, 2}) {
    int least = 1;
    for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
      least = std::min(least, allocations_of_six_rounds("fp8", "none", lanes, false, "off",
                                                        R"({"*": "topk:ratio=0.05"})"));
    EXPECT_EQ(least, 0) << "after a change of choices, " << lanes << " lanes";
  }
}

TEST(Session, SteadyRoundsAllocateNothingWhileTracing) {
  for (const int lanes : {0, 2}) {
    int least = 1;
    for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
      least = std::min(least, allocations_of_six_rounds("onebit", "none", lanes, true));
    EXPECT_EQ(least, 0) << lanes << " lanes";
  }
}

TEST(Session, SteadyRoundsAllocateNothingWithWindows) {
  for (const char* pacer : {"window=1,rotation=on", "window=10000"})
    for (const int lanes : {0, 2}) {
      int least = 1;
      for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
        least = std::min(least, allocations_of_six_rounds("onebit", "none", lanes, false, pacer));
      EXPECT_EQ(least, 0) << pacer << ", " << lanes << " lanes";
    }
}

// Every codec, also with packed payloads. References are written for clarity and may allocate.
TEST(Session, SteadyRoundsOfEveryCodecAllocateNothing) {
  if (!this_machine().simd) GTEST_SKIP() << "references allocate";
  std::vector<std::string> kinds;
  for (const Codec* codec : all_codecs()) kinds.emplace_back(codec->name);
  for (const char* form : {"values=bf16", "values=4bit,indices=bitmap", "values=inceptionn,indices=delta"})
    kinds.push_back(std::string("topk:") + form);
  kinds.emplace_back("dgc:feedback=momentum,indices=delta");
  kinds.emplace_back("scalecom:values=8bit,indices=delta");
  kinds.emplace_back("randomk:values=fp16");
  kinds.emplace_back("blocks:ratio=0.1,values=bf16");
  for (const std::string& codec : kinds) {
    int least = 1;
    for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
      least = std::min(least, allocations_of_six_rounds(codec, "none", 0));
    EXPECT_EQ(least, 0) << codec;
  }
}

// Compiled and interpreted programs, including phases that agree on values and payloads of variable length. If the
// library's kernels choose a list, the reference is written for clarity and may allocate.
TEST(Session, SteadyRoundsOfEveryProgramAllocateNothing) {
  if (!this_machine().simd) GTEST_SKIP() << "references allocate";
  namespace fs = std::filesystem;
  const std::string cache =
      (fs::temp_directory_path() / ("tithe_steady_" + std::to_string(::getpid()))).string();
  ::setenv("TITHE_CACHE", cache.c_str(), 1);
  int programs = 0;
  for (const auto& entry : fs::recursive_directory_iterator(TITHE_SOURCE_DIR "/codecs")) {
    if (entry.path().extension() != ".codec") continue;
    std::string codec = entry.path().string();
    // Other tests of this process need these compiled.
    if (entry.path().parent_path().stem() == "examples") {
      codec = cache + entry.path().filename().string();
      std::ofstream(codec) << std::ifstream(entry.path()).rdbuf() << "\n# Interpreted.\n";
    }
    // The build has compiled all of them except threelc, whose trits are written through memory.
    ::setenv("TITHE_CXX", entry.path().stem() == "threelc" ? "c++" : "none", 1);
    const std::string how = how_it_runs(*parse_spec(codec));
    for (const bool reference : {false, true}) {
      if (reference && how.find("the library's kernels") != std::string::npos) continue;
      int least = 1;
      for (int attempt = 0; attempt < 5 && least > 0; ++attempt)
        least =
            std::min(least, allocations_of_six_rounds(codec, "none", 0, false, "off", nullptr, reference));
      EXPECT_EQ(least, 0) << codec << (reference ? ", interpreted" : ", " + how);
    }
    if (codec.starts_with(cache)) fs::remove(codec);
    ++programs;
  }
  ::unsetenv("TITHE_CXX");
  ::unsetenv("TITHE_CACHE");
  fs::remove_all(cache);
  EXPECT_GE(programs, 25);
}

}  // namespace
}  // namespace tithe
