// SPDX-License-Identifier: Apache-2.0
// Exchanges addresses, then connects. A rank that fails to open its transport takes part in the exchange as well, so
// that no rank waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/text.h"
#include "transport/interfaces.h"
#include "transport/link_rate.h"
#include "transport/long_messages.h"
#include "transport/peer_info.h"
#include "transport/tcp/records.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transports.h"

namespace tithe {
namespace tcp {
namespace {

constexpr TransportVersion kTransportVersion{
    .magic = 0x50435454, .name = "transport tcp", .major = 3};  // "TTCP" in file order

constexpr TransportOption kOptions[] = {
    {"streams", "1",
     "data connections to each rank, 1 to 64: a fast link with a long delay needs more of them"},
    {"tos", "0", "type of service of the packets of data connections, e.g. 0x28"},
    {"trust", "", "networks in which this rank may listen, e.g. 10.0.0.0/8; empty: loopback only"},
    {"tls", "", "a folder of certificates (tithe keys new): all traffic is encrypted, in any network"},
    {"lossy_card", "off",
     "on: network cards may round floats in transit, so checksums cover headers only (card/docs/card.md)"},
};
constexpr std::string_view kExamples[] = {"tcp", "tcp:streams=4,tos=0x28"};

Result<int> number(std::string_view name, std::string_view text, int least, int most) {
  const bool hex = text.starts_with("0x");
  const std::string_view digits = text.substr(hex ? 2 : 0);
  int value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (error != std::errc() || end != digits.data() + digits.size() || value < least || value > most)
    return Status(Code::kInvalid,
                  fmt::format("tcp: got {}={}; must be a number from {} to {}", name, text, least, most));
  return value;
}

Result<Options> options_of(Rank rank, std::span<const std::string> values) {
  Options options;
  const Result<int> streams = number("streams", values[0], 1, kMaxStreams);
  if (!streams.ok()) return streams.status();
  const Result<int> tos = number("tos", values[1], 0, 255);
  if (!tos.ok()) return tos.status();
  Result<Networks> trust = Networks::parse(values[2]);
  if (!trust.ok()) return trust.status();
  options.streams = *streams;
  options.tos = *tos;
  options.trust = std::move(*trust);
  if (!values[3].empty()) {
    Result<std::shared_ptr<const Credentials>> credentials = Credentials::load(values[3], rank);
    if (!credentials.ok()) return credentials.status();
    options.credentials = std::move(*credentials);
  }
  if (values[4] != "on" && values[4] != "off")
    return Status(Code::kInvalid,
                  fmt::format("tcp: got lossy_card={}; must be on or off", printable(values[4], 40)));
  options.lossy_card = values[4] == "on";
  return options;
}

// The rate of this rank's first listening interface other than the loopback: the other hosts connect to its address
// first.
std::uint64_t link_rate_of(const std::vector<Endpoint>& at) {
  for (const Local& l : local_addresses())
    if (!l.address.is_loopback() &&
        std::ranges::any_of(at, [&](const Endpoint& e) { return e.address() == l.address; }))
      return interface_rate(l.interface);
  return 0;
}

// Sets `at` to the endpoints at which the rank listens.
Result<Options> checked_options(Rank rank, std::span<const std::string> values, std::vector<Endpoint>& at) {
  Result<Options> options = options_of(rank, values);
  if (!options.ok()) return options;
  at = listen_endpoints(options->trust, options->credentials != nullptr);
  if (!options->trust.empty() &&
      std::all_of(at.begin(), at.end(), [](const Endpoint& e) { return e.address().is_loopback(); }))
    return Status(
        Code::kInvalid,
        fmt::format("tcp: trust={} {}; interfaces of this machine that lead to other machines: {}", values[2],
                    std::any_of(at.begin(), at.end(),
                                [&](const Endpoint& e) { return options->trust.has(e.address()); })
                        ? "contains only loopback, where every rank listens in any case: if all ranks are on "
                          "this host, omit trust=; otherwise give the network between the hosts"
                        : "contains no address of this machine",
                    shown(interface_addresses())));
  return options;
}

Status check_values(Rank rank, std::span<const std::string> values) {
  std::vector<Endpoint> at;
  return checked_options(rank, values, at).status();
}

Result<std::unique_ptr<TcpTransport>> prepare(const ConnectOptions& connect,
                                              std::span<const std::string> values,
                                              std::vector<Endpoint>& at) {
  const Result<Options> options = checked_options(connect.rank, values, at);
  if (!options.ok()) return options.status();
  if (at.empty()) return Status(Code::kIo, "tcp: this machine's loopback interface is down");
  try {
    auto transport = std::make_unique<TcpTransport>(connect.rank, connect.world, *options, connect.silence);
    if (connect.world > 1) TITHE_TRY(transport->listen(at));
    return transport;
  } catch (const std::system_error& error) {  // thrown by asio if the system refuses a descriptor
    return Status(Code::kIo,
                  fmt::format("tcp: {}; raise the limit of descriptors (ulimit -n)", error.what()));
  }
}

Result<std::unique_ptr<Transport>> open(const ConnectOptions& connect, std::span<const std::string> values) {
  const auto deadline = Clock::now() + connect.timeout;
  EndpointList mine{.network = own_process_id().host, .secured = !values[3].empty(), .at = {}};
  Result<std::unique_ptr<TcpTransport>> transport = prepare(connect, values, mine.at);
  PeerInfo info{
      .error = transport.status(), .address = write_endpoints(mine), .link_rate = link_rate_of(mine.at)};
  const Result<PeerTable> all = exchange_peer_info(connect, std::move(info), kTransportVersion);
  if (!all.ok()) return all.status();
  std::vector<std::vector<Endpoint>> endpoints(static_cast<std::size_t>(connect.world));
  for (Rank r = 0; connect.world > 1 && r < connect.world; ++r) {
    const Result<EndpointList> listed = read_endpoints(all->infos[static_cast<std::size_t>(r)].address);
    if (!listed.ok()) return Status(Code::kCorrupt, fmt::format("rank {}: {}", r, listed.status().what()), r);
    if (listed->secured != mine.secured)
      return Status(Code::kMismatch,
                    fmt::format("rank {} {} tls=, and this rank {}: set tls= on all ranks or on none", r,
                                listed->secured ? "has" : "lacks", mine.secured ? "has it" : "lacks it"),
                    r);
    endpoints[static_cast<std::size_t>(r)] = endpoints_to(*listed, mine.network);
    if (r != connect.rank && endpoints[static_cast<std::size_t>(r)].empty())
      return Status(
          Code::kInvalid,
          fmt::format("rank {} is on another host than this rank, and listens on its loopback only: give the "
                      "network of the ranks if every machine in it is trusted, e.g. tcp:trust=10.0.0.0/8, or "
                      "encrypt with tcp:tls=DIR (docs/reference/security.md)",
                      r),
          r);
  }
  (*transport)->learn(*all);
  // The time left after the exchange, but at least a tenth of the timeout.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  TITHE_TRY((*transport)
                ->connect(all->key, std::move(endpoints), std::max(left, connect.timeout / 10),
                          connect.interrupted));
  return std::unique_ptr<Transport>(std::move(*transport));
}

Status usable() { return {}; }

TransportProbe probe() {
  TransportProbe found;
  for (const Local& l : local_addresses())
    if (std::string way = "tcp/" + l.interface;
        std::find(found.devices.begin(), found.devices.end(), way) == found.devices.end())
      found.devices.push_back(std::move(way));
  if (found.devices.empty())
    found.problems.emplace_back("no interface is up, not even loopback: run ip link set lo up");
  return found;
}

}  // namespace
}  // namespace tcp

const TransportKind tcp_transport = {
    .name = "tcp",
    .doc = "TCP sockets without another library, several connections to each rank",
    .options = tcp::kOptions,
    .examples = tcp::kExamples,
    .usable = tcp::usable,
    .probe = tcp::probe,
    .open = tcp::open,
    .open_threads = nullptr,
    .proves = true,
    .check = tcp::check_values};

const LongMessages tcp_long_messages = {SendProtocol::kPosted, tcp::kWholeBytes};

}  // namespace tithe
