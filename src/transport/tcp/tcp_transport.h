// SPDX-License-Identifier: Apache-2.0
#pragma once
// A transport over plain TCP sockets. Two ranks have one control connection, made when they open, and data connections,
// made by the first long message: `streams` of them in each direction.
//
// A message of up to kWholeBytes travels on the control connection. A longer message sends its edge there and its body
// on the data connections (records.h). The sender holds a body back until the receiver grants it, which the receiver
// does when the receive is posted. So bytes on a data connection always have a destination, the caller's buffer, and no
// message blocks another one behind it. The grant of a receive that was posted early arrives before the send, so it
// costs no time. A piece of a body uses whichever data connection has room first.
//
// The memory for messages without a receive is bounded. For small messages and edges of long ones the bound is
// kMaxUnread per peer; a peer that exceeds it is reported. Bodies are sent for granted receives only. If such a
// receive was withdrawn in the meantime, the body is stored, so that the bytes behind it on that connection can be
// read; the bound is kMaxUnread plus the size of withdrawn receives.
//
// How the end of a peer is detected:
//   - killed: its kernel closes the connections. Its operations complete with kPeerLost.
//   - silent: its kernel acknowledges nothing for `silence`. Its operations complete with kTimeout. TCP keepalive
//     probes an idle connection every second. The kernel of a stopped process still answers, so the caller must detect
//     that case.
//   - damaged: bytes on the control connection, or on any connection with TLS, have a wrong checksum: kCorrupt. Later
//     bytes of that peer are discarded; small messages are still sent to it, so that it receives the reason.
//   - farewell: a closing transport sends a farewell on every control connection and waits for the answers. Data still
//     in flight is delivered.
#include <asio/executor_work_guard.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/fifo.h"
#include "tithe/connect.h"
#include "transport/peer_info.h"
#include "transport/spin_guard.h"
#include "transport/tcp/congestion.h"
#include "transport/tcp/endpoints.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/records.h"

namespace tithe::tcp {

inline constexpr std::size_t kMaxUnread = 64 * 1024 * 1024;

struct Options {
  int streams = 1;
  int tos = 0;          // IP type of service of data connections
  Networks trust = {};  // networks in which to listen in addition to the loopback
  std::shared_ptr<const Credentials> credentials = nullptr;  // for TLS; nullptr: connections are plain
  bool lossy_card = false;                                   // Transport::rounds_payloads()
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(Rank rank, int world, const Options& options, std::chrono::milliseconds silence);
  ~TcpTransport() override;

  void learn(const PeerTable& all) {
    hosts_ = all.hosts;
    link_rate_ = all.link_rate;
    cores_ = all.cores;
  }
  Status listen(std::vector<Endpoint>& at) { return listener_.listen(at); }
  // Makes the control connections: this rank connects to higher ranks and accepts lower ones. kTimeout names the first
  // missing rank; kCancelled if `interrupted` returned true.
  Status connect(const Secret& key, std::vector<std::vector<Endpoint>> ways,
                 std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);

  std::string_view kind() const override { return "tcp"; }
  Rank rank() const override { return job_.rank; }
  int world() const override { return job_.world; }
  Hosts hosts() const override { return hosts_; }
  std::uint64_t link_rate() const override { return link_rate_; }
  CoresHere cores() const override { return cores_; }
  ByteView key() const override { return job_.key; }
  bool rounds_payloads() const override { return options_.lossy_card; }
  Status send(Rank peer, Channel channel, ByteView bytes, OpId op) override;
  Status recv(Rank peer, Channel channel, Bytes into, OpId op) override;
  std::size_t poll(std::span<Completion> out, std::chrono::nanoseconds wait) override;
  void wake() override;
  std::vector<std::string> messages() override { return guard_.messages(); }
  void window(std::size_t bytes) override { window_ = bytes; }
  void cancel(OpId op) override;
  Status peer_status(Rank peer) const override;
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  std::uint64_t bytes_received(Rank peer) const override;

