// SPDX-License-Identifier: Apache-2.0
// scalecom, a program of codecs/: the ledger, the lengths and the checks of its two phases.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/draws.h"
#include "support/implementations_agree.h"
#include "support/scratch.h"
#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

using Floats = std::vector<float>;
using Payload = std::vector<std::uint8_t>;

const Codec& scalecom() { return *find_codec("scalecom"); }

constexpr const char* kValues[] = {"fp32", "bf16", "fp16", "8bit", "4bit"};
constexpr const char* kIndices[] = {"u32", "delta", "bitmap", "auto"};

Payload send(const Call& call, const Floats& x, Floats* residual_out) {
  const Phase& phase = scalecom().phases[call.phase];
  Payload out(phase.bound(call.settings, x.size()));
  const ScratchForTest scratch(scalecom(), call.settings, x.size());
  Call with = call;
  with.scratch = scratch;
  const Result<Encoded> done = scalecom().reference().encode(
      with, {x.data(), nullptr, residual_out ? residual_out->data() : nullptr, x.size()}, out);
  EXPECT_TRUE(done.ok()) << done.status().what();
  out.resize(done.ok() ? done->bytes : 0);
  EXPECT_TRUE(scalecom().reference().check(call, x.size(), out).ok());
  return out;
}

TEST(Scalecom, RoundingOfAdditionsStaysInTheLedger) {
  constexpr std::size_t kCount = 5000, kRanks = 5;
  for (const std::string values : kValues)
    for (const std::string indices : kIndices) {
      const std::string text = "scalecom:ratio=0.05,values=" + values + ",indices=" + indices;
      SCOPED_TRACE(text);
      Call call{.settings = parse_spec(text)->settings};
      Floats owed(kCount), rounded(kCount), got(kCount);
      Payload agreed, sum;
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        const Floats x = draws::bell(kCount, 0.01F, rank);
        if (rank == 0) agreed = send(call, x, nullptr);
        call.phase = 1;
        call.context = agreed;
        Floats residual_out(kCount);
        const Payload mine = send(call, x, &residual_out);
        for (std::size_t i = 0; i < kCount; ++i) owed[i] += x[i] - residual_out[i];
        if (rank == 0)
          sum = mine;
        else
          ASSERT_TRUE(scalecom().best(this_machine()).combine(call, kCount, sum, mine, rounded.data()).ok());
      }
      const ByteView view = sum;
      ASSERT_TRUE(scalecom().reference().decode(call, {&view, 1}, {}, got).ok());
      std::size_t sent = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        sent += got[i] != 0;
        ASSERT_NEAR(got[i] + rounded[i], owed[i], 1e-7) << i;
      }
      EXPECT_GT(sent, 200U);
      EXPECT_LE(sent, 250U);
    }
}

TEST(Scalecom, IndexAndValueFormsHaveTheStatedSize) {
  const Floats x = draws::bell(100'000);
  const auto bytes = [&](const std::string& how) {
    Call call{.settings = parse_spec("scalecom:ratio=0.01" + how)->settings};
    const Payload indices = send(call, x, nullptr);
    call.phase = 1;
    call.context = indices;
    return indices.size() + send(call, x, nullptr).size();
  };
  EXPECT_EQ(bytes(""), 4 + 8 * 1000U);
  EXPECT_EQ(bytes(",values=bf16"), 12 + 4 * 1000U + 2 * 1000U);
  EXPECT_LT(bytes(",values=bf16,indices=auto"), 8004U / 2.5);
  EXPECT_LT(bytes(",values=8bit,indices=auto"), 2150U);
}

TEST(Scalecom, RefusesArraysOfAnotherForm) {
  const Floats x = draws::bell(1000);
  const Settings plain = parse_spec("scalecom")->settings,
                 half = parse_spec("scalecom:values=bf16")->settings;
  const Payload indices = send({.settings = half}, x, nullptr);
  EXPECT_EQ(scalecom().reference().check({.settings = plain}, x.size(), indices).code(), Code::kCorrupt);
  const Call call{.settings = half, .phase = 1, .context = indices};
  Payload sum = send(call, x, nullptr);
  const Payload before = sum;
  Payload longer = sum;
  longer.resize(2 * sum.size());
  EXPECT_EQ(scalecom().best(this_machine()).combine(call, x.size(), sum, longer, nullptr).status().code(),
            Code::kCorrupt);
  EXPECT_EQ(sum, before);
}

TEST(Scalecom, FastEqualsReferenceInEveryForm) {
  for (const std::string values : kValues)
    for (const std::string indices : kIndices)
      harness::expect_impls_agree("scalecom:ratio=0.1,values=" + values + ",indices=" + indices, 3);
}

}  // namespace
}  // namespace tithe
