// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/endpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "transport/interfaces.h"

namespace tithe::tcp {
namespace {

constexpr std::size_t kMaxPlaces = 64;
constexpr std::size_t kHeadBytes = 9;

template <typename Network, typename Address>
bool holds(const Network& network, const Address& address) {
  return Network(address, network.prefix_length()).canonical() == network.canonical();
}

}  // namespace

std::vector<Local> local_addresses() {
  std::vector<Local> out;
  for (const InterfaceAddress& a : interface_addresses())
    out.push_back({a.interface, asio::ip::make_address(a.address)});
  return out;
}

Result<Networks> Networks::parse(std::string_view text) {
  Networks out;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string one(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    asio::error_code no_v4, no_v6;
    const auto v4 = asio::ip::make_network_v4(one, no_v4);
    if (!no_v4) {
      out.v4_.push_back(v4);
      continue;
    }
    const auto v6 = asio::ip::make_network_v6(one, no_v6);
    if (no_v6)
      return Status(Code::kInvalid,
                    fmt::format("trust: '{}' is not a network: write for example 10.0.0.0/8 or fd00::/8",
                                printable(one, 100)));
    out.v6_.push_back(v6);
  }
  return out;
}

bool Networks::has(const asio::ip::address& address) const {
  if (address.is_v4())
    return std::any_of(v4_.begin(), v4_.end(), [&](const auto& n) { return holds(n, address.to_v4()); });
  return std::any_of(v6_.begin(), v6_.end(), [&](const auto& n) { return holds(n, address.to_v6()); });
}

std::vector<Endpoint> listen_endpoints(const Networks& trusted, bool secured) {
  std::vector<Endpoint> out;
  for (const Local& l : local_addresses()) {
    const bool loopback = l.address == asio::ip::address(asio::ip::address_v4::loopback()) ||
                          l.address == asio::ip::address(asio::ip::address_v6::loopback());
    const bool wanted = loopback || trusted.has(l.address) || (secured && trusted.empty());
    if (wanted && out.size() < kMaxPlaces) out.emplace_back(l.address, 0);
  }
  return out;
}

std::vector<std::uint8_t> write_endpoints(const EndpointList& list) {
  std::vector<std::uint8_t> out(kHeadBytes);
  wire::put(&out[0], list.network);
  out[8] = list.secured ? 1 : 0;
  for (const Endpoint& at : list.at) {
    const auto append = [&](const auto& address) {
      const auto bytes = address.to_bytes();
      const std::size_t begin = out.size();
      out.resize(begin + 3 + bytes.size());
      out[begin] = bytes.size() == 4 ? 4 : 6;
      wire::put(&out[begin + 1], at.port());
      std::copy(bytes.begin(), bytes.end(), out.begin() + static_cast<std::ptrdiff_t>(begin) + 3);
    };
    if (at.address().is_v4())
      append(at.address().to_v4());
    else
      append(at.address().to_v6());
  }
  return out;
}

Result<EndpointList> read_endpoints(ByteView bytes) {
  const Status strange(Code::kCorrupt, "an invalid address");
  if (bytes.size() < kHeadBytes || bytes[8] > 1) return strange;
  EndpointList out{.network = wire::get<std::uint64_t>(bytes.data()), .secured = bytes[8] == 1, .at = {}};
  for (bytes = bytes.subspan(kHeadBytes); !bytes.empty();) {
    const std::size_t size = bytes[0] == 4 ? 4 : 16;
    if ((bytes[0] != 4 && bytes[0] != 6) || bytes.size() < 3 + size || out.at.size() == kMaxPlaces)
      return strange;
    const auto port = wire::get<std::uint16_t>(&bytes[1]);
    const auto add = [&]<typename Address>(Address) {
      typename Address::bytes_type raw;
      std::copy_n(bytes.begin() + 3, size, raw.begin());
      out.at.emplace_back(Address(raw), port);
    };
    if (size == 4)
      add(asio::ip::address_v4());
    else
      add(asio::ip::address_v6());
    bytes = bytes.subspan(3 + size);
  }
  return out;
}

std::vector<Endpoint> endpoints_to(const EndpointList& peer, std::uint64_t network) {
  std::vector<Endpoint> out;
  for (const bool loopback : {true, false})
    for (const Endpoint& at : peer.at)
      if (at.address().is_loopback() == loopback && (!loopback || peer.network == network)) out.push_back(at);
  return out;
}

}  // namespace tithe::tcp
