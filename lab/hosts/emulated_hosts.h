// SPDX-License-Identifier: Apache-2.0
#pragma once
// Hosts emulated on this machine: a network namespace for each, all joined by a bridge, each behind a link whose rate
// is shaped in both directions. Uses system calls and the programs `ip` and `tc`. lab/hosts/hosts.py has a
// second implementation for scripts that change rates or cut links.
//
//   host i: eth0 (10.77.0.i+1) ---- veth ---- port<i> --+-- bridge "switch"
//           tbf on eth0: traffic from the host          |
//           tbf on port<i>: traffic to the host --------+
//
// With cards (card/docs/card.md) eth0 is a TAP, and a process `tithe card` stands between it and the link, which is
// wire0:
//
//   host i: eth0 ---- tithe card ---- wire0 ---- veth ---- port<i> --+-- bridge "switch"
//
// Ranks of one host are in one namespace, and may share memory; those of two hosts may not.
//
//   gone      namespaces and links have no names outside: they go with the last process in them, however it ends
//   apart     no interface and no setting of this machine's own network is touched
//   refused   kUnsupported, with the cure, where the system does not allow it
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tithe/status.h"

namespace tithe::cli {

enum class CardMode : std::uint8_t { kNone, kExact, kLossy };

struct ShapedLink {
  double bytes_per_second = 0;
  std::size_t queue_bytes = 0;  // the size of the queue in front of the link; more is dropped
  CardMode card = CardMode::kNone;
  // The delay of all data from a host. A card adds it; with CardMode::kNone the card packs nothing.
  double delay_ms = 0;

  bool has_card() const { return card != CardMode::kNone || delay_ms > 0; }
};

inline constexpr const char* kCardModes[] = {"none", "exact", "lossy"};  // as CardMode
CardMode card_mode(std::string_view word);                               // one of these

inline constexpr std::size_t kSwitchQueueBytes = 2'000'000;  // of a shallow switch
inline constexpr int kMaxHosts = 250;
inline constexpr const char* kHostsNetwork = "10.77.0.0/16";
std::string host_address(int host);  // in it

std::string read_word(const char* path);  // the first one of a file; empty if there is none

// Moves the caller to new namespaces of network, mounts, shared memory and host name; where it is not root, as root of
// a namespace of users. In a process of one thread.
Status remove_from_network();

// To those of another process that has left. In a process of one thread.
Status join_network(pid_t other);

// In the process that joins the hosts, which has left its network: a bridge without ports.
Status make_switch();

// There too: a link from the bridge to the process `host`, which has left this network.
Status plug_in(pid_t process, int host, const ShapedLink& link);

// There too, after that: the process's card, which ends with the caller. nullopt: the link has none.
Result<std::optional<pid_t>> start_card(pid_t process, const ShapedLink& link);

// In that process, before any rank of its host opens anything: address, rate, name; waits until the link is up.
Status enter_host(int host, const ShapedLink& link);

// In every rank: what UCX needs to take the link between hosts.
void keep_ucx_on_link();

// Bytes that this host has sent, headers of TCP and acknowledgements included.
Result<std::uint64_t> bytes_on_the_wire();

}  // namespace tithe::cli
