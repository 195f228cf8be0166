// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tag matching over UCX: a message's tag is (channel, source rank).
//
// UCX says nothing of a message before it is whole, and over a slow link that takes minutes. So a long message
// travels in pieces: an announcement under the message's tag says how long it is and which number its first piece has
// among all pieces to this rank, and the pieces follow, each under a tag that is made of its number: UCX does not keep
// the order of what is posted from its callbacks. The receiver posts for them once it has the announcement, straight
// into the caller's buffer; where that is too small, or was withdrawn, it receives the pieces into nothing. A sender
// that withdraws a message in the middle ends it with an empty piece.
//
// How a peer's end is learnt:
//   killed     the connection breaks, or the process' descriptor says that it ended (on this machine: over
//              shared memory UCX would not know), or UCX's keep-alive (1 s) finds it gone: its operations
//              complete with kPeerLost
//   farewell   a closing transport says goodbye on every connection and waits until that was answered, so
//              that all it had sent has arrived; receives posted later still find those messages, then kPeerLost
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/secret.h"
#include "tithe/seam/transport.h"
#include "transport/peer_info.h"
#include "transport/ucx/watch.h"
#include "transport/ucx/worker.h"

namespace tithe::ucx {

class UcxTransport final : public Transport {
 public:
  UcxTransport(Rank rank, int world, std::unique_ptr<Worker> worker, const Secret& key);
  void learn(const PeerTable& all) {
    hosts_ = all.hosts;
    link_rate_ = all.link_rate;
    cores_ = all.cores;
  }
  ~UcxTransport() override;

  // Connects to all peers, whose addresses are given in rank order, and waits until each of them has
  // connected to this rank. kTimeout names the first that did not, kCancelled where `interrupted` said so.
  Status connect(const std::vector<ReceivedPeerInfo>& infos, std::chrono::milliseconds timeout,
                 const std::function<bool()>& interrupted);

  std::string_view kind() const override { return "ucx"; }
  Rank rank() const override { return rank_; }
  int world() const override { return static_cast<int>(peers_.size()); }
  Hosts hosts() const override { return hosts_; }
  std::uint64_t link_rate() const override { return link_rate_; }
  CoresHere cores() const override { return cores_; }
  ByteView key() const override { return key_; }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override;
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override;
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override;
  void wake() override { worker_->wake(); }
  std::vector<std::string> messages() override { return worker_->messages(); }
  void window(std::size_t bytes) override { window_ = bytes; }
  void cancel(OpId op) override;
  Status peer_status(Rank peer) const override;
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  std::uint64_t bytes_received(Rank peer) const override;

 private:
  using Clock = std::chrono::steady_clock;

  // The words that transports say to each other: a proof, and behind that of kFailed a text.
  enum class Word : std::uint32_t { kHello, kFarewell, kAnswer, kFailed };
  static constexpr int kWords = 3;  // that are nothing but a proof
  static constexpr std::size_t kMostLastWords = 300;

  struct Peer {
    UcxTransport* self = nullptr;
    Rank rank = 0;
    ucp_ep_h ep = nullptr;
    bool greeted = false;           // its kHello has come
    bool left = false;              // its kFarewell has come
    bool failed = false;            // its kFailed has come, in the place of that
    bool waits_for_answer = false;  // to its kFarewell
    bool answered = false;          // kAnswer, or its own kFarewell, has come
    bool broken = false;            // its connection failed
    bool closed = false;            // our endpoint is being closed ...
    bool closing = false;           // ... and UCX still works on it
    int words_in_flight = 0;
    bool same_host = false;
    bool shares_memory = false;  // it is on this machine, and UCX may use its memory
    std::uint32_t pieces = 0;    // of long messages to it: the next one's number
    std::uint64_t bytes_received = 0;
    std::array<Secret, kWords> says = {};   // the proofs of this rank's words to it ...
    std::array<Secret, kWords> shall = {};  // ... and of its own
    std::vector<std::uint8_t> why = {};     // this rank's kFailed, while it is said
    Status gone = {};                       // not ok: why nothing more can be exchanged
  };

  // An announcement goes before the pieces of a long message. Little-endian, like everything that travels.
  static constexpr std::size_t kAnnouncementBytes = 24;

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
    std::uint8_t* data = nullptr;  // the caller's bytes; only read where this sends
    std::size_t room = 0;          // for so many

