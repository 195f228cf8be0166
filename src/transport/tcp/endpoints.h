// SPDX-License-Identifier: Apache-2.0
#pragma once
// The addresses at which a rank listens, and those at which it calls another rank.
#include <asio/ip/network_v4.hpp>
#include <asio/ip/network_v6.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tithe/byte_view.h"
#include "tithe/status.h"
#include "transport/tcp/wire.h"

namespace tithe::tcp {

// An address of this machine, with the interface that has it: "eth0".
struct Local {
  std::string interface;
  asio::ip::address address;
};
// The addresses of all interfaces that are up; those that hold on one link alone are left out.
std::vector<Local> local_addresses();

// "10.0.0.0/8" or several with commas between. kInvalid says which is none.
class Networks {
 public:
  static Result<Networks> parse(std::string_view text);
  bool has(const asio::ip::address& address) const;
  bool empty() const { return v4_.empty() && v6_.empty(); }

 private:
  std::vector<asio::ip::network_v4> v4_;
  std::vector<asio::ip::network_v6> v6_;
};

// The addresses at which this rank listens: the loopback, and its addresses in trusted networks; all its addresses if
// connections are `secured` and no network is named.
std::vector<Endpoint> listen_endpoints(const Networks& trusted, bool secured = false);

// The addresses at which a rank listens, as sent to the others. `network` is the same for ranks that share a loopback.
//
// Layout, little-endian   u64 network | u8 secured | per endpoint: u8 4 or 6 | u16 port | 4 or 16 bytes
struct EndpointList {
  std::uint64_t network = 0;
  bool secured = false;  // by TLS
  std::vector<Endpoint> at;
};
std::uint64_t my_network();
std::vector<std::uint8_t> write_endpoints(const EndpointList& list);
Result<EndpointList> read_endpoints(ByteView bytes);  // kCorrupt

// In the order in which this rank should try them: loopback first where they share it, and left out where not.
std::vector<Endpoint> endpoints_to(const EndpointList& peer, std::uint64_t network);

}  // namespace tithe::tcp
