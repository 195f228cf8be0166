// SPDX-License-Identifier: Apache-2.0
#include "try_transport.h"

#include <fmt/format.h>

#include <array>
#include <barrier>
#include <thread>

#include "tithe/connect.h"

namespace tithe::cli {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 5s;
constexpr std::array<std::uint8_t, 8> kMessage = {'t', 'i', 't', 'h', 'e', ' ', 'o', 'k'};
constexpr Channel kChannel = 1;
constexpr OpId kSent = 1, kReceived = 2;

// Two completions, or why there are fewer.
Status exchange(Transport& transport) {
  const Rank peer = 1 - transport.rank();
  std::array<std::uint8_t, kMessage.size()> in{};
  TITHE_TRY(transport.recv(peer, kChannel, in, kReceived));
  TITHE_TRY(transport.send(peer, kChannel, kMessage, kSent));
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (int done = 0; done < 2;) {
    Completion one;
    if (transport.poll({&one, 1}, 100ms) == 0) {
      if (std::chrono::steady_clock::now() > until)
        return {Code::kTimeout, fmt::format("a message did not arrive within {} s", kPatience.count())};
      continue;
    }
    TITHE_TRY(one.status);
    ++done;
  }
  return in == kMessage ? Status() : Status(Code::kCorrupt, "a message arrived with other bytes");
}

}  // namespace

Status try_transport(std::string_view text) {
  std::array<std::vector<std::uint8_t>, 2> blobs;
  std::barrier<> both(2);
  std::array<Status, 2> ended;
  const auto rank = [&](std::size_t me) {
    const AllGather gather = [&](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
      blobs[me].assign(mine.begin(), mine.end());
      both.arrive_and_wait();
      return std::vector(blobs.begin(), blobs.end());
    };
    Result<std::unique_ptr<Transport>> opened = open_transport(
        text, {.rank = static_cast<Rank>(me), .world = 2, .all_gather = gather, .timeout = kPatience});
    ended[me] = opened.ok() ? exchange(**opened) : opened.status();
  };
  std::thread other(rank, 1);
  rank(0);
  other.join();
  return ended[0].ok() ? ended[1] : ended[0];
}

}  // namespace tithe::cli
