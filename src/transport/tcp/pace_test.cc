// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/pace.h"

#include <gtest/gtest.h>

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

// A link that takes `rate` bytes a second and says so after `delay`; what is under way after a second of writing
// whenever there is room.
std::size_t under_way_after(Pace& pace, Pace::Time begin, double rate, std::chrono::milliseconds delay) {
  double written = 0;
  std::size_t under_way = 0;
  for (auto t = 0ms; t < 1000ms; t += 1ms) {
    const double seconds = std::chrono::duration<double>(t - delay).count();
    const double acknowledged = std::clamp(seconds * rate, 0.0, written);
    under_way = static_cast<std::size_t>(written - acknowledged);
    const std::size_t room = pace.room(begin + t, under_way, delay);
    pace.wrote(room);
    written += static_cast<double>(room);
  }
  return under_way;
}

TEST(TcpPace, a_slow_link_has_a_short_queue) {
  Pace pace;
  const std::size_t under_way = under_way_after(pace, Pace::Time{} + 1h, 125'000, 1ms);
  EXPECT_GE(under_way, 16'384U);            // it is never idle
  EXPECT_LE(under_way, 16'384U + 32'000U);  // a quarter of a second
}

// Enough is under way to fill such a link, however far it goes.
TEST(TcpPace, a_fast_link_is_not_held_back) {
  for (const auto delay : {1ms, 80ms, 200ms}) {
    Pace pace;
    const double rate = 125e6;
    EXPECT_GE(static_cast<double>(under_way_after(pace, Pace::Time{} + 1h, rate, delay)),
              rate * std::chrono::duration<double>(delay).count())
        << delay.count() << " ms";
  }
}

// Rounds of a job whose steps compute for a while began with 16 KiB: over 40 ms they took 2.0 to 2.4 times as long.
TEST(TcpPace, a_pause_leaves_what_the_link_took) {
  Pace pace;
  const auto begin = Pace::Time{} + 1h;
  under_way_after(pace, begin, 125e6, 40ms);
  const std::size_t room = pace.room(begin + 3s, 0, 40ms);
  EXPECT_GT(room, 20'000'000U);
  EXPECT_LT(room, 50'000'000U) << "more than within a quarter of a second";
  pace.wrote(room);
  EXPECT_GT(pace.room(begin + 3s + 60ms, room, 40ms) + room, 20'000'000U) << "before a round trip is over";
}

// Bytes that were acknowledged while nobody asked counted as if the link had taken them just now.
TEST(TcpPace, a_long_pause_forgets_what_the_link_took) {
  Pace pace;
  const auto begin = Pace::Time{} + 1h;
  under_way_after(pace, begin, 125e6, 1ms);
  EXPECT_GT(pace.room(begin + 1001ms, 0, 1ms), 1'000'000U);
  EXPECT_EQ(pace.room(begin + Pace::kRemembered + 2s, 0, 1ms), Pace::kAlways);
}

TEST(TcpPace, a_link_that_has_become_slow_has_a_short_queue) {
  Pace pace;
  const auto begin = Pace::Time{} + 1h;
  under_way_after(pace, begin, 12.5e6, 1ms);
  const std::size_t under_way = under_way_after(pace, begin + 2s, 125'000, 1ms);
  EXPECT_LE(under_way, 3'200'000U) << "it was filled once, and no further";
  EXPECT_EQ(pace.room(begin + 4s, under_way, 1ms), 0U) << "what it has not taken is more than it may have";
  const std::size_t later = under_way_after(pace, begin + 60s, 125'000, 1ms);
  EXPECT_LE(later, 16'384U + 40'000U);
}

}  // namespace
}  // namespace tithe::tcp
