// SPDX-License-Identifier: Apache-2.0
// Averages a vector over all ranks, from C++.
//
//   ./cpp_average                                                   two ranks as threads of this process
//   RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29600 ./cpp_average   one rank of many, over UCX
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "tithe/connect.h"
#include "tithe/session.h"

namespace {

constexpr int kRounds = 20;

// Every rank holds rank + 1 everywhere; bf16 on the wire.
tithe::Status run(std::unique_ptr<tithe::Transport> transport) {
  auto session = tithe::Session::open(std::move(transport), {.codec = "bf16", .strategy = "ring"});
  if (!session.ok()) return session.status();
  std::vector<float> values(10'000);
  const tithe::Tensor bucket[] = {{.key = "values", .data = values.data(), .n = values.size()}};
  for (int round = 0; round < kRounds; ++round) {
    values.assign(values.size(), static_cast<float>((*session)->rank() + 1));
    auto ticket = (*session)->sync(bucket);
    if (!ticket.ok()) return ticket.status();
    TITHE_TRY((*session)->wait(*ticket));
    TITHE_TRY((*session)->commit());
  }
  std::printf("rank %d of %d: %d rounds, mean %g\n", (*session)->rank(), (*session)->world(), kRounds,
              static_cast<double>(values[0]));
  return {};
}

int told(const tithe::Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.what().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace

int main() {
  if (std::getenv("RANK") != nullptr) {
    auto launch = tithe::launch_from_environment();
    if (!launch.ok()) return told(launch.status());
    auto transport = tithe::open_transport("auto", tithe::connect_options(*launch));
    return told(transport.ok() ? run(std::move(*transport)) : transport.status());
  }
  auto ranks = tithe::open_loop(2);
  tithe::Status second;
  std::thread other([&] { second = run(std::move(ranks[1])); });
  const tithe::Status first = run(std::move(ranks[0]));
  other.join();
  return told(first) | told(second);
}
