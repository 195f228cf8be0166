// SPDX-License-Identifier: Apache-2.0
// open_ucx: exchanges addresses, then connects. A rank that cannot open UCX takes part in the exchange all
// the same, so that nobody waits for it.
#include <fmt/format.h>

#include <algorithm>

#include "tithe/connect.h"
#include "transport/ucx/hello.h"
#include "transport/ucx/ucx_transport.h"

namespace tithe {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

Result<std::unique_ptr<Transport>> open_ucx(Rank rank, int world, const AllGather& all_gather,
                                            const UcxOptions& options) {
  if (world < 1 || rank < 0 || rank >= world)
    return Status(Code::kInvalid, fmt::format("rank {} of world size {}", rank, world));
  if (options.timeout.count() <= 0) return Status(Code::kInvalid, "timeout must be positive");
  if (!options.token.empty() && options.token.size() < kLeastTokenBytes)
    return Status(Code::kInvalid, fmt::format("a job token of {} bytes: it needs at least {}",
                                              options.token.size(), kLeastTokenBytes));
  const auto deadline = Clock::now() + options.timeout;
  ucx::Hello mine{.rank = rank, .world = world, .address = {}};
  TITHE_TRY(fill_random(mine.nonce));
  Result<std::unique_ptr<ucx::Worker>> worker = ucx::Worker::open(options, world);
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
    Result<std::vector<std::vector<std::uint8_t>>> all = all_gather(ucx::write_hello(mine, options.token));
    if (!mine.trouble.ok()) return mine.trouble;
    if (!all.ok()) return all.status();
    blobs = std::move(*all);
    if (blobs.size() != static_cast<std::size_t>(world))
      return Status(Code::kInvalid,
                    fmt::format("the exchange gave {} addresses for world size {}", blobs.size(), world));
  }
  if (!mine.trouble.ok()) return mine.trouble;

  std::vector<ucx::HeardHello> hellos(static_cast<std::size_t>(world));
  for (Rank r = 0; world > 1 && r < world; ++r) {
    Result<ucx::HeardHello> hello =
        ucx::read_hello(blobs[static_cast<std::size_t>(r)], r, world, options.token);
    if (!hello.ok()) return hello.status();
    hellos[static_cast<std::size_t>(r)] = *hello;
  }
  if (world > 1 && hellos[static_cast<std::size_t>(rank)].nonce != mine.nonce)
    return Status(Code::kCorrupt, "the exchange did not give this rank back what it gave");
  const Secret key = ucx::session_key(options.token, hellos);
  auto transport = std::make_unique<ucx::UcxTransport>(rank, world, std::move(*worker), key);
  // What the exchange left of the time, and a tenth of all of it where that took nearly everything.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (const Status s = transport->connect(hellos, std::max(left, options.timeout / 10)); !s.ok()) return s;
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace tithe