 private:
  struct Op {
    OpId id = 0;
    Rank peer = 0;
    Channel channel = 0;
    bool is_recv = false;
    std::uint8_t* data = nullptr;  // the caller's bytes; a send only reads them
    std::size_t size = 0;
    std::size_t place = 0;  // index in active_
    // Only for a long message to be sent:
    std::uint32_t number = 0;
    std::uint64_t sequence = 0;  // its index among the messages of its channel
    std::size_t body = 0;        // size of its body
    std::size_t assigned = 0;    // bytes of the body assigned to streams
    std::size_t written = 0;     // bytes of the body that the kernel has taken
  };

  // A long message whose edge has arrived.
  struct Incoming {
    std::uint32_t number = 0;
    std::uint64_t sequence = 0;
    std::size_t bytes = 0, body = 0;
    std::array<std::uint8_t, kMaxEdgeBytes> edge = {};
    std::size_t announced = 0;              // bytes of the body in pieces announced so far
    std::size_t arrived = 0;                // bytes of the body read so far
    bool matched = false;                   // a receive has taken it
    Op* op = nullptr;                       // that receive; nullptr: it was withdrawn
    bool drains = false;                    // its bytes are read and discarded
    bool ended = false;                     // no further piece follows
    std::vector<std::uint8_t> stored = {};  // the body, if pieces arrived before a receive took the message
  };

  // A message that no receive has taken.
  struct Waiting {
    std::vector<std::uint8_t> whole = {};
    Incoming* incoming = nullptr;  // for a long message
  };

  // Messages with one peer on one channel.
  struct Lane {
    Fifo<Op*> receives;
    Fifo<Waiting> waiting;
    std::uint64_t posted = 0;   // receives, without those cancelled before a message arrived
    std::uint64_t arrived = 0;  // messages
    std::uint64_t granted = 0;  // the last `posted` that was sent to the peer
    bool grant_queued = false;
    std::uint64_t sent = 0;         // messages
    std::uint64_t send_limit = 0;   // messages that the peer has granted
    Fifo<Op*> awaiting_grant = {};  // long messages that wait for a grant
  };

  // A data connection from this rank.
  struct Outflow {
    std::unique_ptr<Connector> connector;
    std::shared_ptr<Wire> wire;
    bool full = false;  // the socket accepts nothing now
    Congestion congestion = {};
    Congestion::LinkState link = {};
    Clock::time_point sampled_at = {};
    std::unique_ptr<asio::steady_timer> pause = {};
    bool pauses = false;               // the connection waits for `pause` because its link has enough bytes
    Op* op = nullptr;                  // the operation of the current piece; nullptr: it was cancelled
    const std::uint8_t* at = nullptr;  // unsent rest of the piece
    std::size_t left = 0;
    std::size_t uncounted = 0;            // bytes of op that the wire took and the kernel may not have yet
    std::vector<std::uint8_t> copy = {};  // the rest of a piece whose operation was cancelled
  };

  struct Piece {
    Incoming* incoming = nullptr;
    std::size_t offset = 0;  // in the message's body
    std::size_t left = 0;
  };
  // A data connection to this rank.
  struct Inflow {
    std::shared_ptr<Wire> wire;
    Fifo<Piece> pieces;
  };

  struct Peer {
    Rank rank = 0;
    std::vector<Endpoint> endpoints;
    std::unique_ptr<Connector> connector;
    std::shared_ptr<Wire> control;
    bool full = false;        // the control connection accepts nothing now
    bool reading = false;     // read_control() is running for this peer
    bool departed = false;    // its farewell has arrived
    bool failed = false;      // its farewell reports that it failed to connect
    bool answered = false;    // it has answered our farewell
    bool broken = false;      // nothing more can be exchanged
    bool distrusted = false;  // its bytes are discarded, since some were damaged
    bool ended = false;       // all its operations are complete
    std::uint64_t bytes_received = 0;
    std::size_t unread = 0;  // memory of messages that wait for a receive
    // Room for bodies that no receive takes; grows with each withdrawn receive.
    std::size_t unread_room = kMaxUnread;
    Status error = {};

