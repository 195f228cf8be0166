// SPDX-License-Identifier: Apache-2.0
// The transports that UCX finds on this machine under the present environment, from the same context and worker that a
// rank opens.
#include <algorithm>

#include "transport/ucx/open.h"
#include "transport/ucx/worker.h"

namespace tithe::ucx {

TransportProbe probe() {
  TransportProbe found{.version = ucp_get_version_string(), .devices = {}, .problems = {}};
  const Result<std::unique_ptr<Worker>> worker = Worker::open({}, ConnectOptions{}.silence, 2);
  if (!worker.ok()) {
    found.problems.push_back(worker.status().what());
    return found;
  }
  found.devices = (*worker)->devices();
  const auto has = [&](std::initializer_list<std::string_view> kinds) {
    return std::any_of(found.devices.begin(), found.devices.end(), [&](const std::string& way) {
      return std::any_of(kinds.begin(), kinds.end(),
                         [&](std::string_view kind) { return way.starts_with(kind); });
    });
  };
  if (!has({"tcp/", "rc_", "ud_", "dc_"}))
    found.problems.push_back(
        "no network: ranks on other hosts cannot be reached; check that an interface is up, UCX_TLS and "
        "UCX_NET_DEVICES");
  else if (!has({"tcp/"}))
    found.problems.push_back(
        "no TCP: only hosts with RDMA can be reached; check UCX_TLS and UCX_NET_DEVICES");
  return found;
}

}  // namespace tithe::ucx
