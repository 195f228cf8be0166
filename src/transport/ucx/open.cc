// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses, then connects. A rank that fails to open UCX takes part in the exchange as well, so that no rank
// waits for it.
#include "transport/ucx/open.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/link_rate.h"
#include "transport/peer_info.h"
#include "transport/ucx/ucx_transport.h"

namespace tithe::ucx {

using Clock = std::chrono::steady_clock;

// UCX guarantees no wire compatibility between versions.
TransportVersion version() {
  TransportVersion ucx{.magic = 0x58555454, .name = "UCX"};  // "TTUX" in file order
  unsigned release = 0;
  ucp_get_version(&ucx.major, &ucx.minor, &release);
  return ucx;
}

Result<std::unique_ptr<Transport>> open(const ConnectOptions& connect, const Options& options) {
  const auto deadline = Clock::now() + connect.timeout;
  PeerInfo mine;
  Result<std::unique_ptr<Worker>> worker = Worker::open(options, connect.silence, connect.world);
  if (worker.ok()) {
    Result<std::vector<std::uint8_t>> address = (*worker)->address();
    mine.link_rate = fastest_rate((*worker)->devices());
    if (address.ok())
      mine.address = std::move(*address);
    else
      mine.error = address.status();
  } else {
    mine.error = worker.status();
  }
  const Result<PeerTable> all = exchange_peer_info(connect, std::move(mine), version());
  if (!all.ok()) return all.status();
  auto transport = std::make_unique<UcxTransport>(connect.rank, connect.world, std::move(*worker), all->key);
  transport->learn(*all);
  // The exchange leaves at least a tenth of the timeout.
  const auto end = std::max(deadline, Clock::now() + connect.timeout / 10);
  TITHE_TRY(transport->connect(all->infos, end, connect.timeout, connect.interrupted));
  return std::unique_ptr<Transport>(std::move(transport));
}

Status usable() { return Sockets::usable(); }

Result<std::unique_ptr<Transport>> open_with(const ConnectOptions& connect,
                                             std::span<const std::string> values) {
  return open(connect, {.transports = values[0], .devices = values[1]});
}

}  // namespace tithe::ucx
