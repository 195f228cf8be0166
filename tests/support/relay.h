// SPDX-License-Identifier: Apache-2.0
#pragma once
// A TCP proxy for fault injection: it forwards data, flips one bit on request, and can stall or break all connections
// of some links. Runs in its own thread.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

namespace tithe::testing {

class Relay {
 public:
  // The position of a bit: connection number of a link, direction, and byte offset in the stream.
  struct Place {
    int link = 0;
    int connection = 0;
    bool back = false;  // direction: from the accepting side to the connecting side
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  enum class LinkState : std::uint8_t { kPasses, kHolds, kBreaks };

  Relay() : thread_([this] { run(); }) {}
  ~Relay() {
    stop_ = true;
    thread_.join();
    for (Link& l : links_) close(l.listener);
    for (Flow& f : flows_) f.end();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // The port by which `to`, a port of the loopback, is reached through here.
  int link(int number, int to) {
    const std::lock_guard lock(mutex_);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    sockaddr_in at = loopback(0);
    socklen_t size = sizeof at;
    if (bind(fd, reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0)
      std::abort();
    links_.push_back({.number = number, .listener = fd, .to = to});
    return ntohs(at.sin_port);
  }
  void flip(const Place& place, std::uint64_t byte, int bit) {
    const std::lock_guard lock(mutex_);
    place_ = place;
    byte_ = byte;
    bit_ = bit;
    armed_ = true;
  }
  bool flipped() const { return flipped_; }
  // The fate of all connections of links for which `which` holds, from now on.
  void set(LinkState state, const std::function<bool(int link)>& which) {
    const std::lock_guard lock(mutex_);
    for (Link& l : links_)
      if (which(l.number)) l.state = state;
  }
  // Bytes that have passed.
  std::map<Place, std::uint64_t> passed() const {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  struct Link {
    int number = 0, listener = -1, to = 0;
    int connections = 0;
    LinkState state = LinkState::kPasses;
  };
  struct Half {
    std::vector<std::uint8_t> waits = {};
    bool ended = false, shut_down = false;
  };
  struct Flow {
    Link* link = nullptr;
    int number = 0;
    int ends[2] = {-1, -1};  // the caller's, the called one's
    Half halves[2] = {};     // from these
    void end() {
      for (int& fd : ends)
        if (fd >= 0) close(std::exchange(fd, -1));
    }
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<std::uint16_t>(port));
    return at;
  }

  void run() {
    while (!stop_) {
      std::vector<pollfd> fds;
      {
        const std::lock_guard lock(mutex_);
        for (Link& l : links_) accept_all(l);
        for (auto f = flows_.begin(); f != flows_.end();) f = move(*f) ? std::next(f) : flows_.erase(f);
        for (const Link& l : links_) fds.push_back({l.listener, POLLIN, 0});
        for (const Flow& f : flows_)
          for (int k = 0; k < 2 && f.link->state == LinkState::kPasses; ++k) {
            const bool reads = f.halves[k].waits.empty() && !f.halves[k].ended;
            const bool writes = !f.halves[1 - k].waits.empty();
            if (reads || writes)
              fds.push_back(
                  {f.ends[k], static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
          }
      }
      poll(fds.data(), fds.size(), 20);
    }
  }

  void accept_all(Link& l) {
    for (int fd = -1; (fd = accept4(l.listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
      const int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in to = loopback(l.to);
      if (l.state == LinkState::kBreaks ||
          connect(out, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
        close(fd);
        close(out);
        continue;
      }
      const int on = 1;
      fcntl(out, F_SETFL, O_NONBLOCK);
      setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      Flow& flow = flows_.emplace_back();
      flow.link = &l;
      flow.number = l.connections++;
      flow.ends[0] = fd;
      flow.ends[1] = out;
    }
  }

  // False: it is over.
  bool move(Flow& f) {
    if (f.link->state == LinkState::kHolds) return true;
    bool over = f.link->state == LinkState::kBreaks;
    for (int k = 0; k < 2 && !over; ++k) over = !move(f, k);
    if (over || (f.halves[0].shut_down && f.halves[1].shut_down)) {
      f.end();
      return false;
    }
    return true;
  }
  bool move(Flow& f, int from) {
    Half& half = f.halves[from];
    for (;;) {
      if (half.waits.empty() && !half.ended) {
        std::uint8_t some[65536];
        const ssize_t n = recv(f.ends[from], some, sizeof some, 0);
        if (n < 0) {
          if (errno == EAGAIN) return true;
          return false;
        }
        half.ended = n == 0;
        half.waits.assign(some, some + n);
        count(f, from == 1, half.waits);
      }
      while (!half.waits.empty()) {
        const ssize_t n = send(f.ends[1 - from], half.waits.data(), half.waits.size(), MSG_NOSIGNAL);
        if (n < 0) return errno == EAGAIN;
        half.waits.erase(half.waits.begin(), half.waits.begin() + n);
      }
      if (half.ended) {
        if (!std::exchange(half.shut_down, true)) shutdown(f.ends[1 - from], SHUT_WR);
        return true;
      }
    }
  }
  void count(const Flow& f, bool back, std::vector<std::uint8_t>& bytes) {
    const Place place{f.link->number, f.number, back};
    std::uint64_t& passed = passed_[place];
    if (armed_ && place == place_ && byte_ >= passed && byte_ < passed + bytes.size()) {
      bytes[byte_ - passed] ^= static_cast<std::uint8_t>(1U << bit_);
      armed_ = false;
      flipped_ = true;
    }
    passed += bytes.size();
  }

  mutable std::mutex mutex_;
  std::list<Link> links_;
  std::list<Flow> flows_;
  std::map<Place, std::uint64_t> passed_;
  Place place_;
  std::uint64_t byte_ = 0;
  int bit_ = 0;
  bool armed_ = false;
  std::atomic<bool> flipped_{false}, stop_{false};
  std::thread thread_;
};

}  // namespace tithe::testing
