// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where connections begin: the door takes those of others in, a call makes one. Both end in a wire whose other end
// has proved that it is a rank of this job.
//
// A stranger at the door makes this rank keep a knock's bytes for a few seconds, and nothing else of it is read than
// knock and claim. Places are few; where they run out, the visitor goes that has waited longest.
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
  int tos = 0;                                     // of data connections
  std::shared_ptr<const Papers> papers = nullptr;  // all connections are TLS
};

class Door {
 public:
  // Takes the connection over, or says false: this rank does not take such a one now.
  using Welcome = std::function<bool(const Knock&, const std::shared_ptr<Wire>&)>;

  Door(asio::io_context& context, const Job& job) : context_(context), job_(job) {}
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Listens at each of these; their ports are known afterwards.
  Status listen(std::vector<Endpoint>& at);
  void open(Welcome welcome);  // from now on visitors are taken in
  void tend(Clock::time_point now);
  bool busy() const { return !visitors_.empty() || full_; }
  std::size_t visitors() const { return visitors_.size(); }
  // Why the last visitor was refused by what it showed; empty: none was.
  const std::string& refused() const { return refused_; }

 private:
  struct Visitor {
    std::shared_ptr<Wire> wire;
    Clock::time_point since;
    std::array<std::uint8_t, kKnockBytes> knock = {};
    std::array<std::uint8_t, kClaimBytes> claim = {};
    std::size_t have = 0;  // bytes of the two
    Secret nonce = {};
  };
  using Visitors = std::list<Visitor>;

  void accept(Wire& listener);
  void hear(Visitors::iterator visitor);
  bool take(Visitor& visitor);  // false: it goes
  void remove(Visitors::iterator visitor);

  asio::io_context& context_;
  const Job& job_;
  Welcome welcome_;
  std::vector<std::shared_ptr<Wire>> listeners_;
  Visitors visitors_;  // in the order in which they came
  bool full_ = false;  // no descriptor was left for a visitor
  std::string refused_;
};

// One attempt at each of a rank's endpoints until one welcomes this rank; and again, kTries times in all: a greeting
// that was damaged on its way looks like a stranger's, to both sides.
class Call {
 public:
  static constexpr int kTries = 3;
  // Once; may destroy the call. A wire that comes with kCorrupt ends at a rank, of which nothing counts.
  using Done = std::function<void(Status, std::shared_ptr<Wire>)>;

  Call(asio::io_context& context, const Job& job, const Knock& knock, std::vector<Endpoint> at, Done done);
  ~Call() { hang_up(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  void begin();
  void tend(Clock::time_point now);

 private:
  void dial();
  void greet();
  void hear();
  void next(Status why);
  void hang_up();

  asio::io_context& context_;
  const Job& job_;
  Knock knock_;
  std::vector<Endpoint> at_;  // from next_ on: not yet tried
  Done done_;
  std::size_t next_ = 0;
  int tries_ = 1;
  std::array<std::uint8_t, kKnockBytes> said_ = {};
  std::array<std::uint8_t, kChallengeBytes + kWelcomeBytes> heard_ = {};
  std::size_t have_ = 0;
  Secret nonce_ = {};
  std::shared_ptr<Wire> wire_;
  Clock::time_point deadline_ = {};  // of this attempt
};

}  // namespace tithe::tcp
