// SPDX-License-Identifier: Apache-2.0
// Estimates the descriptors that UCX will open, and compares them with the process' limit.
#include "transport/ucx/descriptors.h"

#include <dirent.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>

namespace tithe::ucx {
namespace {

// Counted with UCX 1.13: 12 descriptors over TCP with two interfaces, 16 with shared memory, 2 of tithe's own, and a
// few while UCX looks for devices.
constexpr std::uint64_t kOfWorker = 16;
constexpr std::uint64_t kOfInterface = 4;
// One connection, a second one for a moment if both sides connect at once, and the peer's pidfd.
constexpr std::uint64_t kOfPeer = 3;

std::uint64_t interfaces() {
  std::uint64_t n = 0;
  if (struct if_nameindex* all = if_nameindex(); all != nullptr) {
    while (all[n].if_index != 0) ++n;
    if_freenameindex(all);
  }
  return n;
}

// The number of open descriptors below `limit`; `limit` if even their list cannot be opened.
std::uint64_t open_below(std::uint64_t limit) {
  DIR* all = opendir("/proc/self/fd");
  if (all == nullptr) return limit;
  std::uint64_t n = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread uses this directory stream
  while (const dirent* one = readdir(all))
    n += one->d_name[0] != '.' && std::strtoull(one->d_name, nullptr, 10) < limit;
  closedir(all);
  return n - 1;  // without the descriptor of the list itself
}

}  // namespace

Status check_descriptors(int world) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const std::uint64_t need =
      kOfWorker + kOfInterface * interfaces() + kOfPeer * static_cast<std::uint64_t>(world - 1);
  const std::uint64_t have = open_below(limit.rlim_cur);
  if (have + need <= limit.rlim_cur) return {};
  const std::uint64_t cure = (have + need + 1023) / 1024 * 1024;
  return {Code::kIo, fmt::format("too few file descriptors: UCX needs up to {} for {} ranks, and this "
                                 "process has {} open of {} allowed; run `ulimit -n {}` before starting it{}",
                                 need, world, have, limit.rlim_cur, cure,
                                 cure > limit.rlim_max ? " (as root, because the hard limit is lower)" : "")};
}

}  // namespace tithe::ucx
