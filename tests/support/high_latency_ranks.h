// SPDX-License-Identifier: Apache-2.0
#pragma once
// Two ranks of tcp in this thread, with a long way between them.
#include <memory>
#include <optional>
#include <thread>

#include "support/delay_line.h"
#include "transport/tcp/tcp_transport.h"

namespace tithe::testing {

class HighLatencyRanks {
 public:
  HighLatencyRanks(const tcp::Options& options, std::chrono::milliseconds one_way, std::size_t window) {
    Status status[2];
    std::vector<tcp::Endpoint> at[2];
    for (Rank r = 0; r < 2; ++r) {
      const auto k = static_cast<std::size_t>(r);
      ranks_[k] = std::make_unique<tcp::TcpTransport>(r, 2, options, std::chrono::seconds(30));
      at[k] = {{asio::ip::address_v4::loopback(), 0}};
      opened_ = ranks_[k]->listen(at[k]);
      if (!opened_.ok()) return;
      ways_[k].emplace(at[k][0], one_way, window);
    }
    const auto open = [&](std::size_t me) {
      std::vector<std::vector<tcp::Endpoint>> ways(2);
      ways[1 - me] = {ways_[1 - me]->at()};
      status[me] = ranks_[me]->connect(Secret{5}, std::move(ways), std::chrono::seconds(20), {});
    };
    std::thread other(open, 1);
    open(0);
    other.join();
    opened_ = status[0].ok() ? status[1] : status[0];
  }
  // A farewell needs an answer, so both ranks are destroyed at the same time.
  ~HighLatencyRanks() {
    std::thread other([this] { ranks_[1].reset(); });
    ranks_[0].reset();
    other.join();
  }
  HighLatencyRanks(const HighLatencyRanks&) = delete;
  HighLatencyRanks& operator=(const HighLatencyRanks&) = delete;

  const Status& opened() const { return opened_; }
  Transport& operator[](std::size_t rank) { return *ranks_[rank]; }

  // Runs until each rank has completed `each` operations; kTimeout after 60 s.
  Status run(std::size_t each) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (std::size_t done[2] = {}; done[0] < each || done[1] < each;) {
      for (std::size_t k = 0; k < 2; ++k) {
        Completion c;
        if (ranks_[k]->poll({&c, 1}, std::chrono::microseconds(200)) == 0) continue;
        TITHE_TRY(c.status);
        ++done[k];
      }
      if (std::chrono::steady_clock::now() > deadline) return {Code::kTimeout, "operations did not end"};
    }
    return {};
  }

 private:
  Status opened_;
  std::unique_ptr<tcp::TcpTransport> ranks_[2];
  std::optional<DelayLine> ways_[2];
};

}  // namespace tithe::testing
