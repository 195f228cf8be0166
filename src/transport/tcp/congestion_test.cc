// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/congestion.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// A link that takes `rate` bytes a second and says so after `delay`; what is under way after a second of writing
// whenever there is room. With a queue before it, which takes longer by so much, a packet is lost every millisecond.
std::size_t under_way_after(Congestion& congestion, Congestion::Time begin, double rate,
                            std::chrono::milliseconds delay, std::chrono::milliseconds queue = 0ms) {
  double written = 0;
  std::size_t under_way = 0;
  for (auto t = 0ms; t < 1000ms; t += 1ms) {
    const double seconds = std::chrono::duration<double>(t - delay).count();
    const double acknowledged = std::clamp(seconds * rate, 0.0, written);
    under_way = static_cast<std::size_t>(written - acknowledged);
    const auto lost = queue > 0ms ? static_cast<std::uint32_t>(t.count()) : 0;
    const Congestion::Look look{.under_way = under_way, .trip = delay + queue, .sent_again = lost};
    const std::size_t room = congestion.room(begin + t, look, kNoLimit);
    congestion.wrote(room);
    written += static_cast<double>(room);
  }
  return under_way;
}

TEST(TcpPace, a_slow_link_has_a_short_queue) {
  Congestion congestion;
  const std::size_t under_way = under_way_after(congestion, Congestion::Time{} + 1h, 125'000, 1ms);
  EXPECT_GE(under_way, 16'384U);            // it is never idle
  EXPECT_LE(under_way, 16'384U + 32'000U);  // a quarter of a second
}

// Enough is under way to fill such a link, however far it goes.
TEST(TcpPace, a_fast_link_is_not_held_back) {
  for (const auto delay : {1ms, 80ms, 200ms}) {
    Congestion congestion;
    const double rate = 125e6;
    EXPECT_GE(static_cast<double>(under_way_after(congestion, Congestion::Time{} + 1h, rate, delay)),
              rate * std::chrono::duration<double>(delay).count())
        << delay.count() << " ms";
  }
}

// Rounds of a job whose steps compute for a while began with 16 KiB: over 40 ms they took 2.0 to 2.4 times as long.
TEST(TcpPace, a_pause_leaves_what_the_link_took) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 125e6, 40ms);
  const std::size_t room = congestion.room(begin + 3s, {.trip = 40ms}, kNoLimit);
  EXPECT_GT(room, 20'000'000U);
  EXPECT_LT(room, 50'000'000U) << "more than within a quarter of a second";
  congestion.wrote(room);
  EXPECT_GT(congestion.room(begin + 3s + 60ms, {.under_way = room, .trip = 40ms}, kNoLimit) + room,
            20'000'000U)
      << "before a round trip is over";
}

// Bytes that were acknowledged while nobody asked counted as if the link had taken them just now.
TEST(TcpPace, a_long_pause_forgets_what_the_link_took) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 125e6, 1ms);
  EXPECT_GT(congestion.room(begin + 1001ms, {.trip = 1ms}, kNoLimit), 1'000'000U);
  EXPECT_EQ(congestion.room(begin + Congestion::kRemembered + 2s, {.trip = 1ms}, kNoLimit),
            Congestion::kAlways);
}

TEST(TcpPace, a_link_that_has_become_slow_has_a_short_queue) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 12.5e6, 1ms);
  const std::size_t under_way = under_way_after(congestion, begin + 2s, 125'000, 1ms);
  EXPECT_LE(under_way, 3'200'000U) << "it was filled once, and no further";
  EXPECT_EQ(congestion.room(begin + 4s, {.under_way = under_way, .trip = 1ms}, kNoLimit), 0U)
      << "what it has not taken is more than it may have";
  const std::size_t later = under_way_after(congestion, begin + 60s, 125'000, 1ms);
  EXPECT_LE(later, 16'384U + 40'000U);
}

// Three ranks that sent to a fourth behind a queue of 64 KB lost packets in every round.
TEST(TcpPace, losses_from_a_queue_leave_less_under_way) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 12.5e6, 1ms);
  std::size_t under_way = 0;
  for (int k = 1; k < 5; ++k) under_way = under_way_after(congestion, begin + k * 1s, 12.5e6, 1ms, 5ms);
  EXPECT_LE(under_way, 60'000U) << "3 MB without losses";
}

// The link was through before this rank came to ask: so it may have more again, but not at once.
TEST(TcpPace, a_link_that_runs_dry_has_more_once_the_losses_are_long_ago) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 12.5e6, 1ms);
  for (int k = 1; k < 5; ++k) under_way_after(congestion, begin + k * 1s, 12.5e6, 1ms, 5ms);
  for (const auto& [later, may] :
       {std::pair{5500ms, Congestion::kAlways}, {6s + Congestion::kCareful, 2 * Congestion::kAlways}}) {
    const Congestion::Look full{.under_way = 100'000, .trip = 6ms, .sent_again = 999};
    const Congestion::Look dry{.under_way = 0, .dry = true, .trip = 6ms, .sent_again = 999};
    EXPECT_EQ(congestion.room(begin + later, full, kNoLimit), 0U);
    const std::size_t room = congestion.room(begin + later + 1ms, dry, kNoLimit);
    EXPECT_GE(room, may);
    EXPECT_LT(room, may + 1000);
  }
}

// TCP sends a packet again to find out whether the last one arrived, and a way may lose some without any queue.
TEST(TcpPace, few_losses_and_those_without_a_queue_change_nothing) {
  const auto begin = Congestion::Time{} + 1h;
  for (const Congestion::Look& look :
       {Congestion::Look{.trip = 6ms, .sent_again = 31}, Congestion::Look{.trip = 1ms, .sent_again = 999}}) {
    Congestion congestion;
    under_way_after(congestion, begin, 12.5e6, 1ms);
    EXPECT_GT(congestion.room(begin + 1249ms, look, kNoLimit), 1'000'000U) << look.sent_again;
  }
}

TEST(TcpPace, a_long_way_stays_full_after_losses) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 12.5e6, 80ms);
  EXPECT_GE(under_way_after(congestion, begin + 1s, 12.5e6, 80ms, 100ms), 1'000'000U)
      << "what it takes within 80 ms";
}

// The wait doubled each time that nothing was acknowledged, past the time at which the link had room, and left it idle.
TEST(TcpPace, it_asks_again_once_the_link_has_made_room) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 4e6, 1ms);
  for (auto t = 1'000'000us; t < 1'001'000us; t += 100us) {
    EXPECT_EQ(congestion.room(begin + t, {.under_way = 16'384, .trip = 1ms}, 16'384), 0U);
    EXPECT_LE(congestion.wait(), 1200us) << "a quarter of 16 KiB takes 1 ms";
  }
}

// A window of the engine's is filled up once a quarter of it is free.
TEST(TcpPace, a_limit_holds) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  under_way_after(congestion, begin, 12.5e6, 1ms);
  EXPECT_EQ(congestion.room(begin + 1001ms, {.under_way = 20'000, .trip = 1ms}, 65'536), 45'536U);
  EXPECT_EQ(congestion.room(begin + 1002ms, {.under_way = 60'000, .trip = 1ms}, 65'536), 0U);
}

}  // namespace
}  // namespace tithe::tcp
