// SPDX-License-Identifier: Apache-2.0
#pragma once
// One connection: reads and writes bytes, and calls back when it is ready. No function blocks. With credentials, the
// connection uses TLS.
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
  static constexpr std::ptrdiff_t kClosed = -1;

  // Takes over a non-blocking socket. Null if the system refuses to watch one more socket. `calls`: the rank expected
  // at the other end; -1: the caller checks with is_rank() later. `authenticated`: that rank's certificate was
  // verified on another connection.
  static std::shared_ptr<Wire> adopt(asio::io_context& context, UniqueFd socket,
                                     const Credentials* credentials = nullptr, Rank calls = -1,
                                     bool authenticated = false);
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // The context calls these once after each await_*(). The owner of the wire sets them.
  std::function<void()> on_readable, on_writable;
  void await_readable();
  void await_writable();

  // The number of bytes moved; 0: none now; kClosed: no more at all, with the reason in error().
  std::ptrdiff_t read(Bytes into);
  std::ptrdiff_t write(ByteView from);
  const Status& error() const { return error_; }
  // Bytes that write() accepted and the kernel has not. They are sent while the context runs.
  std::size_t unsent() const { return tls_ == nullptr ? 0 : tls_->unsent(); }

  std::ptrdiff_t handshake();     // returns like write(); after a 1 the caller's bytes may be sent
  bool is_rank(Rank rank) const;  // checks the certificate; true without credentials

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
  asio::posix::stream_descriptor descriptor_;  // borrows socket_
  bool awaits_readable_ = false, awaits_writable_ = false;
  // The owner has called await_writable(); if false, the wire itself waits to send TLS records.
  bool wants_writable_ = false;
  std::unique_ptr<TlsEnd> tls_ = {};
  Status error_ = {};
};

// The number of times a socket on this thread sent or received bytes.
std::uint64_t moved();

// kTimeout if the kernel gave up waiting for the other side, else kPeerLost.
Status connection_error(int error);

// A listening socket at an address of this machine. The system chooses the port, which is stored in `at`.
Result<UniqueFd> listen_at(Endpoint& at);
// The next pending connection. Not open if there is none; errno then says whether file descriptors ran out.
UniqueFd accept_from(int listener);
// A socket with a connection attempt in progress. Once it is writable, connected() gives the result.
Result<UniqueFd> connect_to(const Endpoint& to, int tos);
Status connected(int socket);
// Enables keepalive probes, one per second on an idle connection, and disables Nagle's algorithm.
void keep_alive(int socket, std::chrono::milliseconds silence);
void set_tos(int socket, int tos);
// The time since the last byte or acknowledgement from the other end's kernel.
std::chrono::milliseconds silent_for(int socket);
// Bytes in flight: sent and not acknowledged.
std::size_t bytes_in_flight(int socket);
// The round trip time and the retransmissions; `bytes_in_flight` and `idle` are not set.
Congestion::LinkState read_link_state(int socket);
// Limits the unsent bytes that the kernel buffers, so that the choice of the connection for each piece is made late.
void limit_send_buffer(int socket, int bytes);

}  // namespace tithe::tcp
