// SPDX-License-Identifier: Apache-2.0
// Operations and the life cycle of peers; control.cc has the control connection, streams.cc the data connections.
//
// A peer passes through these states: connected; left (its farewell has arrived) or distrusted (its bytes were
// damaged); broken (connections closed). `error` has the reason from the second state on. Each operation completes
// exactly once, by finish().
#include "transport/tcp/tcp_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <asio/post.hpp>

#include "base/text.h"

namespace tithe::tcp {
namespace {

using namespace std::chrono_literals;

// A closing transport waits this long for the answers of peers that are alive but do not poll.
constexpr auto kFarewellTime = 2s;
// While a poll waits, deadlines are checked at this interval.
constexpr auto kLongestNap = std::chrono::nanoseconds(500ms);

}  // namespace

TcpTransport::TcpTransport(Rank rank, int world, const Options& options, std::chrono::milliseconds silence)
    : job_{.rank = rank, .world = world, .tos = options.tos, .credentials = options.credentials},
      options_(options),
      silence_(silence),
      context_(1),
      work_(context_.get_executor()),
      listener_(context_, job_),
      peers_(static_cast<std::size_t>(world)) {
  for (int r = 0; r < world; ++r) at(r).rank = r;
}

TcpTransport::~TcpTransport() {
  if (forks_ == forks::count()) close_now();  // a child of fork() does not own the connections
}

Status TcpTransport::connect(const Secret& key, std::vector<std::vector<Endpoint>> ways,
                             std::chrono::milliseconds timeout, const std::function<bool()>& interrupted) {
  job_.key = key;
  for (Peer& p : peers_) {
    p.out_checksum = first_checksum(key, rank(), p.rank);
    p.in_checksum = first_checksum(key, p.rank, rank());
  }
  listener_.open([this](const ConnectRequest& request, const std::shared_ptr<Wire>& wire) {
    return welcome(request, wire);
  });
  for (Peer& p : peers_) {
    if (p.rank == rank()) continue;
    p.endpoints = std::move(ways[static_cast<std::size_t>(p.rank)]);
    if (p.rank < rank()) continue;
    p.connector = std::make_unique<Connector>(
        context_, job_, ConnectRequest{.purpose = Purpose::kControl, .from = rank(), .to = p.rank},
        p.endpoints, [this, &p](const Status& s, std::shared_ptr<Wire> wire) {
          if (wire) attach_control(p, std::move(wire));
          if (!s.ok()) distrust(p, s);
        });
    p.connector->begin();
  }
  const Status status = connect_all(timeout, interrupted);
  connect_error_ = printable(status.what(), kMaxErrorText);
  return status;
}

Status TcpTransport::connect_all(std::chrono::milliseconds timeout,
                                 const std::function<bool()>& interrupted) {
  const auto deadline = Clock::now() + timeout;
  for (Peer& p : peers_)
    while (p.rank != rank() && !p.control) {
      // A peer that only closed may have connected successfully before this rank did; a peer that failed ends the wait.
      for (const Peer& other : peers_)
        if (!other.error.ok() && (other.failed || other.rank == p.rank)) return other.error;
      if (Clock::now() >= deadline) {
        std::string text = fmt::format("rank {} did not connect within {:.3g} s", p.rank,
                                       std::chrono::duration<double>(timeout).count());
        text += listener_.refused().empty() ? "; if this rank only starts late, raise timeout" : "";
        if (!listener_.refused().empty())
          text += fmt::format("; a process that connected was refused: {}", listener_.refused());
        return {listener_.refused().empty() ? Code::kTimeout : Code::kMismatch, text, p.rank};
      }
      if (interrupted && interrupted()) return {Code::kCancelled, "connecting was cancelled"};
      run_for(100ms);
      progress();
    }
  return {};
}

bool TcpTransport::welcome(const ConnectRequest& request, const std::shared_ptr<Wire>& wire) {
  Peer& p = at(request.from);
  if (!p.error.ok()) return false;
  if (request.purpose == Purpose::kControl) {
    if (p.control || request.from > rank()) return false;
    attach_control(p, wire);
    return true;
  }
  Inflow& flow = inflow(p, request.stream);
  if (flow.wire) return false;
  keep_alive(wire->socket(), silence_);
  flow.wire = wire;
  wire->on_readable = [this, &p, &flow] { pull(p, flow); };
  pull(p, flow);
  return true;
}

void TcpTransport::attach_control(Peer& p, std::shared_ptr<Wire> wire) {
  keep_alive(wire->socket(), silence_);
  p.control = std::move(wire);
  p.control->on_readable = [this, &p] { read_control(p); };
  p.control->on_writable = [this, &p] {
    p.full = false;
    flush(p);
  };
  p.control->await_readable();
  p.connector.reset();
}

// A small message goes out whole on the control connection. A long one sends its edge there; its body waits in
// `awaiting_grant` until the peer has granted the message's turn. A distrusted peer still gets small messages, so that
// it receives the reason.
Status TcpTransport::send(Rank peer, Channel channel, ByteView bytes, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("send: rank {} of {} is not a peer", peer, world())};
  Peer& p = at(peer);
  Op* op = new_op(peer, channel, id, false);
  if (!p.error.ok() && !(p.distrusted && !p.broken && bytes.size() <= kWholeBytes)) {
    finish(op, 0, p.error);
    return {};
  }
  bytes_sent_ += bytes.size();
  op->data = const_cast<std::uint8_t*>(bytes.data());  // NOLINT(*-const-cast): one field for both ways
  op->size = bytes.size();
  Lane& lane = p.lanes[channel];
  op->sequence = lane.sent++;
  if (bytes.size() <= kWholeBytes) {
    send_record(p, {.kind = Kind::kWhole, .about = channel, .n = bytes.size()}, bytes);
    p.send_ends.push_back({p.out_begin + p.out.size(), op});
    flush(p);
    return {};
  }
  op->number = p.numbers_out++;
  op->body = body_bytes(bytes.size());
  send_record(p, {.kind = Kind::kLong, .about = channel, .n = bytes.size()}, bytes.first(kFrameHeaderBytes),
              bytes.subspan(kFrameHeaderBytes + op->body));
  (op->sequence < lane.send_limit ? p.ready : lane.awaiting_grant).push(op);
  open_streams(p);
  pump(p);
  flush(p);
  return {};
}