    std::vector<std::uint8_t> out;  // control: from out_sent on, not written yet
    std::size_t out_sent = 0;
    std::uint64_t out_begin = 0;  // bytes sent before the first byte of `out`
    struct SendEnd {
      std::uint64_t end = 0;  // position in the sent bytes at which its operation ends
      Op* op = nullptr;       // nullptr: it was cancelled
    };
    std::deque<SendEnd> send_ends;
    std::vector<std::uint8_t> in;  // control: from in_read up to in_have, not parsed yet
    std::size_t in_read = 0, in_have = 0;
    RecordChecksum out_checksum = 0, in_checksum = 0;  // the last ones

    std::unordered_map<Channel, Lane> lanes;
    std::vector<Lane*> to_grant;  // lanes whose grant has not been sent
    std::vector<Channel> granted_channels;
    std::uint32_t numbers_out = 0, numbers_in = 0;
    std::map<std::uint32_t, Incoming> incoming;
    Fifo<Op*> ready;  // granted long messages with bytes that no stream has yet
    std::vector<Outflow> outflows;
    std::deque<Inflow> inflows;  // by stream
  };

  // tcp_transport.cc
  Op* new_op(Rank peer, Channel channel, OpId id, bool is_recv);
  void finish(Op* op, std::size_t bytes, Status status);
  bool welcome(const ConnectRequest& request, const std::shared_ptr<Wire>& wire);
  void attach_control(Peer& peer, std::shared_ptr<Wire> wire);
  void break_off(Peer& peer, const Status& why);
  void distrust(Peer& peer, const Status& why);
  void progress();
  void run_for(std::chrono::nanoseconds most);
  Status connect_all(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);
  void maintain();
  void end_operations(Peer& peer);
  void check_silence(Clock::time_point now);
  void close_now();
  bool valid(Rank peer) const { return peer >= 0 && peer < world() && peer != rank(); }
  Peer& at(Rank peer) { return peers_[static_cast<std::size_t>(peer)]; }

  // control.cc
  void send_record(Peer& peer, const Record& record, ByteView first = {}, ByteView second = {});
  void flush(Peer& peer);
  void read_control(Peer& peer);
  Status parse_records(Peer& peer);
  Status handle_record(Peer& peer, const Record& record, ByteView behind);
  void queue_grant(Peer& peer, Channel channel, Lane& lane);
  void send_grants(Peer& peer);
  void match(Peer& peer, Channel channel, Lane& lane);
  static Status too_small(const Op& op, std::size_t bytes);
  Status count_unread(Peer& peer, std::size_t bytes);
  void deliver(Peer& peer, Op* op, ByteView bytes);
  void on_farewell(Peer& peer, ByteView why);

  // streams.cc
  void open_streams(Peer& peer);
  void pump(Peer& peer);
  bool push(Peer& peer, Outflow& flow);
  bool count(Outflow& flow);
  std::size_t room(Outflow& flow);
  bool is_idle() const;
  void pause(Peer& peer, Outflow& flow);
  void assign_piece(Peer& peer, Outflow& flow);
  void drop_send(Peer& peer, Op* op);  // for a send that is cancelled
  Inflow& inflow(Peer& peer, int stream);
  void pull(Peer& peer, Inflow& flow);
  // Stores a body that no receive takes; false: the peer exceeded its bound.
  bool store_body(Peer& peer, Incoming& incoming);
  // Continues the streams that waited for a receive.
  void resume(Peer& peer);
  void complete_if_done(Peer& peer, Incoming& incoming);

  const unsigned forks_ = forks::count();
  Job job_;
  Hosts hosts_;
  CoresHere cores_;
  std::uint64_t link_rate_ = 0;
  const Options options_;
  const std::chrono::milliseconds silence_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  Listener listener_;
  std::vector<Peer> peers_;
  std::deque<Op> ops_;  // storage; addresses are stable
  std::vector<Op*> free_;
  std::vector<Op*> active_;
  Fifo<Completion> done_;
  std::vector<std::uint8_t> discard_buffer_;  // destination of discarded bytes
  std::atomic<bool> woken_{false};
  bool maintenance_due_ = false;
  SpinGuard guard_;
  std::string connect_error_;                  // why this rank failed to connect
  Clock::time_point silence_checked_at_ = {};  // time of the last check for silence
  std::uint64_t bytes_sent_ = 0;
  std::size_t window_ = 0;  // limit on bytes in flight to one peer; 0: only Congestion limits them
};

}  // namespace tithe::tcp
