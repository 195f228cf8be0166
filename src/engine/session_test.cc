// SPDX-License-Identifier: Apache-2.0
// Promises of session.h that need no suite; tests/conformance/law_suite.cc has the laws.
#include "tithe/session.h"

#include <gtest/gtest.h>

#include <cmath>

#include "conformance/ranks.h"

namespace tithe {
namespace {

using testing::Ranks;
using testing::text;

TEST(Session, MeanOfFp32OnEveryStrategyAndLaneCount) {
  for (const Strategy* strategy : all_strategies())
    for (const int lanes : {0, 1, 3}) {
      Ranks ranks(
          open_loop(4),
          {.codec = "fp32", .strategy = std::string(strategy->name), .lanes = lanes, .min_values = 0});
      std::vector<std::vector<float>> got(4);
      ranks.each([&](Rank r) {
        for (int round = 0; round < 3; ++round) {
          auto& v = got[static_cast<std::size_t>(r)];
          v.resize(1000);
          for (std::size_t i = 0; i < v.size(); ++i)
            v[i] = static_cast<float>(r + 1) * static_cast<float>(i % 17) + static_cast<float>(round);
          const Tensor t{.key = "w", .data = v.data(), .n = v.size()};
          const auto ticket = ranks[r].sync({&t, 1});
          ASSERT_TRUE(ticket.ok()) << text(ticket.status());
          const Status waited = ranks[r].wait(*ticket);
          ASSERT_TRUE(waited.ok()) << text(waited);
          ASSERT_TRUE(ranks[r].commit().ok());
          for (std::size_t i = 0; i < v.size(); ++i)
            ASSERT_EQ(v[i], 2.5F * static_cast<float>(i % 17) + static_cast<float>(round))
                << strategy->name << " lanes " << lanes << " rank " << r << " value " << i;
        }
      });
    }
}

}  // namespace
}  // namespace tithe