Status TcpTransport::recv(Rank peer, Channel channel, Bytes into, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("recv: rank {} of {} is not a peer", peer, world())};
  Peer& p = at(peer);
  Op* op = new_op(peer, channel, id, true);
  if (!p.error.ok() && !p.departed) {
    finish(op, 0, p.error);
    return {};
  }
  op->data = into.data();
  op->size = into.size();
  Lane& lane = p.lanes[channel];
  ++lane.posted;
  lane.receives.push(op);
  if (op->size > kWholeBytes) queue_grant(p, channel, lane);
  match(p, channel, lane);
  if (p.departed) maintenance_due_ = true;  // only messages that have begun to arrive can complete
  return {};
}

// Cancelling a granted receive does not revoke the grant: the peer may already be sending, so unread_room grows by its
// size.
void TcpTransport::cancel(OpId id) {
  const auto it = std::find_if(active_.begin(), active_.end(), [&](const Op* op) { return op->id == id; });
  if (it == active_.end()) return;
  Op* op = *it;
  Peer& p = at(op->peer);
  if (!op->is_recv) {
    drop_send(p, op);
  } else {
    Lane& lane = p.lanes[op->channel];
    bool waits = false;
    for (std::size_t i = 0; i < lane.receives.size() && !waits; ++i)
      if (lane.receives[i] == op) {
        lane.receives.erase(i);
        waits = true;
      }
    if (waits && --lane.posted < lane.granted) {
      p.unread_room += op->size;
      queue_grant(p, op->channel, lane);
    }
    for (auto& [number, incoming] : p.incoming)
      if (incoming.op == op) {
        incoming.op = nullptr;
        incoming.drains = true;
      }
  }
  finish(op, 0, {Code::kCancelled, "withdrawn", op->peer});
}

