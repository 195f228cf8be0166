// SPDX-License-Identifier: Apache-2.0
#pragma once
// One UCX context and worker, with what waiting without spinning needs: the worker's event descriptor
// and one of our own for wake().
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

  std::vector<std::string> ways()
      const;  // transports and devices that it may use: "tcp/eth0"; itself left out

  // True if it may reach ranks of this machine through memory; else only through a network.
  bool shares_memory() const { return shares_memory_; }

  // Progresses until UCX has nothing more to do; false if there was nothing at all.
  bool progress();
  // Blocks until UCX has something to do, `also` can be read, wake() was called or the time is over. True if
  // woken by wake(), also by one that came before the wait.
  bool wait(std::chrono::nanoseconds most, int also);
  void wake();  // from any thread
  // Connections stand: programs that this process starts do not get them.
  void connected() { sockets_->close_on_exec(); }
  std::vector<std::string> messages() { return guard_.messages(); }

 private:
  Worker() = default;
  Status start(const Options& options, std::chrono::milliseconds silence, int world);
  bool take_wake();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int events_ = -1;  // UCX's descriptor, readable when there is something to progress; owned by the worker
  UniqueFd wake_;    // eventfd
  SpinGuard guard_;
  std::unique_ptr<Sockets> sockets_;
  bool shares_memory_ = false;
};

// The way a connection ended: kPeerLost, or kTimeout where nothing says that the peer has ended.
Status how_it_ended(ucs_status_t status);
Status ucx_error(std::string_view doing, ucs_status_t status, std::string_view more = {});  // kIo

}  // namespace tithe::ucx
