// SPDX-License-Identifier: Apache-2.0
// Each function checks one cause and returns its text only if the cause applies.
#include "transport/ucx/causes.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <ucp/api/ucp.h>

#include <cstdint>
#include <set>
#include <vector>

#include "transport/interfaces.h"

namespace tithe::ucx {
namespace {

constexpr std::uint64_t kOfOneWorker = 9'000'000;  // bytes of shared memory per worker; measured: 8.7 MB

}  // namespace

std::string little_shared_memory(int world, const char* folder) {
  struct statvfs shm {};
  if (statvfs(folder, &shm) != 0)
    return fmt::format("; {} does not exist: UCX needs it; provide it, or pass transports=\"tcp\"", folder);
  const bool read_only = (shm.f_flag & ST_RDONLY) != 0;
  const std::uint64_t all = std::uint64_t{shm.f_blocks} * shm.f_frsize;
  const std::uint64_t free = std::uint64_t{shm.f_bavail} * shm.f_frsize;
  // Ranks that fail at the same time release their memory, so the free space alone is not a reliable sign.
  if (!read_only && free >= kOfOneWorker && all >= static_cast<std::uint64_t>(world) * kOfOneWorker)
    return {};
  return fmt::format(
      "; {} {}: give it at least {} MB per rank (docker: --shm-size; Kubernetes: a volume of "
      "medium Memory there), or pass transports=\"tcp\"",
      folder,
      read_only ? "is read-only"
                : fmt::format("has {:.1f} MB, {:.1f} of them free", static_cast<double>(all) / 1e6,
                              static_cast<double>(free) / 1e6),
      kOfOneWorker / 1'000'000);
}

std::string several_interfaces() {
  const std::vector<InterfaceAddress> all = interface_addresses();
  std::set<std::string> names;
  std::string likely;
  for (const InterfaceAddress& a : all) {
    if (a.loopback) continue;
    names.insert(a.interface);
    if (likely.empty() && !a.bridge) likely = a.interface;
  }
  if (names.size() < 2) return {};
  return fmt::format(
      "; this machine has {}, and UCX does not test which interface reaches the other ranks: set the "
      "interface on all ranks, for example UCX_NET_DEVICES={} or transport=\"ucx:devices={}\"",
      shown(all), likely.empty() ? *names.begin() : likely, likely.empty() ? *names.begin() : likely);
}

std::string another_ucx(unsigned major, unsigned minor) {
  if (major == UCP_API_MAJOR && minor == UCP_API_MINOR) return {};
  return fmt::format(
      "; this process has loaded UCX {}.{}, and tithe was built with {}.{}: another library of this process, "
      "for example MPI for Python, loaded its own UCX. Pass transport=\"tcp\", or import tithe first",
      major, minor, UCP_API_MAJOR, UCP_API_MINOR);
}

std::string another_ucx() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return another_ucx(major, minor);
}

}  // namespace tithe::ucx
