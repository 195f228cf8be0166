// SPDX-License-Identifier: Apache-2.0
// Data connections: they carry the bodies of long messages and nothing else.
#include <fmt/format.h>

#include <algorithm>

#include "transport/tcp/tcp_transport.h"

namespace tithe::tcp {
namespace {

// Large enough that the overhead of a piece is small, and small enough that several connections share a message.
constexpr int kPieceBytes = 256 * 1024;
// pull() reads at most this many bytes from one connection before the event loop serves the others.
constexpr std::size_t kReadQuota = 4 * 1024 * 1024;
constexpr std::size_t kDiscardBytes = 64 * 1024;
// The kernel's statistics of a connection are read at most this often, because reading them locks the connection.
constexpr std::chrono::milliseconds kSampleInterval{10};

}  // namespace

void TcpTransport::open_streams(Peer& p) {
  if (!p.outflows.empty() || p.broken) return;
  p.outflows.resize(static_cast<std::size_t>(options_.streams));
  for (int k = 0; k < options_.streams && !p.broken; ++k) {
    Outflow& flow = p.outflows[static_cast<std::size_t>(k)];
    flow.connector = std::make_unique<Connector>(
        context_, job_, ConnectRequest{.purpose = Purpose::kData, .stream = k, .from = rank(), .to = p.rank},
        p.endpoints, [this, &p, &flow](const Status& s, std::shared_ptr<Wire> wire) {
          if (!s.ok()) return distrust(p, {s.code(), fmt::format("no data connection: {}", s.what())});
          keep_alive(wire->socket(), silence_);
          flow.wire = std::move(wire);
          flow.wire->on_writable = [this, &p, &flow] {
            flow.full = false;
            pump(p);
          };
          flow.pause = std::make_unique<asio::steady_timer>(context_);
          if (options_.streams > 1) limit_send_buffer(flow.wire->socket(), kPieceBytes);
          flow.connector.reset();
          pump(p);
        });
    flow.connector->begin();
  }
}

// Offers pieces to the connections in turn until none of them accepts more.
void TcpTransport::pump(Peer& p) {
  for (bool any = true; any && !p.broken;) {
    any = false;
    for (Outflow& flow : p.outflows) any = push(p, flow) || any;
  }
}

// True if another push() may write more.
bool TcpTransport::push(Peer& p, Outflow& flow) {
  if (!flow.wire || flow.full || p.broken || flow.pauses || !count(flow)) return false;
  if (flow.left == 0 && p.ready.empty()) return false;
  const std::size_t free = room(flow);
  if (free >= kBodyUnit && flow.left == 0) assign_piece(p, flow);
  const std::size_t most = write_bytes(flow.left, free);
  if (most == 0) {
    pause(p, flow);
    return false;
  }
  const std::ptrdiff_t n = flow.wire->write({flow.at, most});
  if (n < 0) {
    flow.full = true;
    read_control(p);  // reads records that came before the connection closed, such as a farewell
    if (p.error.ok()) break_off(p, flow.wire->error());
    return false;
  }
  const auto written = static_cast<std::size_t>(n);
  flow.congestion.wrote(written);
  flow.at += written;
  flow.left -= written;
  flow.uncounted += written;
  if (!count(flow)) return false;
  if (written == most) return true;
  flow.full = true;
  flow.wire->await_writable();
  return false;
}

// A send is complete when the kernel has taken all of its body: from then on the bytes arrive even if no thread polls
// this transport. Returns false while TLS records wait to be written.
bool TcpTransport::count(Outflow& flow) {
  if (flow.wire->unsent() > 0) {
    flow.full = true;
    flow.wire->await_writable();
    return false;
  }
  const std::size_t written = std::exchange(flow.uncounted, 0);
  if (flow.op == nullptr || written == 0) return true;
  Op* const op = flow.left > 0 ? flow.op : std::exchange(flow.op, nullptr);
  op->written += written;
  if (op->written == op->body) finish(op, 0, {});
  return true;
}

// Bytes that the connection may write now. The connections have equal shares of the window, but each at least kAlways,
// so that a write is more than a packet.
std::size_t TcpTransport::room(Outflow& flow) {
  const auto now = Clock::now();
  if (now - flow.sampled_at > kSampleInterval) {
    flow.link = read_link_state(flow.wire->socket());
    flow.sampled_at = now;
  }
  flow.link.bytes_in_flight = bytes_in_flight(flow.wire->socket());
  flow.link.idle = flow.congestion.limited_by_losses() && is_idle();
  const auto streams = static_cast<std::size_t>(options_.streams);
  return flow.congestion.room(now, flow.link,
                              window_ == 0 ? SIZE_MAX : std::max(Congestion::kAlways, window_ / streams));
}

// True if no byte is in flight to any peer.
bool TcpTransport::is_idle() const {
  for (const Peer& p : peers_)
    for (const Outflow& flow : p.outflows)
      if (flow.wire && bytes_in_flight(flow.wire->socket()) > 0) return false;
  return true;
}

void TcpTransport::pause(Peer& p, Outflow& flow) {
  flow.pauses = true;
  flow.pause->expires_after(flow.congestion.wait());
  flow.pause->async_wait([this, &p, &flow, wire = flow.wire](const asio::error_code& error) {
    if (error || !wire->open()) return;  // the stream may be gone
    flow.pauses = false;
    pump(p);
  });
}

// Announces the next piece of the first ready message, and assigns the piece to this connection.
void TcpTransport::assign_piece(Peer& p, Outflow& flow) {
  Op* op = p.ready.front();
  flow.op = op;
  flow.at = op->data + kFrameHeaderBytes + op->assigned;
  flow.left = std::min<std::size_t>(kPieceBytes, op->body - op->assigned);
  op->assigned += flow.left;
  if (op->assigned == op->body) p.ready.pop();
  send_record(p, {.kind = Kind::kPiece,
                  .stream = static_cast<int>(&flow - p.outflows.data()),
                  .about = op->number,
                  .n = flow.left});
  flush(p);  // before the piece itself: the receiver reads no bytes before it has the record
}

// Removes a cancelled send. A piece that was announced must still be sent, so its bytes are copied.
void TcpTransport::drop_send(Peer& p, Op* op) {
  for (Peer::SendEnd& send_end : p.send_ends)
    if (send_end.op == op) {
      send_end.op = nullptr;
      return;
    }
  const auto drop = [op](Fifo<Op*>& list) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (list[i] == op) return list.erase(i);
  };
  drop(p.ready);
  drop(p.lanes[op->channel].awaiting_grant);
  for (Outflow& flow : p.outflows) {
    if (flow.op != op) continue;
    flow.copy.assign(flow.at, flow.at + flow.left);  // the piece was announced
    flow.at = flow.copy.data();
    flow.op = nullptr;
  }
  send_record(p, {.kind = Kind::kEnd, .about = op->number});
  flush(p);
}

