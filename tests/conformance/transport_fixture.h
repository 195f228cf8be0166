// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks of one process over one transport, and the completions of their operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/rng.h"
#include "support/transport_world.h"

namespace tithe::testing {

using namespace std::chrono_literals;

constexpr auto kPatience = std::chrono::seconds(30);  // only a failing test waits this long

class TransportSuite : public ::testing::TestWithParam<std::string> {
 protected:
  void open(int world) {
    ranks_ = open_world(GetParam(), world);
    for (const auto& t : ranks_) ASSERT_NE(t, nullptr) << GetParam() << " did not open";
  }
  Transport& at(Rank r) { return *ranks_[static_cast<std::size_t>(r)]; }
  // Closes each rank in its own thread, like processes: a farewell needs an answer.
  void TearDown() override {
    run_ranks(static_cast<int>(ranks_.size()), [&](Rank r) { ranks_[static_cast<std::size_t>(r)].reset(); });
  }
  void store_residual(Rank r) { ranks_[static_cast<std::size_t>(r)].reset(); }

  std::vector<std::unique_ptr<Transport>> ranks_;
};

// The next completion, or one with kTimeout.
inline Completion next(Transport& t) {
  Completion one{.op = 0, .bytes = 0, .status = {Code::kTimeout, "nothing completed"}};
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (t.poll({&one, 1}, 1s) == 0)
    if (std::chrono::steady_clock::now() > deadline) break;
  return one;
}

inline std::map<OpId, Completion> next_all(Transport& t, std::size_t n) {
  std::map<OpId, Completion> out;
  for (std::size_t i = 0; i < n; ++i) {
    Completion c = next(t);
    if (c.status.code() == Code::kTimeout) break;
    EXPECT_TRUE(out.emplace(c.op, c).second) << "operation " << c.op << " completed twice";
  }
  return out;
}

inline std::vector<std::uint8_t> content(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::uint8_t> out(bytes);
  for (std::size_t i = 0; i < bytes; i += 4) {
    const std::uint32_t word = draw32(seed, static_cast<std::uint32_t>(i / 4));
    std::memcpy(&out[i], &word, std::min<std::size_t>(4, bytes - i));
  }
  return out;
}

// ucx splits messages of more than 512 KiB (over a network: 64 KiB), and announces them by a message of 24 bytes.
constexpr std::size_t kSizes[] = {0,    1,    8,      23,     24,      25,      63,        1000,
                                  4096, 8192, 65'536, 65'537, 524'288, 524'289, 1'000'003, 8 << 20};

}  // namespace tithe::testing
