// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds UCX's own TCP sockets, since UCX does not report which sockets it opens.
//
// A child made by fork() and a program started by this process inherit a copy of each socket. The connections would
// then outlive this process, and peers on other hosts would not detect its end. So a child closes the sockets, and
// connected sockets become close-on-exec. A socket is UCX's if its local port is one on which UCX listens (the listener
// and accepted connections), or if it has the keep-alive settings that tithe passes to UCX (connections that UCX
// opened).
//
// UCX itself does not work in such a child, because fork() does not copy its helper thread. It does not work in a child
// of a process with another open transport either: once the library is loaded, every munmap() of the process takes a
// lock of UCX for a moment. A fork during such a call on another thread copies the lock as held. The child would then
// wait for the lock forever while it opens UCX.
#include <ucp/api/ucp.h>

#include <cstdint>
#include <vector>

#include "tithe/status.h"

namespace tithe::ucx {

// The keep-alive settings of connections that UCX opens, in seconds, as getsockopt() returns them.
struct KeepAlive {
  int idle = 0, interval = 0, probes = 0;
};

class Sockets {
 public:
  // Construct before the worker: sockets that already listen then are not UCX's.
  explicit Sockets(const KeepAlive& keep_alive);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Call after the worker was created, with its address: the new listeners whose port is in the address are UCX's.
  void created(const std::vector<std::uint8_t>& address);
  // Call once all connections exist: programs started by this process do not inherit them.
  void close_on_exec() const;

  // kUnsupported in a child whose parent had a transport open at the fork.
  static Status usable();

 private:
  bool has(int fd) const;
  friend struct Known;

  const KeepAlive keep_alive_;
  const std::vector<std::uint16_t> before_;  // ports of earlier listeners
  std::vector<std::uint16_t> ports_ = {};    // ports of UCX's listeners
};

}  // namespace tithe::ucx
