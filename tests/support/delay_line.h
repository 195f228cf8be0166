// SPDX-License-Identifier: Apache-2.0
#pragma once
// A user-space proxy with high latency: connections to it are forwarded to another endpoint, and data arrives
// delayed. Each direction of a connection has at most one window of bytes in flight, like a TCP stream, so its
// throughput is at most window / round-trip time.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <thread>
#include <vector>

#include "transport/tcp/wire.h"

namespace tithe::testing {

class DelayLine {
 public:
  DelayLine(const tcp::Endpoint& to, std::chrono::milliseconds one_way, std::size_t window)
      : to_(to), one_way_(one_way), window_(window) {
    if (Result<UniqueFd> listener = tcp::listen_at(at_); listener.ok()) listener_ = std::move(*listener);
    thread_ = std::thread([this] { run(); });
  }
  ~DelayLine() {
    over_ = true;
    thread_.join();
  }
  DelayLine(const DelayLine&) = delete;
  DelayLine& operator=(const DelayLine&) = delete;
  const tcp::Endpoint& at() const { return at_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    Clock::time_point due;
    std::vector<std::uint8_t> bytes;
    std::size_t gone = 0;
  };
  struct DelayedDirection {  // one direction of a connection
    int from, to;
    std::deque<Chunk> chunks = {};
    // Time at which the sender learns of the acknowledgement, bytes.
    std::deque<std::pair<Clock::time_point, std::size_t>> acknowledged = {};
    std::size_t held = 0;  // of its window
    bool ended = false, shut_down = false;
  };

  void run() {
    while (!over_) {
      std::vector<pollfd> fds{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
      for (const DelayedDirection& w : directions_)
        fds.push_back({.fd = w.ended || w.held >= window_ ? -1 : w.from, .events = POLLIN, .revents = 0});
      poll(fds.data(), fds.size(), 1);
      for (UniqueFd one; (one = tcp::accept_from(listener_.get())).is_open();) {
        Result<UniqueFd> other = tcp::connect_to(to_, 0);
        if (!other.ok()) continue;
        directions_.push_back({one.get(), other->get()});
        directions_.push_back({other->get(), one.get()});
        ends_.push_back(std::move(one));
        ends_.push_back(std::move(*other));
      }
      for (DelayedDirection& w : directions_) take(w);
      for (DelayedDirection& w : directions_) give(w);
    }
  }
  void take(DelayedDirection& w) {
    while (!w.ended && w.held < window_) {
      std::vector<std::uint8_t> bytes(window_ - w.held);
      const ssize_t n = recv(w.from, bytes.data(), bytes.size(), 0);
      if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
      w.ended = n <= 0;
      if (n <= 0) return;
      bytes.resize(static_cast<std::size_t>(n));
      w.held += bytes.size();
      w.chunks.push_back({Clock::now() + one_way_, std::move(bytes)});
    }
  }
  // The sender learns of free window space one way later, so one window is sent per round trip.
  void give(DelayedDirection& w) {
    while (!w.acknowledged.empty() && Clock::now() >= w.acknowledged.front().first) {
      w.held -= w.acknowledged.front().second;
      w.acknowledged.pop_front();
    }
    while (!w.chunks.empty() && Clock::now() >= w.chunks.front().due) {
      Chunk& c = w.chunks.front();
      const ssize_t n = ::send(w.to, c.bytes.data() + c.gone, c.bytes.size() - c.gone, MSG_NOSIGNAL);
      if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return;
      c.gone = n < 0 ? c.bytes.size() : c.gone + static_cast<std::size_t>(n);
      if (c.gone < c.bytes.size()) return;
      w.acknowledged.emplace_back(Clock::now() + one_way_, c.bytes.size());
      w.chunks.pop_front();
    }
    if (w.ended && w.chunks.empty() && !std::exchange(w.shut_down, true)) shutdown(w.to, SHUT_WR);
  }

  tcp::Endpoint to_, at_{asio::ip::address_v4::loopback(), 0};
  const std::chrono::milliseconds one_way_;
  const std::size_t window_;
  UniqueFd listener_;
  std::vector<UniqueFd> ends_;
  std::list<DelayedDirection> directions_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace tithe::testing
