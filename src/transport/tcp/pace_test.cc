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

// Bytes that were acknowledged while nobody asked counted as if the link had taken them just now.
TEST(TcpPace, a_pause_forgets_what_the_link_took) {
  Pace pace;
  const auto begin = Pace::Time{} + 1h;
  under_way_after(pace, begin, 125e6, 1ms);
  EXPECT_GT(pace.room(begin + 1001ms, 0, 1ms), 1'000'000U);
  EXPECT_EQ(pace.room(begin + 2s, 0, 1ms), Pace::kAlways);
}

}  // namespace
}  // namespace tithe::tcp
