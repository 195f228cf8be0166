// SPDX-License-Identifier: Apache-2.0
// The default number of lanes of a session.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/lanes.h"
#include "support/forwarding_transport.h"
#include "support/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;

// A machine with `cores` cores, which all ranks share.
class Roomy final : public testing::ForwardingTransport {
 public:
  Roomy(std::unique_ptr<Transport> inner, int cores) : ForwardingTransport(std::move(inner)), cores_(cores) {}
  CoresHere cores() const override { return {cores_, world()}; }

 private:
  const int cores_;
};

static_assert(default_lanes(2, 2) == 1 && default_lanes(1, 4) == 1 && default_lanes(8, 2) == 3);
static_assert(default_lanes(7, 2) == 2 && default_lanes(128, 2) == kMaxDefaultLanes);

TEST(Session, lanes_are_as_many_as_cores_are_left_free) {
  std::vector<float> first;
  for (const int cores : {0, 1, 8, 64}) {  // 0: lanes=2 is set instead
    std::vector<std::unique_ptr<Transport>> ends;
    for (auto& end : open_loop(2)) ends.push_back(std::make_unique<Roomy>(std::move(end), cores));
    SessionOptions options{.codec = "onebit", .min_values = 0, .part_values = 400};
    if (cores == 0) options.lanes = 2;
    Ranks ranks(std::move(ends), options);
    std::vector<float> result;
    ranks.each([&](Rank r) {
      std::vector<float> v(1000);
      for (std::size_t i = 0; i < v.size(); ++i)
        v[i] = static_cast<float>((i + 1) % 13) - 3.0F * static_cast<float>(r);
      for (int round = 0; round < 3; ++round) {
        const Tensor t{"w", v.data(), v.size(), DType::kF32};
        ASSERT_TRUE(ranks[r].sync({&t, 1}).ok());
        const Status committed = ranks[r].commit();
        ASSERT_TRUE(committed.ok()) << committed.what();
      }
      if (r == 0) result = v;
    });
    if (first.empty()) first = result;
    EXPECT_EQ(result, first) << cores << " cores";
    const int lanes = cores == 0 ? 2 : default_lanes(cores, 2);
    EXPECT_EQ(ranks[1].stats().lanes, lanes);
    std::string why = fmt::format("lanes: {}, from {} cores that 2 ranks may use\n", lanes, cores);
    if (cores == 0) why = "lanes: 2, set by lanes=\n";
    if (cores == 1) why = "lanes: 1, from 1 core that 2 ranks may use\n";
    EXPECT_TRUE(ranks[1].plan_text().starts_with(why)) << ranks[1].plan_text();
  }
}

}  // namespace
}  // namespace tithe
