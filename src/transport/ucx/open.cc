// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses, then connects. A rank that cannot open UCX takes part in the exchange all the same, so that
// nobody waits for it.
#include "transport/ucx/open.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/transports.h"
#include "transport/ucx/hello.h"
#include "transport/ucx/ucx_transport.h"

namespace tithe {
namespace ucx {

using Clock = std::chrono::steady_clock;

Result<std::unique_ptr<Transport>> open(const ConnectOptions& connect, const Options& options) {
  const auto [rank, world] = std::pair(connect.rank, connect.world);
  const auto deadline = Clock::now() + connect.timeout;
  Hello mine{.rank = rank, .world = world, .address = {}};
  TITHE_TRY(fill_random(mine.nonce));
  Result<std::unique_ptr<Worker>> worker = Worker::open(options, connect.silence, world);
  if (worker.ok()) {
    Result<std::vector<std::uint8_t>> address = (*worker)->address();
    if (address.ok())
      mine.address = std::move(*address);
    else
      mine.trouble = address.status();
  } else {
    mine.trouble = worker.status();
  }
  std::vector<std::vector<std::uint8_t>> blobs;
  if (world > 1) {
    Result<std::vector<std::vector<std::uint8_t>>> all = connect.all_gather(write_hello(mine, connect.token));
    if (!mine.trouble.ok()) return mine.trouble;
    if (!all.ok()) return all.status();
    blobs = std::move(*all);
    if (blobs.size() != static_cast<std::size_t>(world))
      return Status(Code::kInvalid,
                    fmt::format("the exchange gave {} addresses for world size {}", blobs.size(), world));
  }
  if (!mine.trouble.ok()) return mine.trouble;

  std::vector<HeardHello> hellos(static_cast<std::size_t>(world));
  for (Rank r = 0; world > 1 && r < world; ++r) {
    Result<HeardHello> hello = read_hello(blobs[static_cast<std::size_t>(r)], r, world, connect.token);
    if (!hello.ok()) return hello.status();
    hellos[static_cast<std::size_t>(r)] = *hello;
  }
  if (world > 1 && hellos[static_cast<std::size_t>(rank)].nonce != mine.nonce)
    return Status(Code::kCorrupt, "the exchange did not give this rank back what it gave");
  const Secret key = session_key(connect.token, hellos);
  auto transport = std::make_unique<UcxTransport>(rank, world, std::move(*worker), key);
  // What the exchange left of the time, and a tenth of all of it where that took nearly everything.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  TITHE_TRY(transport->connect(hellos, std::max(left, connect.timeout / 10), connect.interrupted));
  return std::unique_ptr<Transport>(std::move(transport));
}

namespace {

constexpr TransportOption kOptions[] = {
    {"transports", "", "UCX_TLS, e.g. tcp or tcp,self; empty: the environment's, else UCX's own choice"},
    {"devices", "", "UCX_NET_DEVICES, e.g. eth0 or mlx5_0:1; empty likewise"},
};
constexpr std::string_view kExamples[] = {"ucx", "ucx:transports=tcp"};

Status usable() { return {}; }

Result<std::unique_ptr<Transport>> open_with(const ConnectOptions& connect,
                                             std::span<const std::string> values) {
  return open(connect, {.transports = values[0], .devices = values[1]});
}

}  // namespace
}  // namespace ucx

const TransportKind ucx_transport = {.name = "ucx",
                                     .doc = "shared memory, TCP or RDMA, through UCX",
                                     .options = ucx::kOptions,
                                     .examples = ucx::kExamples,
                                     .usable = ucx::usable,
                                     .look = ucx::look,
                                     .open = ucx::open_with,
                                     .open_threads = nullptr};

}  // namespace tithe