    // A long message, once it is announced.
    bool in_pieces = false;
    bool busy = false;         // its pieces are being posted or cancelled just now: callbacks leave it alone
    bool drains = false;       // what comes is received into nothing
    bool stopped = false;      // nothing more comes or goes
    std::uint32_t number = 0;  // of the next piece
    std::vector<std::uint32_t> again = {};  // pieces that were withdrawn and come all the same
    std::size_t total = 0;                  // its bytes
    std::size_t next = 0;                   // where the next piece begins
    std::size_t piece = 0;                  // bytes of each but the last
    std::size_t left = 0;                   // pieces not yet posted
    std::size_t in_flight = 0;              // requests that UCX holds
    std::size_t in_use = 0;                 // of these, such as touch the caller's bytes
    Status trouble = {};                    // why it will not end well
    std::array<std::uint8_t, kAnnouncementBytes> announcement = {};
  };

  struct Piece {
    Op* op = nullptr;
    void* request = nullptr;
    std::size_t bytes = 0;  // what it must hold
    std::uint32_t number = 0;
    bool drains = false;
    bool ended = false;
  };

  std::size_t piece_bytes(const Peer& peer) const;  // of messages to it
  bool acknowledged(
      std::size_t bytes) const;  // a message or piece of so many ends when it has met its receive
  Op* take_op(Rank peer, OpId id, bool is_recv);
  void release(Op* op);
  void finish(Op* op, std::size_t bytes, ucs_status_t status);
  void answer(Op* op, std::size_t bytes, Status status);
  void withdraw(Op* op);
  Status why_not(const Op& op) const;  // of one that did not come to its end
  void cancel_requests(Op* op);

  void send_long(Peer& peer, Channel channel, Op* op);
  void announced(Op* op, const std::uint8_t* announcement);
  void feed(Op* op);  // posts pieces, as many as may be in flight, and ends the message after the last
  bool post_piece(Op* op);
  void piece_ended(Piece* piece, ucs_status_t status, std::size_t bytes);
  void end_long(Op* op);
  void end_early(Op* op);

  void say(Peer& peer, Word word);
  void listen();
  void hear(ucp_tag_t tag, std::size_t bytes);
  Status connect_all(const std::vector<ReceivedPeerInfo>& infos, std::chrono::milliseconds timeout,
                     const std::function<bool()>& interrupted);
  void hear_why(Peer& peer, ByteView said);
  Secret proof(Word word, Rank from, Rank to, ByteView text = {}) const;  // that a rank of this job says it
  void break_off(Peer& peer, const Status& why);
  void give_up_receives(Peer& peer);
  bool nap(std::chrono::nanoseconds most);  // true if woken
  void tend();                              // acts on what callbacks noted
  void tend(Peer& peer);
  void close_now();  // farewells, then all endpoints
  bool valid(Rank peer) const { return peer >= 0 && peer < world() && peer != rank_; }

  static void on_sent(void* request, ucs_status_t status, void* arg);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg);
  static void on_announced(void* request, ucs_status_t status, void* arg);
  static void on_piece_sent(void* request, ucs_status_t status, void* arg);
  static void on_piece_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                void* arg);
  static void on_said(void* request, ucs_status_t status, void* arg);
  static void on_heard(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg);
  static void on_closed(void* request, ucs_status_t status, void* arg);
  static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status);

  const unsigned forks_ = forks::count();
  Rank rank_;
  Secret key_;
  Hosts hosts_;
  CoresHere cores_;
  std::uint64_t link_rate_ = 0;
  std::unique_ptr<Worker> worker_;
  Watch watch_;
  std::vector<Peer> peers_;
  std::deque<Op> ops_;  // storage; addresses stay
  std::vector<Op*> free_;
  std::vector<Op*> active_;
  std::deque<Piece> pieces_;
  std::vector<Piece*> free_pieces_;
  std::vector<Completion> done_;  // from next_ on: not yet handed out
  std::size_t next_ = 0;
  bool listening_ = false;                                              // the receive for words stands
  void* word_ = nullptr;                                                // its request
  std::array<std::uint8_t, kSecretBytes + kMostLastWords> heard_ = {};  // what it received
  std::string last_words_;                                              // why this rank could not connect
  bool must_tend_ = false;
  bool is_over_ = false;  // nothing more is posted
  std::size_t withdrawn_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::size_t window_ = 0;  // of what goes to one peer; 0: kMostUnderWay of each message
};

}  // namespace tithe::ucx
