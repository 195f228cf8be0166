// SPDX-License-Identifier: Apache-2.0
// A socket in asio's event loop, with or without TLS. Invariant: at most one wait per direction is pending.
#include "transport/tcp/wire.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <cstring>

namespace tithe::tcp {
namespace {

constexpr std::int64_t kMaxProbes = 120;  // the kernel's limit is 127
constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

template <typename Value>
void set(int socket, int level, int which, Value value) {
  setsockopt(socket, level, which, &value, sizeof value);
}

tcp_info info_of(int socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return info;
}

thread_local std::uint64_t times_moved = 0;

ssize_t receive(int socket, std::uint8_t* into, std::size_t n) {
  const ssize_t got = ::recv(socket, into, n, 0);
  times_moved += got > 0;
  return got;
}

ssize_t give(int socket, const std::uint8_t* from, std::size_t n) {
  const ssize_t gone = ::send(socket, from, n, MSG_NOSIGNAL);
  times_moved += gone > 0;
  return gone;
}

Status failed(std::string_view doing, const Endpoint& where, int why) {
  return {Code::kIo, fmt::format("{} {}: {}", doing, where.address().to_string(), std::strerror(why))};
}

}  // namespace

std::shared_ptr<Wire> Wire::adopt(asio::io_context& context, UniqueFd socket, const Credentials* credentials,
                                  Rank calls, bool authenticated) {
  std::shared_ptr<Wire> wire(new Wire(context, std::move(socket)));
  asio::error_code error;
  wire->descriptor_.assign(wire->socket(), error);
  if (!error) wire->descriptor_.native_non_blocking(true, error);
  if (error) return {};
  if (credentials != nullptr) {
    const UniqueFd& to = wire->socket_;
    wire->tls_ = std::make_unique<TlsEnd>(
        *credentials, calls, [&to](std::uint8_t* bytes, std::size_t n) { return give(to.get(), bytes, n); },
        [&to](std::uint8_t* bytes, std::size_t n) { return receive(to.get(), bytes, n); }, authenticated);
  }
  return wire;
}

void Wire::readable() {
  awaits_readable_ = false;
  if (!open()) return;
  const auto act = on_readable;  // the callback may replace itself
  act();
}

void Wire::await_readable() {
  if (awaits_readable_ || !open()) return;
  awaits_readable_ = true;
  // OpenSSL may hold decrypted bytes, for which epoll reports nothing.
  if (tls_ != nullptr && tls_->can_read_more())
    return asio::post(descriptor_.get_executor(), [self = shared_from_this()] { self->readable(); });
  descriptor_.async_wait(asio::posix::descriptor_base::wait_read,
                         [self = shared_from_this()](const asio::error_code& error) {
                           if (!error) return self->readable();
                           self->awaits_readable_ = false;
                         });
}

void Wire::await_writable() {
  if (!open()) return;
  wants_writable_ = true;
  wait_for_room();
}

void Wire::wait_for_room() {
  if (awaits_writable_) return;
  awaits_writable_ = true;
  descriptor_.async_wait(asio::posix::descriptor_base::wait_write,
                         [self = shared_from_this()](const asio::error_code& error) {
                           self->awaits_writable_ = false;
                           if (error || !self->open()) return;
                           // If flush() fails, the owner gets the error from its next read or write.
                           if (self->tls_ != nullptr && self->tls_->flush() && self->tls_->unsent() > 0)
                             return self->wait_for_room();
                           if (!std::exchange(self->wants_writable_, false)) return;
                           const auto act = self->on_writable;
                           act();
                         });
}

std::ptrdiff_t Wire::by_tls(std::ptrdiff_t result) {
  if (tls_->unsent() > 0) wait_for_room();
  if (result >= 0) return result;
  error_ = tls_->error();
  return kClosed;
}

std::ptrdiff_t Wire::handshake() {
  if (!open()) return kClosed;
  return tls_ == nullptr ? 1 : by_tls(tls_->handshake());
}

bool Wire::is_rank(Rank rank) const { return tls_ == nullptr || tls_->is_rank(rank); }

std::ptrdiff_t Wire::ended(std::ptrdiff_t result) {
  if (result > 0) return result;
  if (result < 0 && errno == EAGAIN) return 0;
  error_ = result == 0 ? Status(Code::kPeerLost, "its connection was closed") : connection_error(errno);
  return kClosed;
}

std::ptrdiff_t Wire::read(Bytes into) {
  if (!open()) return kClosed;
  if (tls_ != nullptr) return by_tls(tls_->read(into));
  ssize_t n = -1;
  do n = receive(socket(), into.data(), into.size());
  while (n < 0 && errno == EINTR);
  return ended(n);
}

std::ptrdiff_t Wire::write(ByteView from) {
  if (!open()) return kClosed;
  if (tls_ != nullptr) return by_tls(tls_->write(from));
  ssize_t n = -1;
  do n = give(socket(), from.data(), from.size());
  while (n < 0 && errno == EINTR);
  return ended(n);
}

// release() removes the socket from asio's epoll set. asio's close() would leave that to the kernel, which removes the
// socket only after every process has closed its copy.
void Wire::close() {
  if (descriptor_.is_open()) descriptor_.release();
  socket_.close();
}

std::uint64_t moved() { return times_moved; }

Status connection_error(int error) {
  if (error == ETIMEDOUT) return {Code::kTimeout, "its connection reached a timeout"};
  return {Code::kPeerLost, fmt::format("its connection broke: {}", std::strerror(error))};
}

Result<UniqueFd> listen_at(Endpoint& at) {
  UniqueFd listener = UniqueFd::from([&] { return socket(at.protocol().family(), kType, 0); });
  if (!listener.is_open()) return failed("listening at", at, errno);
  if (at.address().is_v6()) set(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
  auto size = static_cast<socklen_t>(at.capacity());
  if (bind(listener.get(), at.data(), static_cast<socklen_t>(at.size())) == 0 &&
      ::listen(listener.get(), SOMAXCONN) == 0 && getsockname(listener.get(), at.data(), &size) == 0)
    return listener;
  return failed("listening at", at, errno);
}

UniqueFd accept_from(int listener) {
  return UniqueFd::from([&] { return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

Result<UniqueFd> connect_to(const Endpoint& to, int tos) {
  UniqueFd out = UniqueFd::from([&] { return socket(to.protocol().family(), kType, 0); });
  if (!out.is_open()) return failed("connecting to", to, errno);
  set_tos(out.get(), tos);
  if (connect(out.get(), to.data(), static_cast<socklen_t>(to.size())) == 0 || errno == EINPROGRESS)
    return out;
  return failed("connecting to", to, errno);
}

Status connected(int socket) {
  int why = 0;
  socklen_t size = sizeof why;
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &why, &size);
  return why == 0 ? Status() : connection_error(why);
}

void keep_alive(int socket, std::chrono::milliseconds silence) {
  const auto probes = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(silence).count());
  const std::int64_t interval = (probes + kMaxProbes - 1) / kMaxProbes;
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(interval));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>((probes + interval - 1) / interval));
}

void set_tos(int socket, int tos) {
  if (tos == 0) return;
  set(socket, IPPROTO_IP, IP_TOS, tos);
  set(socket, IPPROTO_IPV6, IPV6_TCLASS, tos);
}

std::chrono::milliseconds silent_for(int socket) {
  const tcp_info info = info_of(socket);
  return std::chrono::milliseconds(std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv));
}

std::size_t bytes_in_flight(int socket) {
  int bytes = 0;
  return ioctl(socket, SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

Congestion::LinkState read_link_state(int socket) {
  const tcp_info info = info_of(socket);
  return {.round_trip = std::chrono::microseconds(info.tcpi_rtt), .retransmitted = info.tcpi_total_retrans};
}

void limit_send_buffer(int socket, int bytes) { set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, bytes); }

}  // namespace tithe::tcp
