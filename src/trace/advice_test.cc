// SPDX-License-Identifier: Apache-2.0
// Made-up steps, and the bucket size that suits them.
#include "trace/advice.h"

#include <gtest/gtest.h>

namespace tithe::trace {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kMb = 1 << 20;

// A model of `mb` MB whose gradients become ready evenly during backward, with DDP's buckets. Each bucket occupies the
// session for bucket_ns plus ns_per_mb per MB.
struct MadeSteps {
  std::int64_t mb = 100, cap_mb = 25, first_mb = 1;
  std::int64_t backward_ns = 100 * kMs, forward_ns = 50 * kMs;
  std::int64_t bucket_ns = kMs / 10, ns_per_mb = kMs / 2;

  std::vector<Round> rounds() const {
    std::vector<Round> out;
    std::int64_t now = 0;
    for (std::uint32_t r = 0; r < 5; ++r) {
      Round round{.number = r, .begin = now, .end = 0, .backward = {}, .buckets = {}};
      const std::int64_t begin = now + forward_ns;
      round.backward = {begin, begin + backward_ns};
      std::int64_t done = 0;
      for (std::int64_t have = 0; have < mb;) {
        const std::int64_t size = std::min(have == 0 ? std::min(cap_mb, first_mb) : cap_mb, mb - have);
        have += size;
        const std::int64_t handed = begin + backward_ns * have / mb;
        done = std::max(done, handed) + bucket_ns + ns_per_mb * size;
        round.buckets.push_back({handed, done, static_cast<std::uint64_t>(size * kMb)});
      }
      round.end = now = std::max(done, begin + backward_ns);
      out.push_back(std::move(round));
    }
    return out;
  }
};

TEST(Advice, SingleBucketIsTooLarge) {
  const MadeSteps steps{.cap_mb = 100, .first_mb = 100};
  const std::optional<Advice> a = advise(steps.rounds(), 50'000);
  ASSERT_TRUE(a.has_value());
  EXPECT_LT(a->bucket_cap_mb, 25);
  EXPECT_EQ(a->largest_mb, 100);
  EXPECT_GT(a->spared_ns, 40 * kMs) << "the open time was 50 ms";
  EXPECT_EQ(a->bucket_ns, 100'000) << "the round trip of the fastest frame";
}

TEST(Advice, ManyEquallyExpensiveBucketsAreTooSmall) {
  const MadeSteps steps{
      .cap_mb = 1, .bucket_ns = 2 * kMs, .ns_per_mb = kMs / 10};  // 200 ms for 100 ms of backward
  const std::optional<Advice> a = advise(steps.rounds(), 1.0 * kMs);
  ASSERT_TRUE(a.has_value());
  EXPECT_GT(a->bucket_cap_mb, 2);
  EXPECT_NEAR(a->bucket_ns, 2 * kMs, 1000);
}

TEST(Advice, IsEmptyWithoutAClearCause) {
  EXPECT_FALSE(advise(MadeSteps{.cap_mb = 5}.rounds(), 50'000).has_value());
  // Other buckets do not help if the link needs longer than the whole step.
  EXPECT_FALSE(advise(MadeSteps{.cap_mb = 5, .ns_per_mb = 20 * kMs}.rounds(), 50'000).has_value());
  EXPECT_FALSE(advise({}, 50'000).has_value());
  std::vector<Round> unmarked = MadeSteps{.cap_mb = 100, .first_mb = 100}.rounds();
  for (Round& r : unmarked) r.backward.reset();
  EXPECT_FALSE(advise(unmarked, 50'000).has_value()) << "the backward pass is not marked";
}

// The costs come from a line through buckets of different sizes.
TEST(Advice, FindsTheCostOfABucket) {
  const MadeSteps steps{.cap_mb = 50, .first_mb = 1, .bucket_ns = 3 * kMs, .ns_per_mb = kMs};
  const std::optional<Advice> a = advise(steps.rounds(), 0);
  ASSERT_TRUE(a.has_value());
  EXPECT_NEAR(a->bucket_ns, 3 * kMs, 1000);
  EXPECT_NEAR(a->byte_ns * kMb, kMs, 1000);
}

}  // namespace
}  // namespace tithe::trace
