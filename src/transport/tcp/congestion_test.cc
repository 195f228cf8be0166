// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/congestion.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

// Simulates a link that delivers `rate` bytes per second and acknowledges them after `delay`. Returns the bytes in
// flight after a second of writing whenever there is room. A `queue` adds its delay to the round trip time, and loses a
// packet every millisecond.
std::size_t bytes_in_flight_after(Congestion& congestion, Congestion::Time begin, double rate,
                                  std::chrono::milliseconds delay, std::chrono::milliseconds queue = 0ms) {
  double written = 0;
  std::size_t bytes_in_flight = 0;
  for (auto t = 0ms; t < 1000ms; t += 1ms) {
    const double seconds = std::chrono::duration<double>(t - delay).count();
    const double acknowledged = std::clamp(seconds * rate, 0.0, written);
    bytes_in_flight = static_cast<std::size_t>(written - acknowledged);
    const auto lost = queue > 0ms ? static_cast<std::uint32_t>(t.count()) : 0;
    const Congestion::LinkState link{
        .bytes_in_flight = bytes_in_flight, .round_trip = delay + queue, .retransmitted = lost};
    const std::size_t room = congestion.room(begin + t, link, kNoLimit);
    congestion.wrote(room);
    written += static_cast<double>(room);
  }
  return bytes_in_flight;
}

TEST(TcpCongestion, a_slow_link_has_a_short_queue) {
  Congestion congestion;
  const std::size_t bytes_in_flight =
      bytes_in_flight_after(congestion, Congestion::Time{} + 1h, 125'000, 1ms);
  EXPECT_GE(bytes_in_flight, 16'384U);            // the link is never idle
  EXPECT_LE(bytes_in_flight, 16'384U + 32'000U);  // a quarter of a second
}

// Enough bytes are in flight to fill the link at any distance.
TEST(TcpCongestion, a_fast_link_is_not_held_back) {
  for (const auto delay : {1ms, 80ms, 200ms}) {
    Congestion congestion;
    const double rate = 125e6;
    EXPECT_GE(static_cast<double>(bytes_in_flight_after(congestion, Congestion::Time{} + 1h, rate, delay)),
              rate * std::chrono::duration<double>(delay).count())
        << delay.count() << " ms";
  }
}

// Without the memory of a pause, each round after a computation would start with 16 KiB, and take 2.0 to 2.4 times as
// long over a round trip of 40 ms.
TEST(TcpCongestion, a_short_pause_keeps_the_link_estimate) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 125e6, 40ms);
  const std::size_t room = congestion.room(begin + 3s, {.round_trip = 40ms}, kNoLimit);
  EXPECT_GT(room, 20'000'000U);
  EXPECT_LT(room, 50'000'000U) << "at most what the link delivers in a quarter of a second";
  congestion.wrote(room);
  EXPECT_GT(
      congestion.room(begin + 3s + 60ms, {.bytes_in_flight = room, .round_trip = 40ms}, kNoLimit) + room,
      20'000'000U)
      << "more room before a round trip has passed";
}

// Bytes acknowledged during a pause must not count as delivered at its end.
TEST(TcpCongestion, a_long_pause_resets_the_link_estimate) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 125e6, 1ms);
  EXPECT_GT(congestion.room(begin + 1001ms, {.round_trip = 1ms}, kNoLimit), 1'000'000U);
  EXPECT_EQ(congestion.room(begin + Congestion::kPeakLifetime + 2s, {.round_trip = 1ms}, kNoLimit),
            Congestion::kAlways);
}