TcpTransport::Op* TcpTransport::new_op(Rank peer, Channel channel, OpId id, bool is_recv) {
  if (free_.empty()) {
    ops_.emplace_back();
    free_.push_back(&ops_.back());
  }
  Op* op = free_.back();
  free_.pop_back();
  *op = {.id = id, .peer = peer, .channel = channel, .is_recv = is_recv, .place = active_.size()};
  active_.push_back(op);
  return op;
}

void TcpTransport::finish(Op* op, std::size_t bytes, Status status) {
  done_.push({.op = op->id, .bytes = bytes, .status = std::move(status)});
  active_[op->place] = active_.back();
  active_[op->place]->place = op->place;
  active_.pop_back();
  free_.push_back(op);
}

std::size_t TcpTransport::poll(std::span<Completion> out, std::chrono::nanoseconds wait) {
  const bool patient = wait > 0ns;
  const auto deadline =
      patient ? Clock::now() + std::min(wait, std::chrono::nanoseconds(24h)) : Clock::time_point{};
  for (;;) {
    progress();
    if (!done_.empty() || out.empty() || !patient || woken_.exchange(false)) break;
    const auto now = Clock::now();
    if (now >= deadline) break;
    check_silence(now);
    run_for(std::min<std::chrono::nanoseconds>(deadline - now, kLongestNap));
  }
  std::size_t n = 0;
  for (; n < out.size() && !done_.empty(); ++n) out[n] = done_.pop();
  return n;
}

void TcpTransport::wake() {
  if (!woken_.exchange(true)) asio::post(context_, [] {});
}

Status TcpTransport::peer_status(Rank peer) const {
  if (peer < 0 || peer >= world())
    return {Code::kInvalid, fmt::format("rank {} does not exist in a world of {}", peer, world())};
  return peers_[static_cast<std::size_t>(peer)].error;
}

std::uint64_t TcpTransport::bytes_received(Rank peer) const {
  return valid(peer) ? peers_[static_cast<std::size_t>(peer)].bytes_received : 0;
}

// ---- Peers
// ------------------------------------------------------------------------------------------------------

void TcpTransport::progress() {
  const auto grant = [this] {
    for (Peer& p : peers_)
      if (!p.to_grant.empty()) send_grants(p);
  };
  grant();
  // Bounded, so that a fast sender cannot keep the caller here forever.
  for (int i = 0; i < 256 && context_.poll_one() > 0; ++i) {
  }
  grant();  // for receives matched by the events above
  maintain();
}

void TcpTransport::run_for(std::chrono::nanoseconds most) {
  const std::uint64_t before = moved();
  const bool early = context_.run_one_for(most) > 0;
  if (early && moved() == before && done_.empty() && !woken_)
    guard_.idle_wakeup();
  else
    guard_.moved();
}

void TcpTransport::break_off(Peer& p, const Status& why) {
  if (p.broken) return;
  p.broken = maintenance_due_ = true;
  if (p.error.ok()) p.error = {why.code(), why.what(), p.rank};
  if (p.control) p.control->close();
  for (Outflow& flow : p.outflows)
    if (flow.wire) flow.wire->close();
  for (Inflow& flow : p.inflows)
    if (flow.wire) flow.wire->close();
}

// Stops using the bytes of a peer after damage. The control connection stays open for this rank's small messages, so
// that the peer receives the reason; without one the connection is closed.
void TcpTransport::distrust(Peer& p, const Status& why) {
  if (why.code() != Code::kCorrupt || !p.control || !p.control->open() || p.departed)
    return break_off(p, why);
  p.distrusted = maintenance_due_ = true;
  p.in_have = p.in_read = 0;
  if (p.error.ok()) p.error = {why.code(), why.what(), p.rank};
}

