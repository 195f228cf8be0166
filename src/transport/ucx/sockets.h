// SPDX-License-Identifier: Apache-2.0
#pragma once
// UCX's own TCP sockets, which UCX opens without telling which they are.
//
// A child made by fork() has a copy of each, and so has a program that this process starts: the connections would not
// end with the process, and peers on other hosts would not notice its end. So children close them, and connected
// sockets become close-on-exec. A socket is known as UCX's by its local port, if UCX listens there (the listener, and
// connections that others made to it), and by the keep-alive that this library has UCX ask for (connections that UCX
// made).
//
// UCX itself does not work in such a child: its helper thread is not there.
#include <ucp/api/ucp.h>

#include <cstdint>
#include <vector>

#include "tithe/status.h"

namespace tithe::ucx {

// The keep-alive of connections that UCX makes, in seconds, as the kernel has it.
struct KeepAlive {
  int idle = 0, interval = 0, probes = 0;
};

class Sockets {
 public:
  // Before the worker is created: sockets that listen already are not UCX's.
  explicit Sockets(const KeepAlive& keep_alive);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // The worker is created, and this is its address: UCX's new listeners are those whose port it names.
  void created(const std::vector<std::uint8_t>& address);
  // Once connections stand: programs that this process starts do not get them.
  void close_on_exec() const;

  // kUnsupported in a child whose parent had UCX open at the fork.
  static Status usable();

 private:
  bool has(int fd) const;
  friend struct Known;

  const KeepAlive keep_alive_;
  const std::vector<std::uint16_t> before_;  // ports of listeners that were there first
  std::vector<std::uint16_t> ports_ = {};    // of UCX's
};

}  // namespace tithe::ucx
