// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses at which a rank listens, and the addresses at which it connects to another rank.
#include <asio/ip/network_v4.hpp>
#include <asio/ip/network_v6.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"
#include "transport/tcp/wire.h"

namespace tithe::tcp {

// An address of this machine and the interface that has it, such as "eth0".
struct Local {
  std::string interface;
  asio::ip::address address;
};
// The addresses of all interfaces that are up, without link-local IPv6 addresses.
std::vector<Local> local_addresses();

// A list of networks: "10.0.0.0/8", or several separated by commas. kInvalid names the first item that is no network.
class Networks {
 public:
  static Result<Networks> parse(std::string_view text);
  bool has(const asio::ip::address& address) const;
  bool empty() const { return v4_.empty() && v6_.empty(); }

 private:
  std::vector<asio::ip::network_v4> v4_;
  std::vector<asio::ip::network_v6> v6_;
};

// The addresses at which this rank listens: the loopback and its addresses in trusted networks. If connections are
// `secured` and no network is named, the rank listens at all its addresses.
std::vector<Endpoint> listen_endpoints(const Networks& trusted, bool secured = false);

// The endpoints of a rank, as sent to the other ranks. `network` is equal for ranks that share a loopback interface.
//
// Layout, little-endian   u64 network | u8 secured | per endpoint: u8 4 or 6 | u16 port | 4 or 16 bytes
struct EndpointList {
  std::uint64_t network = 0;  // ProcessId::host
  bool secured = false;       // by TLS
  std::vector<Endpoint> at;
};
std::vector<std::uint8_t> write_endpoints(const EndpointList& list);
Result<EndpointList> read_endpoints(ByteView bytes);  // kCorrupt

// The peer's endpoints in the order in which this rank should try them. Loopback endpoints come first if both ranks
// share a loopback interface, and are left out otherwise.
std::vector<Endpoint> endpoints_to(const EndpointList& peer, std::uint64_t network);

}  // namespace tithe::tcp