void TcpTransport::maintain() {
  if (listener_.busy()) listener_.maintain(Clock::now());
  for (Peer& p : peers_) {
    if (p.connector) p.connector->maintain(Clock::now());
    for (Outflow& flow : p.outflows)
      if (flow.connector) flow.connector->maintain(Clock::now());
  }
  while (std::exchange(maintenance_due_, false))
    for (Peer& p : peers_)
      if (!p.error.ok()) end_operations(p);
}

// Completes the operations that can no longer succeed.
void TcpTransport::end_operations(Peer& p) {
  if (p.broken && std::exchange(p.ended, true)) return;
  const auto end = [&](auto hopeless) {
    const std::vector<Op*> now(active_);
    for (Op* op : now)
      if (op->peer == p.rank && hopeless(op)) finish(op, 0, p.error);
  };
  if (p.broken) {
    p.send_ends.clear();
    p.ready.clear();
    p.incoming.clear();
    p.lanes.clear();
    p.to_grant.clear();
    p.connector.reset();
    p.outflows.clear();
    p.inflows.clear();
    end([](const Op*) { return true; });
    return;
  }
  if (p.distrusted) {
    p.ready.clear();
    for (Inflow& flow : p.inflows) flow.pieces.clear();
    for (Outflow& flow : p.outflows) {
      flow.op = nullptr;
      flow.left = 0;
    }
    p.incoming.clear();
    p.lanes.clear();
    p.to_grant.clear();
    return end([](const Op* op) { return op->is_recv || op->body > 0; });
  }
  // The peer closed in good order: only receives whose message has begun to arrive can complete.
  for (auto& [channel, lane] : p.lanes) {
    lane.receives.clear();
    lane.awaiting_grant.clear();
  }
  p.send_ends.clear();
  p.ready.clear();
  for (Outflow& flow : p.outflows)
    if (flow.wire) flow.wire->close();
  p.outflows.clear();
  const auto arrives = [&](const Op* op) {
    return op->is_recv && std::any_of(p.incoming.begin(), p.incoming.end(),
                                      [&](const auto& one) { return one.second.op == op; });
  };
  end([&](const Op* op) { return !arrives(op); });
}

void TcpTransport::check_silence(Clock::time_point now) {
  if (now < silence_checked_at_ + kLongestNap) return;
  silence_checked_at_ = now;
  for (Peer& p : peers_)
    if (p.control && p.error.ok() && silent_for(p.control->socket()) > silence_)
      break_off(p, {Code::kTimeout, fmt::format("its machine sent nothing for {:.3g} s",
                                                std::chrono::duration<double>(silence_).count())});
}

// Sends a farewell and waits for the answers, so that all sent messages have arrived; then closes.
void TcpTransport::close_now() {
  const std::vector<Op*> now(active_);
  for (Op* op : now) cancel(op->id);
  for (Peer& p : peers_) {
    if (!p.control || !(p.error.ok() || p.distrusted)) continue;
    send_record(p, {.kind = Kind::kFarewell, .n = connect_error_.size()},
                {reinterpret_cast<const std::uint8_t*>(connect_error_.data()), connect_error_.size()});
    flush(p);
  }
  const auto deadline = Clock::now() + kFarewellTime;
  // A distrusted peer has read everything once it closes the connection, and its answers are discarded.
  const auto waits = [](const Peer& p) {
    return p.control && !p.broken && (p.distrusted || (p.error.ok() && !p.answered));
  };
  while (std::any_of(peers_.begin(), peers_.end(), waits) && Clock::now() < deadline) {
    run_for(20ms);
    progress();
  }
  for (Peer& p : peers_)
    if (p.rank != rank()) break_off(p, {Code::kPeerLost, "this rank closed its transport"});
}

}  // namespace tithe::tcp
