// SPDX-License-Identifier: Apache-2.0
#pragma once
// TCP sockets for the rendezvous: every wait has a deadline, none blocks beyond it.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tithe/status.h"

namespace tithe::rendezvous {

// Until when to wait, and whether the caller still wants to (Launch::interrupted).
struct Deadline {
  using Time = std::chrono::steady_clock::time_point;
  // NOLINTNEXTLINE(google-explicit-constructor): a point in time is a deadline that nobody withdraws
  Deadline(Time when, const std::function<bool()>* asked = nullptr) : at(when), interrupted(asked) {}
  Deadline at_most(Time sooner) const { return {std::min(at, sooner), interrupted}; }
  bool withdrawn() const { return interrupted != nullptr && *interrupted && (*interrupted)(); }
  Time at;
  const std::function<bool()>* interrupted;
};

using Socket = UniqueFd;

// Bound to `port` on all addresses, IPv6 and IPv4, not blocking. kIo; address_in_use is told apart by errno
// EADDRINUSE in *why.
Result<Socket> listen_on(int port, int* why);

// Bound to the addresses of `host` that are this machine's. On all addresses where none is (it is reached through
// another one), and where a name means this machine's loopback here alone (others know the name by another address),
// unless strangers are not kept out.
Result<std::vector<Socket>> listen_at(const std::string& host, int port, bool guarded, int* why);

// True if all addresses of a host are this machine's loopback. False where it has none.
bool is_loopback(const std::string& host);

// Sends what can be sent at once: false where that is not all.
bool send_some(const Socket& socket, std::span<const std::uint8_t> bytes);

// The next waiting connection, not blocking; a closed Socket when there is none.
Socket accept_from(const Socket& listener);

// One attempt at each address of host. kIo when all refuse; not blocking once connected.
Result<Socket> connect_to(const std::string& host, int port, Deadline deadline);

// kTimeout at the deadline, kCancelled when it is withdrawn, kIo when the other side is gone.
Status send_all(const Socket& socket, std::span<const std::uint8_t> bytes, Deadline deadline);
Status recv_all(const Socket& socket, std::span<std::uint8_t> bytes, Deadline deadline);

// Reads the arrived bytes: their number, 0 if there are none, -1 if the connection is gone.
std::ptrdiff_t recv_some(const Socket& socket, std::span<std::uint8_t> bytes);

// Waits until the socket can be read (or written): ok. Else kTimeout or kCancelled.
Status ready(const Socket& socket, bool to_write, Deadline deadline);

}  // namespace tithe::rendezvous
