// SPDX-License-Identifier: Apache-2.0
// Non-blocking sockets. ready() is the only function that waits for a socket.
#include "transport/rendezvous/socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace tithe::rendezvous {
namespace {

Status failed(std::string_view doing, int why) {
  return {Code::kIo, fmt::format("{}: {}", doing, std::strerror(why))};
}

constexpr int kLook = 100;  // ms: interval at which a wait checks whether it was cancelled
constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Resolves a host name. An IPv6 address may have brackets, as before a port: [fd77::1].
Result<Addresses> resolve(const std::string& host, int port, int flags = 0) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string plain = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_family = bracketed ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | (bracketed ? AI_NUMERICHOST : 0);
  addrinfo* list = nullptr;
  if (const int e = getaddrinfo(plain.c_str(), std::to_string(port).c_str(), &hints, &list); e != 0)
    return Status(Code::kIo, fmt::format("host '{}': {}", host, gai_strerror(e)));
  return Addresses(list, freeaddrinfo);
}

Socket open_socket(int family) {
  return Socket::from([family] { return socket(family, kType, 0); });
}

// Returns false with the reason in errno.
bool bind_and_listen(const Socket& s, const sockaddr* at, socklen_t size, int only_ipv6) {
  const int on = 1;
  setsockopt(s.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (at->sa_family == AF_INET6) setsockopt(s.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, sizeof only_ipv6);
  return bind(s.get(), at, size) == 0 && listen(s.get(), SOMAXCONN) == 0;
}

bool is_loopback(const sockaddr* a) {
  if (a->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr) >> 24 == 127;
  return a->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr);
}

}  // namespace

Status ready(const Socket& socket, bool to_write, Deadline deadline) {
  pollfd p{.fd = socket.get(), .events = static_cast<short>(to_write ? POLLOUT : POLLIN), .revents = 0};
  for (;;) {
    if (deadline.cancelled()) return {Code::kCancelled, "given up"};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline.at - std::chrono::steady_clock::now());
    if (left.count() <= 0) return {Code::kTimeout, to_write ? "sending" : "receiving"};
    const int n = ::poll(&p, 1, static_cast<int>(std::min<std::int64_t>(left.count(), kLook)));
    if (n > 0) return {};
    if (n < 0 && errno != EINTR) return failed("waiting", errno);
  }
}

Result<Socket> listen_on(int port, int* why) {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket s = open_socket(family);
    *why = errno;
    if (!s.is_open()) continue;  // no IPv6 here
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<std::uint16_t>(port));
    sockaddr_in6 any6{};
    any6.sin6_family = AF_INET6;
    any6.sin6_port = any.sin_port;
    if (family == AF_INET6 ? bind_and_listen(s, reinterpret_cast<const sockaddr*>(&any6), sizeof any6, 0)
                           : bind_and_listen(s, reinterpret_cast<const sockaddr*>(&any), sizeof any, 0))
      return s;
    *why = errno;
    if (*why == EADDRINUSE) break;
  }
  return failed(fmt::format("listening on port {}", port), *why);
}

bool is_loopback(const std::string& host) {
  const Result<Addresses> list = resolve(host, 0);
  if (!list.ok()) return false;
  for (const addrinfo* a = list->get(); a != nullptr; a = a->ai_next)
    if (!is_loopback(a->ai_addr)) return false;
  return true;
}

Result<std::vector<Socket>> listen_at(const std::string& host, int port, bool guarded, int* why) {
  *why = 0;
  const Result<Addresses> list = resolve(host, port);
  if (!list.ok()) return list.status();
  std::vector<Socket> out;
  const bool named = host != "localhost" && !resolve(host, port, AI_NUMERICHOST).ok();
  if (!(guarded && named && is_loopback(host)))
    for (const addrinfo* a = list->get(); a != nullptr; a = a->ai_next) {
      Socket s = open_socket(a->ai_family);
      if (!s.is_open()) continue;
      if (bind_and_listen(s, a->ai_addr, a->ai_addrlen, 1)) {
        out.push_back(std::move(s));
        continue;
      }
      *why = errno;
      if (*why != EADDRNOTAVAIL) return failed(fmt::format("listening on {}:{}", host, port), *why);
    }
  if (!out.empty()) return out;
  Result<Socket> all = listen_on(port, why);
  if (!all.ok()) return all.status();
  out.push_back(std::move(*all));
  return out;
}

Socket accept_from(const Socket& listener) {
  return Socket::from(
      [&] { return accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

Result<Socket> connect_to(const std::string& host, int port, Deadline deadline) {
  const Result<Addresses> list = resolve(host, port);
  if (!list.ok()) return list.status();
  int why = ECONNREFUSED;
  for (const addrinfo* a = list->get(); a != nullptr; a = a->ai_next) {
    Socket s = open_socket(a->ai_family);
    if (!s.is_open()) continue;
    if (connect(s.get(), a->ai_addr, a->ai_addrlen) != 0) {
      why = errno;
      if (why != EINPROGRESS) continue;
      // An address that drops packets must not use up the time of the other addresses.
      const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(3);
      why = ETIMEDOUT;
      const Status there = ready(s, true, deadline.at_most(soon));
      if (there.code() == Code::kCancelled) return there;
      if (!there.ok()) continue;
      socklen_t size = sizeof why;
      getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &why, &size);
      if (why != 0) continue;
    }
    const int on = 1;
    setsockopt(s.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return s;
  }
  return failed(fmt::format("connecting to {}:{}", host, port), why);
}

bool send_some(const Socket& socket, std::span<const std::uint8_t> bytes) {
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

Status send_all(const Socket& socket, std::span<const std::uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      TITHE_TRY(ready(socket, true, deadline));
    } else if (errno != EINTR) {
      return failed("sending", errno);
    }
  }
  return {};
}

std::ptrdiff_t recv_some(const Socket& socket, std::span<std::uint8_t> bytes) {
  for (;;) {
    const ssize_t n = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (n > 0) return n;
    if (n == 0) return -1;
    if (errno == EINTR) continue;
    return errno == EAGAIN ? 0 : -1;
  }
}

Status recv_all(const Socket& socket, std::span<std::uint8_t> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::ptrdiff_t n = recv_some(socket, bytes);
    if (n < 0) return {Code::kIo, "the connection was closed"};
    if (n == 0) TITHE_TRY(ready(socket, false, deadline));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace tithe::rendezvous
