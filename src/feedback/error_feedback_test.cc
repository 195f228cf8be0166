// SPDX-License-Identifier: Apache-2.0
// Moving a tensor's state between buffers. tests/conformance/ tests the use of the state in a round.
#include "feedback/error_feedback.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tithe/seam/catalogue.h"

namespace tithe::feedback {
namespace {

using Floats = std::vector<float>;

struct Shape {
  std::vector<ValueRange> tensors;
  std::vector<FeedbackPart> parts;
};

// Tensors of these sizes, each cut into parts of at most `most` values.
Shape apart(std::span<const std::size_t> sizes, const char* spec, std::size_t most = 1000) {
  Shape s;
  std::size_t at = 0;
  for (const std::size_t n : sizes) {
    s.tensors.push_back({at, n});
    for (std::size_t k = 0; k < n; k += most)
      s.parts.push_back({{at + k, std::min(most, n - k)}, *parse_spec(spec), {0, std::min(most, n - k)}});
    at += n;
  }
  return s;
}

// All tensors in one part.
Shape together(std::span<const std::size_t> sizes, const char* spec) {
  Shape s = apart(sizes, spec);
  const std::size_t n = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
  s.parts = {{{0, n}, *parse_spec(spec), {0, n}}};
  return s;
}

ErrorFeedback make(const Shape& s, std::span<const StateKinds> incoming = {}) {
  return {s.tensors, s.parts, incoming};
}

void fill(std::span<float> v, float first) { std::iota(v.begin(), v.end(), first); }
Floats floats(std::span<const float> v) { return {v.begin(), v.end()}; }

constexpr std::size_t kSizes[] = {30, 0, 70}, kTurned[] = {70, 30, 0};
constexpr ValueRange kA{0, 30}, kB{30, 70}, kTurnedA{70, 30}, kTurnedB{0, 70};

TEST(ErrorFeedback, ResidualOfOneTensorIsMovedWithoutACopy) {
  for (const int rounds : {0, 1}) {  // so that the two buffers differ in the committed copy
    ErrorFeedback before = make(apart(kSizes, "topk:ratio=0.1", 40));
    for (int k = 0; k < rounds; ++k) before.commit();
    fill(before.residual(kA), 1);
    fill(before.residual(kB), 100);
    const std::vector<StateKinds> incoming = {before.transferable(kB), before.transferable(kA),
                                              before.transferable({30, 0})};
    EXPECT_TRUE(incoming[0].residual && incoming[1].residual);
    EXPECT_FALSE(incoming[0].velocity || incoming[2].residual);
    ErrorFeedback after = make(apart(kTurned, "onebit"), incoming);
    EXPECT_TRUE(after.residual(kTurnedB).empty()) << "memory is not allocated before the move";
    const Floats a = floats(before.residual(kA)), b = floats(before.residual(kB));
    const float *at_a = before.residual(kA).data(), *at_b = before.residual(kB).data();
    EXPECT_TRUE(after.take_over(kTurnedA, before, kA, true));
    EXPECT_TRUE(after.take_over(kTurnedB, before, kB, true));
    after.complete();
    EXPECT_EQ(after.residual(kTurnedA).data(), at_a);
    EXPECT_EQ(after.residual(kTurnedB).data(), at_b);
    EXPECT_EQ(floats(after.residual(kTurnedA)), a);
    EXPECT_EQ(floats(after.residual(kTurnedB)), b);
    const Floats grad(70);
    const EncodeInput seen = after.view(0, 0, grad.data(), true);
    EXPECT_EQ(seen.residual, at_b);
    EXPECT_NE(seen.residual_out, nullptr);
    EXPECT_NE(seen.residual_out, seen.residual);
  }
}

TEST(ErrorFeedback, OnlyLossyPartsHaveResiduals) {
  Shape s = apart(kSizes, "topk:ratio=0.1");
  s.parts[0].spec = *parse_spec("fp32");
  ErrorFeedback mixed = make(s);
  EXPECT_TRUE(mixed.residual(kA).empty());
  EXPECT_EQ(mixed.residual(kB).size(), 70U);
  EXPECT_TRUE(mixed.velocity(kB).empty());
}

TEST(ErrorFeedback, ResidualsInASharedPartStayInPlace) {
  ErrorFeedback before = make(together(kSizes, "topk:ratio=0.1")),
                after = make(apart(kSizes, "topk:ratio=0.1"));
  fill(before.residual(kA), 1);
  EXPECT_FALSE(before.transferable(kA).residual);
  EXPECT_FALSE(after.take_over(kA, before, kA, true));
  EXPECT_EQ(floats(after.residual(kA)), Floats(30));
  EXPECT_EQ(before.residual(kA)[0], 1.0F);
  EXPECT_FALSE(before.take_over(kA, after, kA, true));
  EXPECT_EQ(before.residual(kA)[0], 1.0F);
}

TEST(ErrorFeedback, LosslessCodecReadsTheResidualUntilACommit) {
  ErrorFeedback before = make(apart(kSizes, "topk:ratio=0.1", 40)), after = make(apart(kSizes, "fp32", 50));
  before.commit();
  fill(before.residual(kB), 1);
  for (const ValueRange t : {kA, kB}) EXPECT_TRUE(after.take_over(t, before, t, true));
  after.complete();
  EXPECT_TRUE(after.residual(kA).empty()) << "a tensor without unsent values needs no residual";
  const Floats unsent = floats(after.residual(kB)), grad(50);
  EXPECT_EQ(unsent[69], 70.0F);
  for (int round = 0; round < 2; ++round) {  // the first round is not committed
    EXPECT_EQ(after.view(0, 0, grad.data(), true).residual, nullptr);
    const EncodeInput first = after.view(1, 0, grad.data(), true),
                      second = after.view(2, 0, grad.data(), true);
    EXPECT_EQ(first.residual, after.residual(kB).data());
    EXPECT_EQ(second.residual, after.residual(kB).data() + 50);
    EXPECT_EQ(first.residual_out, nullptr) << "a lossless codec leaves no residual";
    EXPECT_EQ(floats(after.residual(kB)), unsent);
  }
  after.commit();
  EXPECT_TRUE(after.residual(kB).empty());
  EXPECT_EQ(after.view(1, 0, grad.data(), true).residual, nullptr);
  const std::vector<LargeFloats> spent = after.take_spent();
  ASSERT_EQ(spent.size(), 1U);
  EXPECT_EQ(floats(spent[0]), unsent);
  EXPECT_TRUE(after.take_spent().empty());
}

// The next codec comes before the residual was sent: it exists in one copy only.
TEST(ErrorFeedback, UnsentResidualIsKept) {
  ErrorFeedback first = make(apart(kSizes, "topk:ratio=0.1")), second = make(apart(kSizes, "fp32"));
  fill(first.residual(kB), 1);
  EXPECT_TRUE(second.take_over(kB, first, kB, true));
  const StateKinds incoming[] = {second.transferable(kA), {}, second.transferable(kB)};
  EXPECT_FALSE(incoming[2].residual);
  ErrorFeedback third = make(apart(kSizes, "onebit"), incoming);
  EXPECT_TRUE(third.take_over(kB, second, kB, true));
  third.complete();
  EXPECT_EQ(third.residual(kB)[69], 70.0F);
  third.commit();
  EXPECT_EQ(third.residual(kB).size(), 70U);
}

TEST(ErrorFeedback, CodecWithoutFeedbackKeepsAnAdoptedResidual) {
  ErrorFeedback before = make(apart(kSizes, "topk:ratio=0.1"));
  ErrorFeedback after = make(apart(kSizes, "topk:ratio=0.1,feedback=none"));
  EXPECT_TRUE(after.residual(kA).empty());
  fill(before.residual(kB), 1);
  for (const ValueRange t : {kA, kB}) EXPECT_TRUE(after.take_over(t, before, t, true));
  after.complete();
  EXPECT_TRUE(after.residual(kA).empty());
  const Floats grad(70);
  EXPECT_NE(after.view(1, 0, grad.data(), true).residual_out, nullptr);
  after.commit();
  EXPECT_EQ(after.residual(kB).size(), 70U);
  EXPECT_TRUE(after.take_spent().empty());
}

// The tensor's state is in another layout, so only the memory is moved, with undefined contents.
TEST(ErrorFeedback, StateOutsideTheLedgerIsNotCounted) {
  ErrorFeedback before = make(apart(kSizes, "topk:ratio=0.1"));
  fill(before.residual(kB), 1);
  const StateKinds incoming[] = {{}, {}, before.transferable(kB)};
  ErrorFeedback needs = make(apart(kSizes, "onebit"), incoming), needs_none = make(apart(kSizes, "fp32"));
  EXPECT_TRUE(needs_none.take_over(kB, before, kB, false));
  EXPECT_TRUE(needs_none.residual(kB).empty());
  const float* memory = before.residual(kB).data();
  EXPECT_TRUE(needs.take_over(kB, before, kB, false));
  EXPECT_EQ(needs.residual(kB).data(), memory);
  needs.adopt(kB, {});
  EXPECT_EQ(floats(needs.residual(kB)), Floats(70));
}

TEST(ErrorFeedback, VelocitiesMoveWithTheirTensor) {
  ErrorFeedback before = make(apart(kSizes, "dgc:feedback=momentum"));
  fill(before.velocity(kB), 1);
  fill(before.residual(kB), 200);
  const StateKinds incoming[] = {before.transferable(kA), {}, before.transferable(kB)};
  EXPECT_TRUE(incoming[2].velocity);
  Shape fp32 = apart(kSizes, "fp32");
  // Choices share the momentum among tensors.
  for (FeedbackPart& p : fp32.parts) p.spec.feedback.kind = Feedback::kMomentum;
  ErrorFeedback after = make(fp32, incoming);
  // kA is expected but not moved: complete() allocates its memory.
  EXPECT_TRUE(after.take_over(kB, before, kB, true));
  after.complete();
  EXPECT_EQ(after.velocity(kB)[69], 70.0F);
  EXPECT_EQ(floats(after.velocity(kA)), Floats(30));
  EXPECT_EQ(after.residual(kB)[69], 269.0F) << "the residual is still unsent";
}

}  // namespace
}  // namespace tithe::feedback
