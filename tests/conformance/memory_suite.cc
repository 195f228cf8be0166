// SPDX-License-Identifier: Apache-2.0
// A codec's memory is updated at commit, is removed with its key, and is part of the state. kept_step chooses the
// step of a round from the previous round's result.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "conformance/codec_case.h"
#include "support/codec_run.h"
#include "support/phase_codecs.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

SessionOptions options(std::string strategy = "ring") {
  return {.strategy = std::move(strategy),
          .lanes = 0,
          .average = false,
          .min_values = 0,
          .part_values = 300,
          .spec = Spec{&testing::kept_step_codec, {}, {.kind = Feedback::kResidual}}};
}

std::vector<float> wave(std::size_t n, float size) {
  std::vector<float> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = size * std::sin(static_cast<float>(3 * i + 1));
  return v;
}

// One committed round of tensors a and b, in this or the reverse order; returns the results.
using Pair = std::array<std::vector<float>, 2>;
Pair round_of(Session& session, Pair v, bool turned = false) {
  std::vector<Tensor> bucket = {{"a", v[0].data(), v[0].size()}, {"b", v[1].data(), v[1].size()}};
  if (turned) std::swap(bucket[0], bucket[1]);
  const Result<Ticket> ticket = session.sync(bucket);
  EXPECT_TRUE(ticket.ok()) << text(ticket.status());
  if (!ticket.ok()) return v;
  EXPECT_TRUE(session.wait(*ticket).ok());
  EXPECT_TRUE(session.commit().ok());
  return v;
}
Pair small() { return {wave(700, 0.6F), wave(500, 3.0F)}; }

float farthest(const std::vector<float>& a, const std::vector<float>& b, float times) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(a[i] - times * b[i]));
  return most;
}

TEST(Memory, NextRoundUsesIt) {
  Ranks ranks(open_loop(2), options());
  ranks.each([&](Rank r) {
    EXPECT_GT(farthest(round_of(ranks[r], small())[0], small()[0], 2), 0.5F) << "a step of 1";
    round_of(ranks[r], small());  // the residual is delivered
    EXPECT_LT(farthest(round_of(ranks[r], small())[0], small()[0], 2), 0.3F) << "a step that fits";
  });
}

TEST(Memory, DroppedRoundKeepsIt) {
  const auto last = [](bool dropped) {
    Ranks ranks(open_loop(2), options());
    std::vector<Pair> got(2);
    ranks.each([&](Rank r) {
      round_of(ranks[r], small());
      if (dropped) {
        Pair bad = {wave(700, 1e4F), wave(500, 1e4F)};
        bad[1][77] = std::numeric_limits<float>::quiet_NaN();
        round_of(ranks[r], bad);
        EXPECT_TRUE(ranks[r].last_round_dropped());
      }
      got[static_cast<std::size_t>(r)] = round_of(ranks[r], small());
    });
    return got;
  };
  EXPECT_EQ(last(true), last(false));
}

TEST(Memory, FollowsItsKeyFromBucketToBucket) {
  const auto last = [](bool turns) {
    Ranks ranks(open_loop(2), options());
    std::vector<Pair> got(2);
    ranks.each([&](Rank r) {
      for (int round = 0; round < 4; ++round)
        got[static_cast<std::size_t>(r)] = round_of(ranks[r], small(), turns && round % 2 == 1);
    });
    return got;
  };
  EXPECT_EQ(last(true), last(false));
}

TEST(Memory, IsSavedAndRestored) {
  Ranks first(open_loop(2), options());
  Ranks second(open_loop(2), options());
  std::vector<Pair> want(2);
  first.each([&](Rank r) { round_of(first[r], small()); });
  for (Rank r = 0; r < 2; ++r) ASSERT_TRUE(second[r].restore(*first[r].state()).ok());
  first.each([&](Rank r) { want[static_cast<std::size_t>(r)] = round_of(first[r], small()); });
  second.each([&](Rank r) { EXPECT_EQ(round_of(second[r], small()), want[static_cast<std::size_t>(r)]); });
}

