// SPDX-License-Identifier: Apache-2.0
#pragma once
// The options that ucx is given, and how a rank of it is opened.
#include <memory>
#include <string>

#include "tithe/connect.h"
#include "transport/peer_info.h"

namespace tithe::ucx {

struct Options {
  std::string transports;  // UCX_TLS, e.g. "tcp"; empty: the environment's or UCX's own choice
  std::string devices;     // UCX_NET_DEVICES, e.g. "eth0"; empty likewise
};

TransportVersion version();  // what UCX is here

Result<std::unique_ptr<Transport>> open(const ConnectOptions& connect, const Options& options);

// As TransportKind has them, with the values of kind.cc's options.
Status usable();
Result<std::unique_ptr<Transport>> open_with(const ConnectOptions& connect,
                                             std::span<const std::string> values);
// Transports and devices of all memory domains that UCX can open here: "tcp/eth0".
TransportLook look();

}  // namespace tithe::ucx
