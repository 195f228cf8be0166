// SPDX-License-Identifier: Apache-2.0
// UCX does not expose its sockets, so this file finds them among all descriptors of the process, by local port or by
// keep-alive settings. A registry of all Sockets is consulted at fork().
#include "transport/ucx/sockets.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>

#include "base/unique_fd.h"

namespace tithe::ucx {

// The list of all live Sockets. fork() takes the mutex, so the list is consistent in a child.
struct Known {
  std::mutex mutex;
  std::vector<const Sockets*> all;
  std::atomic<bool> inherited = false;  // this process was forked while its parent had UCX open

  Known();
  void close_all();
};

namespace {

Known& known() {
  static auto* const kKnown = new Known;  // NOLINT(*-owning-memory): never freed
  return *kKnown;
}

// Calls each(fd) for all descriptors of this process. Uses system calls only, since a forked child of a process with
// threads must not allocate memory.
template <typename Each>
void for_each_descriptor(const Each& each) {
  struct Entry {  // linux_dirent64
    std::uint64_t inode;
    std::int64_t offset;
    std::uint16_t bytes;
    std::uint8_t type;
    char name[1];
  };
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(Entry) char buffer[4096];
  for (long n = 0; (n = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < n;) {
      const auto* entry = reinterpret_cast<const Entry*>(buffer + at);
      at += entry->bytes;
      int fd = 0;
      const char* digit = entry->name;
      for (; *digit >= '0' && *digit <= '9'; ++digit) fd = 10 * fd + (*digit - '0');
      if (*digit == '\0' && fd != folder) each(fd);
    }
  ::close(folder);
}

int option(int fd, int level, int which) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, level, which, &value, &size) == 0 ? value : -1;
}

// The local port of a TCP socket; 0 for any other descriptor.
std::uint16_t local_port(int fd) {
  sockaddr_storage at{};
  socklen_t size = sizeof at;
  if (option(fd, SOL_SOCKET, SO_TYPE) != SOCK_STREAM ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    return 0;
  if (at.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&at)->sin_port);
  if (at.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&at)->sin6_port);
  return 0;
}

std::vector<std::uint16_t> listening() {
  std::vector<std::uint16_t> ports;
  for_each_descriptor([&](int fd) {
    if (option(fd, SOL_SOCKET, SO_ACCEPTCONN) != 1) return;
    if (const std::uint16_t port = local_port(fd); port != 0) ports.push_back(port);
  });
  return ports;
}

}  // namespace

Known::Known() {
  pthread_atfork([] { known().mutex.lock(); }, [] { known().mutex.unlock(); },
                 [] {
                   known().close_all();
                   known().mutex.unlock();
                 });
}

void Known::close_all() {
  if (all.empty()) return;
  inherited = true;
  for_each_descriptor([this](int fd) {
    if (std::any_of(all.begin(), all.end(), [fd](const Sockets* s) { return s->has(fd); })) ::close(fd);
  });
  all.clear();
}

Sockets::Sockets(const KeepAlive& keep_alive) : keep_alive_(keep_alive), before_(listening()) {
  const std::lock_guard lock(known().mutex);
  known().all.push_back(this);
}

Sockets::~Sockets() {
  const std::lock_guard lock(known().mutex);
  std::erase(known().all, this);
}

void Sockets::created(const std::vector<std::uint8_t>& address) {
  std::vector<std::uint16_t> ports = listening();
  const std::lock_guard lock(known().mutex);
  std::erase_if(ports, [&](std::uint16_t port) {
    const std::uint8_t in_address[] = {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)};
    return std::find(before_.begin(), before_.end(), port) != before_.end() ||
           std::search(address.begin(), address.end(), std::begin(in_address), std::end(in_address)) ==
               address.end();
  });
  ports_ = std::move(ports);
}

void Sockets::close_on_exec() const {
  for_each_descriptor([this](int fd) {
    if (has(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
  });
}

bool Sockets::has(int fd) const {
  const std::uint16_t port = local_port(fd);
  if (port == 0) return false;
  if (std::find(ports_.begin(), ports_.end(), port) != ports_.end()) return true;
  return option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1 && option(fd, IPPROTO_TCP, TCP_NODELAY) == 1 &&
         option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == keep_alive_.idle &&
         option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == keep_alive_.interval &&
         option(fd, IPPROTO_TCP, TCP_KEEPCNT) == keep_alive_.probes;
}

Status Sockets::usable() {
  if (!known().inherited && !forks::inherited()) return {};
  return {Code::kUnsupported,
          "this process was forked from a process with an open session: a fork does not copy UCX's helper "
          "thread, and copies its locks as other threads held them; pass transport=\"tcp\", or start the "
          "process by spawn or forkserver"};
}

}  // namespace tithe::ucx
