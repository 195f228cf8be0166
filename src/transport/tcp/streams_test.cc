// SPDX-License-Identifier: Apache-2.0
// Several data connections, and ranks far from each other.
#include <gtest/gtest.h>

#include "support/far_ranks.h"

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

// Pieces of a message overtake each other on their connections, and come together as they were.
TEST(TcpStreams, messages_are_whole_over_a_long_way) {
  testing::FarRanks far({.streams = 4}, 5ms, 100'000);
  ASSERT_TRUE(far.opened().ok()) << far.opened().what();
  const std::size_t sizes[] = {5'000, 1'000'003, 4096, 2'500'000, 40};
  std::vector<std::vector<std::uint8_t>> sent, got;
  for (const std::size_t bytes : sizes) {
    sent.emplace_back(bytes);
    for (std::size_t i = 0; i < bytes; ++i) sent.back()[i] = static_cast<std::uint8_t>(i * 31 + i / 253);
    got.emplace_back(bytes);
  }
  for (std::size_t k = 0; k < std::size(sizes); ++k) {
    ASSERT_TRUE(far[1].recv(0, 3, got[k], k).ok());
    ASSERT_TRUE(far[0].send(1, 3, sent[k], k).ok());
  }
  EXPECT_TRUE(far.run(std::size(sizes)).ok());
  EXPECT_EQ(got, sent);
}

}  // namespace
}  // namespace tithe::tcp
