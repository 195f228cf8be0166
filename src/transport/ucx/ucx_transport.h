// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport over UCX with tag matching: a message's tag is (channel, source rank).
//
// UCX reports nothing about a message before it is complete, which takes minutes over a slow link. So a long message
// travels in pieces. An announcement under the message's tag has its length and the number of its first piece; pieces
// to one rank are numbered consecutively. Each piece has a tag of its own, because UCX does not keep the order of
// operations posted from its callbacks. Once the receiver has the announcement, it posts receives for the pieces,
// straight into the caller's buffer; if the buffer is too small or was withdrawn, it receives the pieces without a
// buffer. A sender that withdraws a message between two pieces ends it with an empty piece.
//
// How the end of a peer is detected:
//   - killed: the connection breaks; or the peer's pidfd reports the end of the process, which UCX would miss over
//     shared memory on the same machine; or UCX's keep-alive (1 s) fails. Its operations complete with kPeerLost.
//   - farewell: a closing transport sends a farewell on every connection and waits for the answers, so that all its
//     messages have arrived. Receives posted later still match those messages, and after them complete with kPeerLost.
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "base/secret.h"
#include "tithe/seam/transport.h"
#include "transport/peer_info.h"
#include "transport/ucx/process_monitor.h"
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

  // Connects to all peers, whose addresses are in rank order, and waits until each of them has connected to this rank.
  // kTimeout names the first missing peer, and `timeout`, from which `deadline` follows; kCancelled if `interrupted`
  // returned true.
  Status connect(const std::vector<ReceivedPeerInfo>& infos, std::chrono::steady_clock::time_point deadline,
                 std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);

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

  // Messages between transports: a proof; kFailed adds a text after its proof.
  enum class ControlMessage : std::uint32_t { kHello, kFarewell, kAnswer, kFailed };
  static constexpr int kProofMessages = 3;  // the messages that consist of a proof only
  static constexpr std::size_t kMaxErrorText = 300;

  struct Peer {
    UcxTransport* self = nullptr;
    Rank rank = 0;
    ucp_ep_h ep = nullptr;
    bool greeted = false;         // its kHello has arrived
    bool left = false;            // its kFarewell has arrived
    bool failed = false;          // its kFailed has arrived instead of kFarewell
    bool answer_pending = false;  // its kFarewell has not been answered yet
    bool answered = false;        // its kAnswer, or its own kFarewell, has arrived
    bool broken = false;          // its connection failed
    bool closed = false;          // our endpoint is closed or being closed
    bool closing = false;         // UCX is still closing it
    int control_in_flight = 0;
    bool same_host = false;
    bool shares_memory = false;  // it is on this machine, and UCX may use its memory
    std::uint32_t pieces = 0;    // the number of the next piece to it
    std::uint64_t bytes_received = 0;
    std::array<Secret, kProofMessages> own_proofs = {};       // the proofs of this rank's messages to it
    std::array<Secret, kProofMessages> expected_proofs = {};  // the expected proofs of its messages
    std::vector<std::uint8_t> failure_text = {};              // the kFailed message, while it is being sent
    Status error = {};  // not ok: the reason why nothing more can be exchanged
  };

  // The announcement precedes the pieces of a long message. Little-endian, like all messages.
  static constexpr std::size_t kAnnouncementBytes = 24;

  struct Op {
    UcxTransport* self = nullptr;
    OpId id = 0;
    Rank peer = 0;
    bool is_recv = false;
    bool withdrawn = false;  // cancel() was called
    bool completed = false;  // its completion was stored; UCX may still use the request
    bool ended = false;      // UCX no longer uses the request
    void* request = nullptr;
    std::size_t place = 0;  // index in active_
    Clock::time_point cancel_deadline = {};
    std::uint8_t* data = nullptr;  // the caller's bytes; a send only reads them
    std::size_t room = 0;          // size of data

    // A long message, after its announcement.
    bool in_pieces = false;
    // post_pieces() or cancel_requests() is running: nested calls of post_pieces() return at once.
    bool busy = false;
    bool drains = false;                    // pieces are received without a buffer
    bool stopped = false;                   // no further piece is posted
    std::uint32_t number = 0;               // of the next piece
    std::vector<std::uint32_t> again = {};  // pieces whose cancelled receive must be posted again
    std::size_t total = 0;                  // size of the message
    std::size_t next = 0;                   // offset of the next piece
    std::size_t piece = 0;                  // size of every piece except the last
    std::size_t left = 0;                   // pieces not yet posted
    std::size_t in_flight = 0;              // requests that UCX holds
    std::size_t in_use = 0;                 // of these, requests on the caller's bytes
    Status error = {};                      // why it cannot succeed
    std::array<std::uint8_t, kAnnouncementBytes> announcement = {};
  };

  struct Piece {
    Op* op = nullptr;
    void* request = nullptr;
    std::size_t bytes = 0;  // expected size
    std::uint32_t number = 0;
    bool drains = false;
    bool ended = false;
  };

  // The size of the pieces of messages to this peer.
  std::size_t piece_bytes(const Peer& peer) const;
  bool acknowledged(std::size_t bytes) const;  // whether a send of this size must be acknowledged
  Op* new_op(Rank peer, OpId id, bool is_recv);
  void release(Op* op);
  void finish(Op* op, std::size_t bytes, ucs_status_t status);
  void complete(Op* op, std::size_t bytes, Status status);
  void withdraw(Op* op);
  Status failure_of(const Op& op) const;  // the error of an operation that did not succeed
  void cancel_requests(Op* op);

  void send_long(Peer& peer, Channel channel, Op* op);
  void on_announcement(Op* op, const std::uint8_t* announcement);
  void post_pieces(Op* op);  // posts pieces up to the window; ends the message after the last one
  bool post_piece(Op* op);
  void piece_ended(Piece* piece, ucs_status_t status, std::size_t bytes);
  void end_long(Op* op);
  void end_early(Op* op);

  void send_control(Peer& peer, ControlMessage word);
  void post_control_receive();
  void handle_control(ucp_tag_t tag, std::size_t bytes);
  Status connect_all(const std::vector<ReceivedPeerInfo>& infos, Clock::time_point deadline,
                     std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);
  void handle_failure(Peer& peer, ByteView message);
  // Proves the sender's rank.
  Secret proof(ControlMessage word, Rank from, Rank to, ByteView text = {}) const;
  void break_off(Peer& peer, const Status& why);
  void cancel_receives(Peer& peer);
  bool wait_for_event(std::chrono::nanoseconds most);  // true if woken
  void maintain();                                     // acts on the flags that callbacks set
  void maintain(Peer& peer);
  void close_now();  // sends farewells, then closes all endpoints
  bool valid(Rank peer) const { return peer >= 0 && peer < world() && peer != rank_; }

  static void on_sent(void* request, ucs_status_t status, void* arg);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg);
  static void on_announced(void* request, ucs_status_t status, void* arg);
  static void on_piece_sent(void* request, ucs_status_t status, void* arg);
  static void on_piece_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                void* arg);
  static void on_control_sent(void* request, ucs_status_t status, void* arg);
  static void on_control_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                  void* arg);
  static void on_closed(void* request, ucs_status_t status, void* arg);
  static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status);

  const unsigned forks_ = forks::count();
  Rank rank_;
  Secret key_;
  Hosts hosts_;
  CoresHere cores_;
  std::uint64_t link_rate_ = 0;
  std::unique_ptr<Worker> worker_;
  ProcessMonitor process_monitor_;
  std::vector<Peer> peers_;
  std::deque<Op> ops_;  // storage; addresses are stable
  std::vector<Op*> free_;
  std::vector<Op*> active_;
  std::deque<Piece> pieces_;
  std::vector<Piece*> free_pieces_;
  std::vector<Completion> done_;  // from next_ on: not returned yet
  std::size_t next_ = 0;
  bool listening_ = false;           // the receive for control messages is posted
  void* control_request_ = nullptr;  // its request
  std::array<std::uint8_t, kSecretBytes + kMaxErrorText> control_buffer_ = {};  // its buffer
  std::string connect_error_;  // why this rank failed to connect
  bool maintenance_due_ = false;
  bool closed_ = false;  // no further operation is posted
  std::size_t withdrawn_ = 0;
  std::uint64_t bytes_sent_ = 0;
  std::size_t window_ = 0;  // limit on bytes in flight to one peer; 0: kMaxUnderWay per message
};

}  // namespace tithe::ucx
