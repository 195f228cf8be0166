// SPDX-License-Identifier: Apache-2.0
// Many local steps from C++: each of two ranks, threads of this process, minimises a square of its own for ten steps;
// then they exchange how far they came, at 2 bits per value, and begin anew from the mean. As tithe.torch.LocalSteps
// does.
#include <cmath>
#include <cstdio>
#include <thread>
#include <vector>

#include "tithe/connect.h"
#include "tithe/session.h"

namespace {

constexpr int kExchanges = 40, kSteps = 10;
constexpr std::size_t kValues = 10'000;
constexpr float kRate = 0.05F;

// Rank r pulls towards 1 + r/10: together to 1.05. The outer values are the same bits on both ranks.
tithe::Status run(std::unique_ptr<tithe::Transport> transport, std::vector<float>& outer) {
  auto session = tithe::Session::open(std::move(transport), {.codec = "eden:bits=2"});
  if (!session.ok()) return session.status();
  const float goal = 1.0F + 0.1F * static_cast<float>((*session)->rank());
  outer.assign(kValues, 0.0F);
  std::vector<float> drift(kValues);
  const tithe::Tensor bucket[] = {{.key = "weights", .data = drift.data(), .n = drift.size()}};
  for (int exchange = 0; exchange < kExchanges; ++exchange) {
    std::vector<float> weights = outer;
    for (int step = 0; step < kSteps; ++step)
      for (float& w : weights) w -= kRate * (w - goal);
    for (std::size_t i = 0; i < kValues; ++i) drift[i] = outer[i] - weights[i];
    auto ticket = (*session)->sync(bucket);
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY((*session)->wait(*ticket));
    TITHE_TRY((*session)->commit());
    for (std::size_t i = 0; i < kValues; ++i) outer[i] -= drift[i];
  }
  return {};
}

}  // namespace

int main() {
  auto ranks = tithe::open_loop(2);
  std::vector<float> outer[2];
  tithe::Status status[2];
  std::thread other([&] { status[1] = run(std::move(ranks[1]), outer[1]); });
  status[0] = run(std::move(ranks[0]), outer[0]);
  other.join();
  for (const tithe::Status& s : status)
    if (!s.ok()) return std::fprintf(stderr, "%s\n", s.what().c_str()), 1;
  float off = 0;
  for (const float w : outer[0]) off = std::fmax(off, std::fabs(w - 1.05F));
  std::printf("%d exchanges of %d steps: the same on both ranks: %s, off by %.2g at most\n", kExchanges,
              kSteps, outer[0] == outer[1] ? "yes" : "no", static_cast<double>(off));
  return outer[0] == outer[1] && off < 0.05F ? 0 : 1;
}