TEST(TcpCongestion, a_link_that_has_become_slow_has_a_short_queue) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 12.5e6, 1ms);
  const std::size_t bytes_in_flight = bytes_in_flight_after(congestion, begin + 2s, 125'000, 1ms);
  EXPECT_LE(bytes_in_flight, 3'200'000U) << "the limit is used once and not exceeded";
  EXPECT_EQ(congestion.room(begin + 4s, {.bytes_in_flight = bytes_in_flight, .round_trip = 1ms}, kNoLimit),
            0U)
      << "the unacknowledged bytes exceed the limit";
  const std::size_t later = bytes_in_flight_after(congestion, begin + 60s, 125'000, 1ms);
  EXPECT_LE(later, 16'384U + 40'000U);
}

// Three ranks that send to a fourth behind a queue of 64 KB would lose packets in every round.
TEST(TcpCongestion, losses_from_a_queue_shrink_the_window) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 12.5e6, 1ms);
  std::size_t bytes_in_flight = 0;
  for (int k = 1; k < 5; ++k)
    bytes_in_flight = bytes_in_flight_after(congestion, begin + k * 1s, 12.5e6, 1ms, 5ms);
  EXPECT_LE(bytes_in_flight, 60'000U) << "without losses it would be 3 MB";
}

// If the link runs dry, the limit doubles again, but not soon after losses.
TEST(TcpCongestion, an_idle_link_gets_a_larger_window_after_old_losses) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 12.5e6, 1ms);
  for (int k = 1; k < 5; ++k) bytes_in_flight_after(congestion, begin + k * 1s, 12.5e6, 1ms, 5ms);
  for (const auto& [later, may] :
       {std::pair{5500ms, Congestion::kAlways}, {6s + Congestion::kHoldTime, 2 * Congestion::kAlways}}) {
    const Congestion::LinkState full{.bytes_in_flight = 100'000, .round_trip = 6ms, .retransmitted = 999};
    const Congestion::LinkState idle{
        .bytes_in_flight = 0, .idle = true, .round_trip = 6ms, .retransmitted = 999};
    EXPECT_EQ(congestion.room(begin + later, full, kNoLimit), 0U);
    const std::size_t room = congestion.room(begin + later + 1ms, idle, kNoLimit);
    EXPECT_GE(room, may);
    EXPECT_LT(room, may + 1000);
  }
}

// TCP also retransmits to probe for lost acknowledgements, and a path may lose some packets without any queue.
TEST(TcpCongestion, few_losses_and_those_without_a_queue_change_nothing) {
  const auto begin = Congestion::Time{} + 1h;
  for (const Congestion::LinkState& link : {Congestion::LinkState{.round_trip = 6ms, .retransmitted = 31},
                                            Congestion::LinkState{.round_trip = 1ms, .retransmitted = 999}}) {
    Congestion congestion;
    bytes_in_flight_after(congestion, begin, 12.5e6, 1ms);
    EXPECT_GT(congestion.room(begin + 1249ms, link, kNoLimit), 1'000'000U) << link.retransmitted;
  }
}

TEST(TcpCongestion, a_high_latency_link_stays_full_after_losses) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 12.5e6, 80ms);
  EXPECT_GE(bytes_in_flight_after(congestion, begin + 1s, 12.5e6, 80ms, 100ms), 1'000'000U)
      << "the bytes that the link delivers in 80 ms";
}

// The wait must not exceed the time at which the link has room again, or the link would be idle.
TEST(TcpCongestion, it_probes_again_once_the_queue_drains) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 4e6, 1ms);
  for (auto t = 1'000'000us; t < 1'001'000us; t += 100us) {
    EXPECT_EQ(congestion.room(begin + t, {.bytes_in_flight = 16'384, .round_trip = 1ms}, 16'384), 0U);
    EXPECT_LE(congestion.wait(), 1200us) << "the link delivers a quarter of 16 KiB in 1 ms";
  }
}

// The engine's window is refilled once a quarter of it is free.
TEST(TcpCongestion, a_limit_is_kept) {
  Congestion congestion;
  const auto begin = Congestion::Time{} + 1h;
  bytes_in_flight_after(congestion, begin, 12.5e6, 1ms);
  EXPECT_EQ(congestion.room(begin + 1001ms, {.bytes_in_flight = 20'000, .round_trip = 1ms}, 65'536), 45'536U);
  EXPECT_EQ(congestion.room(begin + 1002ms, {.bytes_in_flight = 60'000, .round_trip = 1ms}, 65'536), 0U);
}

}  // namespace
}  // namespace tithe::tcp