TcpTransport::Inflow& TcpTransport::inflow(Peer& p, int stream) {
  while (p.inflows.size() <= static_cast<std::size_t>(stream)) p.inflows.emplace_back();
  return p.inflows[static_cast<std::size_t>(stream)];
}

// Reads the announced pieces of a data connection into the receive's buffer. If the message has no receive yet, its
// body is stored; if the receive is too small or withdrawn, the bytes are discarded.
void TcpTransport::pull(Peer& p, Inflow& flow) {
  std::size_t taken = 0;
  while (flow.wire && !p.broken && !p.distrusted && !flow.pieces.empty()) {
    if (taken >= kReadQuota) return flow.wire->await_readable();
    Piece& piece = flow.pieces.front();
    Incoming& incoming = *piece.incoming;
    if (!incoming.matched && !store_body(p, incoming)) return;
    Bytes into;
    if (!incoming.matched) {
      into = Bytes(incoming.stored).subspan(piece.offset, piece.left);
    } else if (!incoming.drains) {
      into = Bytes(incoming.op->data + kFrameHeaderBytes + piece.offset, piece.left);
    } else {
      discard_buffer_.resize(kDiscardBytes);
      into = Bytes(discard_buffer_).first(std::min(piece.left, kDiscardBytes));
    }
    const std::ptrdiff_t n = flow.wire->read(into);
    if (n == 0) return flow.wire->await_readable();
    if (n < 0) return distrust(p, flow.wire->error());
    const auto read = static_cast<std::size_t>(n);
    taken += read;
    piece.offset += read;
    piece.left -= read;
    incoming.arrived += read;
    if (incoming.matched && !incoming.drains) p.bytes_received += read;
    if (piece.left > 0) continue;
    flow.pieces.pop();
    complete_if_done(p, incoming);
  }
}

// Allocates memory for a body whose receive was granted and then withdrawn before the message arrived.
bool TcpTransport::store_body(Peer& p, Incoming& incoming) {
  if (!incoming.stored.empty()) return true;
  if (incoming.body > p.unread_room) {
    distrust(p, {Code::kCorrupt, "it sent long messages that this rank had not granted"});
    return false;
  }
  p.unread_room -= incoming.body;
  incoming.stored.resize(incoming.body);
  return true;
}

void TcpTransport::resume(Peer& p) {
  for (Inflow& flow : p.inflows) pull(p, flow);
}

// Completes the message if it is whole, or if no further piece of it follows.
void TcpTransport::complete_if_done(Peer& p, Incoming& incoming) {
  const bool whole = incoming.arrived == incoming.body;
  if (!incoming.matched || (!whole && (!incoming.ended || incoming.arrived < incoming.announced))) return;
  if (Op* op = incoming.op; op != nullptr) {
    if (incoming.drains)
      finish(op, 0, too_small(*op, incoming.bytes));
    else if (whole)
      finish(op, incoming.bytes, {});
    else
      finish(op, 0, p.departed ? p.error : Status(Code::kCancelled, "it withdrew its message", p.rank));
  }
  p.incoming.erase(incoming.number);
}

}  // namespace tithe::tcp
