// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options of the ucx transport, and the functions that open it.
#include <memory>
#include <string>

#include "tithe/connect.h"
#include "transport/peer_info.h"

namespace tithe::ucx {

struct Options {
  std::string transports;  // UCX_TLS, e.g. "tcp"; empty: the environment's value, or UCX's default
  std::string devices;     // UCX_NET_DEVICES, e.g. "eth0"; empty: as above
};

TransportVersion version();  // the version of the loaded UCX library

Result<std::unique_ptr<Transport>> open(const ConnectOptions& connect, const Options& options);

// The functions of TransportKind; `values` are the values of kind.cc's options.
Status usable();
Result<std::unique_ptr<Transport>> open_with(const ConnectOptions& connect,
                                             std::span<const std::string> values);
// The transports and devices of all memory domains that UCX can open here, such as "tcp/eth0".
TransportProbe probe();

}  // namespace tithe::ucx
