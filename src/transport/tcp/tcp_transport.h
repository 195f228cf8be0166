// SPDX-License-Identifier: Apache-2.0
#pragma once
// TCP without a library in between. Between two ranks stand a control connection, made when they open, and data
// connections, made by the first long message: `streams` of them for each direction.
//
// A message of up to kWholeBytes travels on the control connection. So does a longer one but for its body (records.h).
// The body does not travel before its receive is posted, which the receiver grants: so bytes on a data connection
// always have a place to go, straight into the caller's buffer, and no message waits behind one that nobody receives. A
// grant of a receive that was posted early is there before the message is sent, and costs it nothing. A piece of a body
// goes to whichever data connection takes it first.
//
// Messages that nobody receives are bounded: small ones and edges of long ones by kMostUnread for each peer, and who
// sends more is named. Bodies come for granted receives alone. Where one of these was withdrawn meanwhile, its
// message's body is kept aside, so that what is behind it on that connection goes on; these are bounded too, by as much
// and by what was withdrawn.
//
// How a peer's end is learnt:
//   killed     its kernel closes the connections: its operations complete with kPeerLost
//   silent     its kernel acknowledges nothing for as long as `silence`: kTimeout. The kernels ask each other every
//              second where nothing travels. A process that stands still has a kernel that answers: that is for those
//              above to judge
//   damaged    bytes on the control connection, or on any with TLS, are not those that it sent: kCorrupt. Nothing more
//              of it counts; small messages to it still go, so that it learns why
//   farewell   a closing transport says goodbye on every control connection and waits until that was answered; data
//              that is still on its way arrives all the same
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

inline constexpr std::size_t kMostUnread = 64 * 1024 * 1024;

struct Options {
  int streams = 1;
  int tos = 0;                                               // of data connections
  Networks trust = {};                                       // where to listen beside the loopback
  std::shared_ptr<const Credentials> credentials = nullptr;  // of TLS; nullptr: connections are plain
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
  // Makes the control connections: to higher ranks this one calls, lower ones call here. kTimeout names the first
  // that is missing, kCancelled where `interrupted` said so.
  Status connect(const Secret& key, std::vector<std::vector<Endpoint>> ways,
                 std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);

