// SPDX-License-Identifier: Apache-2.0
#pragma once
// A UCX context and worker that can wait without spinning, on UCX's event descriptor and on an eventfd for wake().
#include <ucp/api/ucp.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tithe/status.h"
#include "transport/spin_guard.h"
#include "transport/ucx/open.h"
#include "transport/ucx/sockets.h"

namespace tithe::ucx {

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> open(const Options& options, std::chrono::milliseconds silence,
                                              int world);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  Result<std::vector<std::uint8_t>> address() const;

  // The transports and devices that UCX may use, such as "tcp/eth0", without "self".
  std::vector<std::string> devices() const;

  // True if UCX may reach ranks of this machine through memory; false if only through a network.
  bool shares_memory() const { return shares_memory_; }

  // Runs UCX until it has nothing more to do; false if it had nothing at all.
  bool progress();
  // Blocks until UCX has work, `also` is readable, wake() is called or the time is over. Returns true if wake() was
  // called, even before the wait.
  bool wait(std::chrono::nanoseconds most, int also);
  void wake();  // from any thread
  // Call once all connections exist: programs started by this process do not inherit them.
  void connected() { sockets_->close_on_exec(); }
  std::vector<std::string> messages() { return guard_.messages(); }

 private:
  Worker() = default;
  Status start(const Options& options, std::chrono::milliseconds silence, int world);
  bool consume_wake();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;  // UCX's event descriptor, owned by the worker; readable when there is work
  UniqueFd wake_;    // eventfd
  SpinGuard guard_;
  std::unique_ptr<Sockets> sockets_;
  bool shares_memory_ = false;
};

// Why a connection ended: kTimeout if UCX reports a timeout, else kPeerLost.
Status connection_error(ucs_status_t status);
Status ucx_error(std::string_view doing, ucs_status_t status, std::string_view more = {});  // kIo

}  // namespace tithe::ucx
