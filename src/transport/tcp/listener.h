// SPDX-License-Identifier: Apache-2.0
#pragma once
// New connections: a Listener accepts those of other ranks, a Connector opens one. Each results in a Wire whose other
// end has proved that it is a rank of this job.
//
// The listener bounds the cost of unauthenticated connections. It reads at most a request and a claim from each, stores
// them for a few seconds, and limits the number of pending connections; beyond that number it closes the oldest one.
#include <chrono>
#include <list>
#include <memory>
#include <vector>

#include "transport/tcp/tcp_handshake.h"
#include "transport/tcp/wire.h"

namespace tithe::tcp {

using Clock = std::chrono::steady_clock;

// The facts about the job that both ends of a connection need.
struct Job {
  Rank rank = 0;
  int world = 1;
  Secret key = {};
  int tos = 0;                                               // IP type of service of data connections
  std::shared_ptr<const Credentials> credentials = nullptr;  // not null: all connections use TLS
};

class Listener {
 public:
  // Takes over the connection, or returns false: this rank does not accept such a connection now.
  using OnAccept = std::function<bool(const ConnectRequest&, const std::shared_ptr<Wire>&)>;

  Listener(asio::io_context& context, const Job& job) : context_(context), job_(job) {}
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens at each endpoint and stores the port that the system chose in it.
  Status listen(std::vector<Endpoint>& at);
  void open(OnAccept welcome);  // accepts connections from now on
  void maintain(Clock::time_point now);
  bool busy() const { return !pending_.empty() || full_; }
  std::size_t pending() const { return pending_.size(); }
  // The reason for the last refusal because of an invalid certificate; empty: none was refused.
  const std::string& refused() const { return refused_; }

 private:
  struct PendingConnection {
    std::shared_ptr<Wire> wire;
    Clock::time_point since;
    std::array<std::uint8_t, kConnectRequestBytes> request = {};
    std::array<std::uint8_t, kClaimBytes> claim = {};
    std::size_t have = 0;  // bytes of `request` and `claim` received so far
    Secret nonce = {};
  };
  using PendingConnections = std::list<PendingConnection>;

  void accept(Wire& listener);
  void read_pending(PendingConnections::iterator pending);
  bool handle_pending(PendingConnection& pending);  // false: close the connection
  void remove(PendingConnections::iterator pending);

  asio::io_context& context_;
  const Job& job_;
  OnAccept on_accept_;
  std::vector<std::shared_ptr<Wire>> listeners_;
  PendingConnections pending_;  // oldest first
  bool full_ = false;           // the process had no free file descriptor for a new connection
  std::string refused_;
};

// Tries a rank's endpoints in order, kTries times in all, until one accepts this rank. The attempts are repeated
// because a damaged handshake looks like the handshake of an unknown process, on both sides.
class Connector {
 public:
  static constexpr int kTries = 3;
  // Called once; may destroy the Connector. With kCorrupt and a Wire, the other end is a rank, but its bytes must not
  // be used.
  using Done = std::function<void(Status, std::shared_ptr<Wire>)>;

  Connector(asio::io_context& context, const Job& job, const ConnectRequest& request,
            std::vector<Endpoint> at, Done done);
  ~Connector() { close(); }
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  void begin();
  void maintain(Clock::time_point now);

 private:
  void connect();
  void send_request();
  void read_reply();
  void next(Status why);
  void close();

  asio::io_context& context_;
  const Job& job_;
  ConnectRequest request_;
  std::vector<Endpoint> at_;  // from next_ on: not tried in this pass
  Done done_;
  std::size_t next_ = 0;
  int tries_ = 1;
  std::array<std::uint8_t, kConnectRequestBytes> request_bytes_ = {};
  std::array<std::uint8_t, kChallengeBytes + kWelcomeBytes> reply_ = {};
  std::size_t have_ = 0;
  Secret nonce_ = {};
  std::shared_ptr<Wire> wire_;
  Clock::time_point deadline_ = {};  // of this attempt
};

}  // namespace tithe::tcp
