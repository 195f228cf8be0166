// SPDX-License-Identifier: Apache-2.0
#pragma once
// One connection: reads and writes bytes, and calls back when it is ready. Nothing here ever blocks. With credentials,
// the connection is TLS.
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <functional>
#include <memory>

#include "base/unique_fd.h"
#include "tithe/byte_view.h"
#include "tithe/status.h"
#include "transport/tcp/congestion.h"
#include "transport/tcp/tls.h"

namespace tithe::tcp {

using Endpoint = asio::ip::tcp::endpoint;

class Wire : public std::enable_shared_from_this<Wire> {
 public:
  static constexpr std::ptrdiff_t kGone = -1;

  // Takes over a socket that does not block. Empty where the process may not wait for another one. `calls`: whom this
  // end expects at the other one; -1: it finds out (is_rank). `met`: that rank has shown its certificate already, on
  // another connection.
  static std::shared_ptr<Wire> take(asio::io_context& context, UniqueFd socket,
                                    const Credentials* credentials = nullptr, Rank calls = -1,
                                    bool met = false);
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // The context calls these after await_*(), once for each; whoever owns the wire sets them anew.
  std::function<void()> on_readable, on_writable;
  void await_readable();
  void await_writable();

  // How many bytes moved; 0: none just now; kGone: none ever, and why() says why.
  std::ptrdiff_t read(Bytes into);
  std::ptrdiff_t write(ByteView from);
  const Status& why() const { return why_; }
  // Bytes that write() took and that the kernel does not have yet: they go while somebody runs the context.
  std::size_t waits() const { return tls_ == nullptr ? 0 : tls_->waits(); }

  std::ptrdiff_t shake();         // as write(), until it gives 1: then bytes of the caller's may go
  bool is_rank(Rank rank) const;  // as far as a certificate says; true without credentials

  int socket() const { return socket_.get(); }
  bool open() const { return descriptor_.is_open(); }
  void close();

 private:
  Wire(asio::io_context& context, UniqueFd socket) : socket_(std::move(socket)), descriptor_(context) {}
  std::ptrdiff_t ended(std::ptrdiff_t result);
  std::ptrdiff_t by_tls(std::ptrdiff_t result);
  void readable();
  void wait_for_room();

  UniqueFd socket_;
  asio::posix::stream_descriptor descriptor_;  // borrows it
  bool awaits_readable_ = false, awaits_writable_ = false;
  bool wants_writable_ = false;  // the owner does; else what TLS has not got rid of
  std::unique_ptr<TlsEnd> tls_ = {};
  Status why_ = {};
};

// How often a socket took or gave bytes on this thread.
std::uint64_t moved();

// kTimeout where nothing says that the other side has ended, else kPeerLost.
Status how_it_ended(int error);

// A listening socket at an address of this machine, at a port that the system chooses; what it got is in `at`.
Result<UniqueFd> listen_at(Endpoint& at);
// The next connection that waits there; not open: none, errno says whether that is for want of descriptors.
UniqueFd accept_from(int listener);
// A socket that is about to connect; what `wire.connected()` says after it could be written is what came of it.
Result<UniqueFd> connect_to(const Endpoint& to, int tos);
Status connected(int socket);
// The other end is asked once a second while nothing travels. Nothing waits for more to send.
void keep_alive(int socket, std::chrono::milliseconds silence);
void set_tos(int socket, int tos);
// How long the other end's kernel has said nothing at all.
std::chrono::milliseconds unheard(int socket);
// Bytes that it has not acknowledged.
std::size_t under_way(int socket);
// How long a round trip takes just now, and what had to be sent again; `under_way` and `dry` are left out.
Congestion::Look look_at(int socket);
// The kernel takes this much that it cannot send yet, and no more: so what is sent where is decided late.
void hold_back(int socket, int bytes);

}  // namespace tithe::tcp
