// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tag matching over UCX: a message's tag is (channel, source rank). How a peer's end is learnt:
//   killed     the connection breaks, or the process' descriptor says that it ended (on this machine: over
//              shared memory UCX would not know), or UCX's keep-alive (1 s) finds it gone: its operations
//              complete with kPeerLost
//   farewell   a closing transport says goodbye on every connection and waits until that was answered, so
//              that all it had sent has arrived; receives posted later still find those messages, then kPeerLost
#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "tithe/transport.h"
#include "transport/ucx/hello.h"
#include "transport/ucx/watch.h"
#include "transport/ucx/worker.h"

namespace tithe::ucx {

class UcxTransport final : public Transport {
 public:
  UcxTransport(Rank rank, int world, std::unique_ptr<Worker> worker);
  ~UcxTransport() override;

  // Connects to all peers, whose addresses are given in rank order, and waits until each of them has
  // connected to this rank. kTimeout names the first that did not.
  Status connect(const std::vector<HeardHello>& hellos, std::chrono::seconds timeout);

  std::string_view kind() const override { return "ucx"; }
  Rank rank() const override { return rank_; }
  int world() const override { return static_cast<int>(peers_.size()); }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override;
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override;
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override;
  void wake() override { worker_->wake(); }
  void cancel(OpId op) override;
  Status peer_status(Rank peer) const override;
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  std::uint64_t bytes_received(Rank peer) const override {
    return valid(peer) ? peers_[static_cast<std::size_t>(peer)].received : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;

  enum class Word : std::uint32_t { kHello, kFarewell, kAnswer };  // what transports say to each other

  struct Peer {
    UcxTransport* self = nullptr;
    Rank rank = 0;
    ucp_ep_h ep = nullptr;
    bool greeted = false;           // its kHello has come
    bool left = false;              // its kFarewell has come
    bool waits_for_answer = false;  // to its kFarewell
    bool answered = false;          // kAnswer, or its own kFarewell, has come
    bool broken = false;            // its connection failed
    bool closed = false;            // our endpoint is being closed ...
    bool closing = false;           // ... and UCX still works on it
    int words_in_flight = 0;
    std::uint64_t received = 0;  // bytes of finished messages
    Status gone = {};            // not ok: why nothing more can be exchanged
  };

  struct Op {
    UcxTransport* self = nullptr;
    OpId id = 0;
    Rank peer = 0;
    bool is_recv = false;
    bool withdrawn = false;  // cancel() was called
    bool answered = false;   // its completion was stored; UCX may still hold the request
    bool ended = false;      // UCX is done with it
    void* request = nullptr;
    std::size_t place = 0;  // in active_
    Clock::time_point let_go = {};
  };

  Op* take_op(Rank peer, OpId id, bool is_recv);
  void release(Op* op);
  void finish(Op* op, std::size_t bytes, ucs_status_t status);
  void answer(Op* op, std::size_t bytes, Status status);
  void withdraw(Op* op);

  void say(Peer& peer, Word word);
  void listen();
  void hear(ucp_tag_t tag);
  void break_off(Peer& peer, std::string why);
  void give_up_receives(Peer& peer);
  bool nap(std::chrono::nanoseconds most);  // true if woken
  void tend();                              // acts on what callbacks noted
  void tend(Peer& peer);
  void close_now();  // farewells, then all endpoints
  bool valid(Rank peer) const { return peer >= 0 && peer < world() && peer != rank_; }

  static void on_sent(void* request, ucs_status_t status, void* arg);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg);
  static void on_said(void* request, ucs_status_t status, void* arg);
  static void on_heard(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg);
  static void on_closed(void* request, ucs_status_t status, void* arg);
  static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status);

  Rank rank_;
  std::unique_ptr<Worker> worker_;
  Watch watch_;
  std::vector<Peer> peers_;
  std::deque<Op> ops_;  // storage; addresses stay
  std::vector<Op*> free_;
  std::vector<Op*> active_;
  std::vector<Completion> done_;  // from next_ on: not yet handed out
  std::size_t next_ = 0;
  bool listening_ = false;  // the receive for words stands
  void* word_ = nullptr;    // its request
  bool must_tend_ = false;
  std::size_t withdrawn_ = 0;
  std::uint64_t bytes_sent_ = 0;
};

}  // namespace tithe::ucx
