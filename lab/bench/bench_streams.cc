// SPDX-License-Identifier: Apache-2.0
// bench_streams: the benefit of several data connections of tcp on a link with high latency. Messages over one and
// over several connections alternate, through a user-space proxy that limits each connection to a window
// (tests/support/delay_line.h).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "support/high_latency_ranks.h"

namespace tithe {
namespace {

using Seconds = std::chrono::duration<double>;

// The seconds of one message from rank 0 to rank 1; negative on failure.
double seconds_of(testing::HighLatencyRanks& far, std::vector<std::uint8_t>& in,
                  const std::vector<std::uint8_t>& out) {
  const auto begin = std::chrono::steady_clock::now();
  if (!far[1].recv(0, 1, in, 1).ok() || !far[0].send(1, 1, out, 2).ok() || !far.run(1).ok() || in != out)
    return -1;
  return Seconds(std::chrono::steady_clock::now() - begin).count();
}

int run(int streams, int round_trip_ms, std::size_t window, std::size_t bytes, int rounds) {
  const std::chrono::milliseconds one_way(round_trip_ms / 2);
  testing::HighLatencyRanks one({.streams = 1}, one_way, window),
      several({.streams = streams}, one_way, window);
  if (!one.opened().ok() || !several.opened().ok()) return 1;
  std::vector<double> ratios;
  for (int r = -1; r < rounds; ++r) {  // the first makes the connections
    const std::vector<std::uint8_t> out(bytes, static_cast<std::uint8_t>(r + 2));
    std::vector<std::uint8_t> in(bytes);
    const double a = seconds_of(one, in, out);
    std::fill(in.begin(), in.end(), std::uint8_t{0});
    const double b = seconds_of(several, in, out);
    if (a < 0 || b < 0) return 1;
    fmt::print("{} 1 stream {:.3f} s, {} streams {:.3f} s, ratio {:.2f}\n", r < 0 ? "warm-up:" : "        ",
               a, streams, b, a / b);
    if (r >= 0) ratios.push_back(a / b);
  }
  std::sort(ratios.begin(), ratios.end());
  fmt::print(
      "{} streams over {} ms, {} bytes a window, messages of {} bytes: {:.2f} times one ({:.2f} to {:.2f})\n",
      streams, round_trip_ms, window, bytes, ratios[ratios.size() / 2], ratios.front(), ratios.back());
  return 0;
}

}  // namespace
}  // namespace tithe

int main(int argc, char** argv) {
  CLI::App app("several data connections of tcp over a long way, as a ratio to one");
  int streams = 4, round_trip_ms = 80, rounds = 5;
  std::size_t window = 256 * 1024, bytes = 8 << 20;
  app.add_option("--streams", streams, "data connections")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--round-trip", round_trip_ms, "milliseconds")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  app.add_option("--window", window, "bytes of one connection that may be on the way")->capture_default_str();
  app.add_option("--bytes", bytes, "of a message")->capture_default_str();
  app.add_option("--rounds", rounds, "pairs of messages")->check(CLI::Range(1, 1000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return tithe::run(streams, round_trip_ms, window, bytes, rounds);
}
