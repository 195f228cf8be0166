// SPDX-License-Identifier: Apache-2.0
#pragma once
// New connections: a Listener accepts those of other ranks, a Connector opens one. Each results in a wire whose other
// end has proved that it is a rank of this job.
//
// For a stranger, the listener stores a request's bytes for a few seconds, and reads no more than request and
// claim. The number of pending connections is limited; beyond it the listener closes the oldest one.
#include <chrono>
#include <list>
#include <memory>
#include <vector>

#include "transport/tcp/tcp_handshake.h"
#include "transport/tcp/wire.h"

namespace tithe::tcp {

using Clock = std::chrono::steady_clock;

// The job as a connection's ends must know it.
struct Job {
  Rank rank = 0;
  int world = 1;
  Secret key = {};
  int tos = 0;                                               // of data connections
  std::shared_ptr<const Credentials> credentials = nullptr;  // all connections are TLS
};

class Listener {
 public:
  // Takes the connection over, or returns false: this rank accepts no such connection now.
  using OnAccept = std::function<bool(const ConnectRequest&, const std::shared_ptr<Wire>&)>;

  Listener(asio::io_context& context, const Job& job) : context_(context), job_(job) {}
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens at each of these; their ports are known afterwards.
  Status listen(std::vector<Endpoint>& at);
  void open(OnAccept welcome);  // accepts callers from now on
  void tend(Clock::time_point now);
  bool busy() const { return !pending_.empty() || full_; }
  std::size_t pending() const { return pending_.size(); }
  // Why the last caller was refused for invalid bytes; empty: none was.
  const std::string& refused() const { return refused_; }

 private:
  struct PendingConnection {
    std::shared_ptr<Wire> wire;
    Clock::time_point since;
    std::array<std::uint8_t, kConnectRequestBytes> request = {};
    std::array<std::uint8_t, kClaimBytes> claim = {};
    std::size_t have = 0;  // bytes of the two
    Secret nonce = {};
  };
  using PendingConnections = std::list<PendingConnection>;

  void accept(Wire& listener);
  void hear(PendingConnections::iterator pending);
  bool take(PendingConnection& pending);  // false: it goes
  void remove(PendingConnections::iterator pending);

  asio::io_context& context_;
  const Job& job_;
  OnAccept on_accept_;
  std::vector<std::shared_ptr<Wire>> listeners_;
  PendingConnections pending_;  // in the order in which they came
  bool full_ = false;           // no descriptor was left for a caller
  std::string refused_;
};

// Tries a rank's endpoints in order until one accepts this rank, kTries times in all: to both sides, a damaged
// handshake looks like a stranger's.
class Connector {
 public:
  static constexpr int kTries = 3;
  // Once; may destroy the call. A wire that comes with kCorrupt ends at a rank, of which nothing counts.
  using Done = std::function<void(Status, std::shared_ptr<Wire>)>;

  Connector(asio::io_context& context, const Job& job, const ConnectRequest& request,
            std::vector<Endpoint> at, Done done);
  ~Connector() { close(); }
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  void begin();
  void tend(Clock::time_point now);

 private:
  void connect();
  void greet();
  void hear();
  void next(Status why);
  void close();

  asio::io_context& context_;
  const Job& job_;
  ConnectRequest request_;
  std::vector<Endpoint> at_;  // from next_ on: not yet tried
  Done done_;
  std::size_t next_ = 0;
  int tries_ = 1;
  std::array<std::uint8_t, kConnectRequestBytes> said_ = {};
  std::array<std::uint8_t, kChallengeBytes + kWelcomeBytes> heard_ = {};
  std::size_t have_ = 0;
  Secret nonce_ = {};
  std::shared_ptr<Wire> wire_;
  Clock::time_point deadline_ = {};  // of this attempt
};

}  // namespace tithe::tcp
