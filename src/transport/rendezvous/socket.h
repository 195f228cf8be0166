// SPDX-License-Identifier: Apache-2.0
#pragma once
// TCP sockets for the rendezvous. Every wait has a deadline, and no call blocks beyond it.
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

// The time until which to wait, and a function that ends the wait early (Launch::interrupted).
struct Deadline {
  using Time = std::chrono::steady_clock::time_point;
  // NOLINTNEXTLINE(google-explicit-constructor): a point in time converts to a deadline that no function cancels
  Deadline(Time when, const std::function<bool()>* interrupted_by = nullptr)
      : at(when), interrupted(interrupted_by) {}
  Deadline at_most(Time sooner) const { return {std::min(at, sooner), interrupted}; }
  bool cancelled() const { return interrupted != nullptr && *interrupted && (*interrupted)(); }
  Time at;
  const std::function<bool()>* interrupted;
};

using Socket = UniqueFd;

// A non-blocking listener at `port` on all addresses, IPv6 and IPv4. On failure kIo, with errno in *why (EADDRINUSE if
// the port is taken).
Result<Socket> listen_on(int port, int* why);

// Listeners at the addresses of `host` that belong to this machine. They bind to all addresses in two cases: if none of
// the host's addresses is this machine's (it is reached through another address); and, if `guarded` (is_guarded()), for
// a name that resolves to the loopback here, since other machines resolve it to another address.
Result<std::vector<Socket>> listen_at(const std::string& host, int port, bool guarded, int* why);

// True if all addresses of a host are loopback addresses; false if it has none.
bool is_loopback(const std::string& host);

// Sends without blocking; false if not all bytes were sent.
bool send_some(const Socket& socket, std::span<const std::uint8_t> bytes);

// The next pending connection, non-blocking; a closed Socket if there is none.
Socket accept_from(const Socket& listener);

// Tries each address of the host once. kIo if all fail. The connected socket is non-blocking.
Result<Socket> connect_to(const std::string& host, int port, Deadline deadline);

// kTimeout at the deadline, kCancelled if the wait was cancelled, kIo if the other side has closed.
Status send_all(const Socket& socket, std::span<const std::uint8_t> bytes, Deadline deadline);
Status recv_all(const Socket& socket, std::span<std::uint8_t> bytes, Deadline deadline);

// Reads the bytes that have arrived: their number, 0 if there are none, -1 if the connection is closed.
std::ptrdiff_t recv_some(const Socket& socket, std::span<std::uint8_t> bytes);

// Waits until the socket is readable (or writable). Else kTimeout or kCancelled.
Status ready(const Socket& socket, bool to_write, Deadline deadline);

}  // namespace tithe::rendezvous