// With other slices the memories of the state do not fit, so the step starts at 1.
TEST(Memory, RestartsIfPartsChange) {
  Ranks first(open_loop(2), options("ring"));
  Ranks second(open_loop(2), options("gather"));
  first.each([&](Rank r) { round_of(first[r], {wave(700, 0.0F), wave(500, 900.0F)}); });
  for (Rank r = 0; r < 2; ++r) ASSERT_TRUE(second[r].restore(*first[r].state()).ok());
  second.each([&](Rank r) {
    const Pair got = round_of(second[r], small());
    for (const float v : got[1]) EXPECT_EQ(v, std::nearbyint(v));
  });
}

// ---- Every listed codec that has a memory: rounds of one worker, by every impl as by the reference

class MemorySuite : public ::testing::TestWithParam<conformance::CodecCase> {
 protected:
  struct Round {
    std::vector<std::vector<std::uint8_t>> payloads;  // by phase
    std::vector<std::uint8_t> memory;                 // the memory after the round
    std::vector<float> residual_out, result;
  };

  const Codec& codec = *GetParam().codec;
  const std::size_t n = GetParam().n;

  Round round_of(const Impl& impl, std::uint32_t number, std::span<const std::uint8_t> memory) {
    harness::Exact<std::uint8_t> kept(memory.data(), memory.size(), 1);
    harness::Exact<std::uint8_t> next(codec.memory(GetParam().settings, n), 1);
    const auto grad = conformance::values(conformance::Data::kHeavy, n, 1 + number / 2);
    Round r;
    Call call{.settings = GetParam().settings, .shared_seed = 8, .round = number, .memory = kept.span()};
    for (std::size_t p = 0; p < codec.phases.size(); ++p) {
      const bool last = p + 1 == codec.phases.size();
      call.phase = static_cast<std::uint8_t>(p);
      call.context = p > 0 ? ByteView(r.payloads.back()) : ByteView();
      harness::EncodeOutput sent = harness::encode(codec, impl, call, grad, grad,
                                                   last ? harness::Keep::kApart : harness::Keep::kResidual);
      EXPECT_TRUE(sent.finite);
      r.payloads.push_back(std::move(sent.payload));
      if (last) r.residual_out = std::move(sent.residual_out);
    }
    call.context = codec.phases.size() > 1 ? ByteView(r.payloads[codec.phases.size() - 2]) : ByteView();
    const auto read = [&] { return harness::decode_one(codec, impl, call, n, r.payloads.back()); };
    r.result = read();  // the new memory is discarded
    call.next_memory = next.span();
    EXPECT_TRUE(conformance::same_bits(r.result, read()));
    r.memory = next.copy();
    return r;
  }
};

TEST_P(MemorySuite, StateIsEqualInEveryImplementation) {
  const harness::OnlyTarget only(GetParam().target);
  std::vector<std::uint8_t> memory;  // empty: the initial memory
  for (std::uint32_t number = 0; number < 4; ++number) {
    const Round got = round_of(*GetParam().impl, number, memory);
    const Round want = round_of(codec.reference(), number, memory);
    ASSERT_EQ(got.payloads, want.payloads) << "round " << number;
    ASSERT_EQ(got.memory, want.memory) << "round " << number;
    ASSERT_TRUE(conformance::same_bits(got.residual_out, want.residual_out)) << "round " << number;
    ASSERT_TRUE(conformance::same_bits(got.result, want.result)) << "round " << number;
    if (number == 0) {
      const std::vector<std::uint8_t> zeros(got.memory.size());
      EXPECT_EQ(round_of(codec.reference(), 0, zeros).payloads, want.payloads) << "zeros are as none";
    }
    memory = got.memory;
  }
}

std::vector<conformance::CodecCase> memory_cases() {
  std::vector<conformance::CodecCase> some = conformance::codec_cases();
  std::erase_if(some, [](const conformance::CodecCase& c) { return c.codec->memory == nullptr; });
  return some;
}

const auto kName = [](const auto& info) { return conformance::name_of(info.param); };
INSTANTIATE_TEST_SUITE_P(All, MemorySuite, ::testing::ValuesIn(memory_cases()), kName);

}  // namespace
}  // namespace tithe