  std::string_view kind() const override { return "tcp"; }
  Rank rank() const override { return job_.rank; }
  int world() const override { return job_.world; }
  Hosts hosts() const override { return hosts_; }
  std::uint64_t link_rate() const override { return link_rate_; }
  CoresHere cores() const override { return cores_; }
  ByteView key() const override { return job_.key; }
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
    std::uint8_t* data = nullptr;  // the caller's bytes; only read where this sends
    std::size_t size = 0;
    std::size_t place = 0;  // in active_
    // A long message to be sent:
    std::uint32_t number = 0;
    std::uint64_t turn = 0;   // among the messages of its channel
    std::size_t body = 0;     // bytes of its body, of these
    std::size_t given = 0;    // that were put on streams
    std::size_t written = 0;  // that the kernel has
  };

  // A long message whose edge has come.
  struct Incoming {
    std::uint32_t number = 0;
    std::uint64_t turn = 0;
    std::size_t bytes = 0, body = 0;
    std::array<std::uint8_t, kMostEdgeBytes> edge = {};
    std::size_t given = 0;                // of the body: announced pieces
    std::size_t arrived = 0;              // of these
    bool matched = false;                 // a receive took it ...
    Op* op = nullptr;                     // ... this one; nullptr: it was withdrawn
    bool drains = false;                  // what comes is read into nothing
    bool ended = false;                   // no further piece comes
    std::vector<std::uint8_t> kept = {};  // the body, where no receive has taken it yet and pieces came
  };

  struct Waiting {  // a message that no receive has taken
    std::vector<std::uint8_t> whole = {};
    Incoming* incoming = nullptr;  // a long one
  };

  // Messages with one peer on one channel.
  struct Lane {
    Fifo<Op*> receives;
    Fifo<Waiting> waiting;
    std::uint64_t posted = 0;   // receives, less those that were cancelled before a message came
    std::uint64_t arrived = 0;  // messages
    std::uint64_t granted = 0;  // what the peer was told of `posted`
    bool owes_grant = false;
    std::uint64_t sent = 0;  // messages
    std::uint64_t may = 0;   // what the peer granted
    Fifo<Op*> held = {};     // long messages whose turn it is not
  };

  struct Outflow {  // a data connection from here
    std::unique_ptr<Connector> call;
    std::shared_ptr<Wire> wire;
    bool full = false;  // it takes nothing just now
    Congestion congestion = {};
    Congestion::Look look = {};
    Clock::time_point looked = {};
    std::unique_ptr<asio::steady_timer> pause = {};
    bool pauses = false;               // its link has enough until then
    Op* op = nullptr;                  // of the piece under way; nullptr: it was cancelled
    const std::uint8_t* at = nullptr;  // what is left of it
    std::size_t left = 0;
    std::size_t uncounted = 0;            // bytes of op that the wire took and the kernel may not have yet
    std::vector<std::uint8_t> copy = {};  // of a piece whose operation was cancelled
  };

  struct Piece {
    Incoming* incoming = nullptr;
    std::size_t offset = 0;  // in its body
    std::size_t left = 0;
  };
  struct Inflow {  // a data connection to here
    std::shared_ptr<Wire> wire;
    Fifo<Piece> pieces;
  };

  struct Peer {
    Rank rank = 0;
    std::vector<Endpoint> ways;
    std::unique_ptr<Connector> call;
    std::shared_ptr<Wire> control;
    bool full = false;        // the control connection takes nothing just now
    bool hears = false;       // what it said is being taken in
    bool left = false;        // its farewell has come
    bool failed = false;      // and said that it could not connect
    bool answered = false;    // it has heard ours
    bool broken = false;      // nothing more can be exchanged
    bool distrusted = false;  // what comes from it is read and forgotten
    bool ended = false;       // and everybody who waited knows
    std::uint64_t bytes_received = 0;
    std::size_t unread = 0;  // memory of messages that wait for a receive
    std::size_t unread_room =
        kMostUnread;  // room for bodies that no receive takes; more with each one withdrawn
    Status gone = {};

    std::vector<std::uint8_t> out;  // control: from out_sent on, not written yet
    std::size_t out_sent = 0;
    std::uint64_t out_begin = 0;  // bytes that went before out
    struct Mark {
      std::uint64_t end = 0;  // where in all that is sent its operation ends
      Op* op = nullptr;       // nullptr: it was cancelled
    };
    std::deque<Mark> marks;
    std::vector<std::uint8_t> in;  // control: from in_read up to in_have, not understood yet
    std::size_t in_read = 0, in_have = 0;
    Check out_check = 0, in_check = 0;  // the last ones

    std::unordered_map<Channel, Lane> lanes;
    std::vector<Lane*> to_grant;  // lanes whose grant is not sent
    std::vector<Channel> owed_channels;
    std::uint32_t numbers_out = 0, numbers_in = 0;
    std::map<std::uint32_t, Incoming> incoming;
    Fifo<Op*> ready;  // long messages that may go, of which something is not on a stream yet
    std::vector<Outflow> outflows;
    std::deque<Inflow> inflows;  // by stream
  };

  // tcp_transport.cc
  Op* take_op(Rank peer, Channel channel, OpId id, bool is_recv);
  void finish(Op* op, std::size_t bytes, Status status);
  bool welcome(const ConnectRequest& request, const std::shared_ptr<Wire>& wire);
  void attach_control(Peer& peer, std::shared_ptr<Wire> wire);
  void break_off(Peer& peer, const Status& why);
  void distrust(Peer& peer, const Status& why);
  void progress();
  void run_for(std::chrono::nanoseconds most);
  Status connect_all(std::chrono::milliseconds timeout, const std::function<bool()>& interrupted);
  void tend();
  void end_operations(Peer& peer);
  void listen_for_silence(Clock::time_point now);
  void close_now();
  bool valid(Rank peer) const { return peer >= 0 && peer < world() && peer != rank(); }
  Peer& at(Rank peer) { return peers_[static_cast<std::size_t>(peer)]; }

  // control.cc
  void say(Peer& peer, const Record& record, ByteView first = {}, ByteView second = {});
  void flush(Peer& peer);
  void hear(Peer& peer);
  Status understand(Peer& peer);
  Status take(Peer& peer, const Record& record, ByteView behind);
  void owe_grant(Peer& peer, Channel channel, Lane& lane);
  void say_grants(Peer& peer);
  void match(Peer& peer, Channel channel, Lane& lane);
  static Status too_small(const Op& op, std::size_t bytes);
  Status count_unread(Peer& peer, std::size_t bytes);
  void take_whole(Peer& peer, Op* op, ByteView bytes);
  void farewell_heard(Peer& peer, ByteView why);

  // streams.cc
  void open_streams(Peer& peer);
  void pump(Peer& peer);
  bool push(Peer& peer, Outflow& flow);
  bool count(Outflow& flow);
  std::size_t room(Outflow& flow);
  bool is_idle() const;
  void pause(Peer& peer, Outflow& flow);
  void give_piece(Peer& peer, Outflow& flow);
  void forget(Peer& peer, Op* op);  // of a send that is cancelled
  Inflow& inflow(Peer& peer, int stream);
  void pull(Peer& peer, Inflow& flow);
  bool keep(Peer& peer, Incoming& incoming);  // what no receive takes; false: it may not come
  void resume(Peer& peer);                    // streams that waited for a receive
  void conclude(Peer& peer, Incoming& incoming);

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
  std::deque<Op> ops_;  // storage; addresses stay
  std::vector<Op*> free_;
  std::vector<Op*> active_;
  Fifo<Completion> done_;
  std::vector<std::uint8_t> nowhere_;  // for bytes that nobody wants
  std::atomic<bool> woken_{false};
  bool must_tend_ = false;
  SpinGuard guard_;
  std::string last_words_;         // why this rank could not connect
  Clock::time_point looked_ = {};  // for silence
  std::uint64_t bytes_sent_ = 0;
  std::size_t window_ = 0;  // of bytes in flight to one peer; 0: as Congestion says
};

}  // namespace tithe::tcp
