// SPDX-License-Identifier: Apache-2.0
// The control connection: writing and parsing records, and matching messages with receives.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"
#include "transport/tcp/tcp_transport.h"

namespace tithe::tcp {
namespace {

constexpr std::size_t kInBytes = 64 * 1024;
// Upper bound of the memory that an unread message costs in addition to its bytes.
constexpr std::size_t kUnreadCost = 256;

Status invalid_message(std::string_view what) {
  return {Code::kCorrupt, fmt::format("its control connection sent an invalid message ({})", what)};
}

Status damaged() { return {Code::kCorrupt, "data on its control connection was damaged in transit"}; }

}  // namespace

void TcpTransport::send_record(Peer& p, const Record& record, ByteView first, ByteView second) {
  if (p.broken) return;
  append_record(record, first, second, p.out_checksum, p.out);
}

void TcpTransport::flush(Peer& p) {
  while (p.control && !p.broken && !p.full && p.out_sent < p.out.size()) {
    const std::ptrdiff_t n = p.control->write(ByteView(p.out).subspan(p.out_sent));
    if (n > 0) {
      p.out_sent += static_cast<std::size_t>(n);
    } else if (n == 0) {
      p.full = true;
      p.control->await_writable();
    } else if (p.departed) {
      p.control->close();  // the peer has closed and reads nothing more
      p.out_sent = p.out.size();
    } else {
      p.full = true;
      read_control(p);  // reads records that came before the connection closed, such as a farewell
      if (p.error.ok()) break_off(p, p.control->error());
    }
  }
  // A send is complete once the kernel has its bytes.
  const bool waits = p.control && p.control->unsent() > 0;
  if (waits && !p.broken) {
    p.full = true;
    p.control->await_writable();
  }
  while (!waits && !p.send_ends.empty() && p.send_ends.front().end <= p.out_begin + p.out_sent) {
    if (Op* op = p.send_ends.front().op; op != nullptr) finish(op, 0, {});
    p.send_ends.pop_front();
  }
  if (p.out_sent == p.out.size() || p.out_sent > kInBytes) {
    p.out_begin += p.out_sent;
    p.out.erase(p.out.begin(), p.out.begin() + static_cast<std::ptrdiff_t>(p.out_sent));
    p.out_sent = 0;
  }
}

void TcpTransport::read_control(Peer& p) {
  if (std::exchange(p.reading, true)) return;
  p.in.resize(kInBytes);
  while (p.control && p.control->open() && !p.broken) {
    const std::ptrdiff_t n = p.control->read(Bytes(p.in).subspan(p.in_have));
    if (n == 0) {
      p.control->await_readable();
      break;
    }
    if (n < 0) {
      if (p.departed) {
        p.control->close();
      } else {
        break_off(p, p.control->error());
      }
      break;
    }
    if (p.distrusted) continue;
    p.in_have += static_cast<std::size_t>(n);
    if (const Status s = parse_records(p); !s.ok()) distrust(p, s);
  }
  p.reading = false;
  pump(p);
  flush(p);
}

// Acts on all complete records in `in`, and moves the incomplete rest to the front.
Status TcpTransport::parse_records(Peer& p) {
  constexpr std::size_t kHead = kRecordBytes + kChecksumBytes;
  while (p.in_have - p.in_read >= kHead && !p.broken && !p.distrusted) {
    const ByteView rest = ByteView(p.in).first(p.in_have).subspan(p.in_read);
    const auto verify = [&](RecordChecksum last, ByteView bytes) -> std::optional<RecordChecksum> {
      const RecordChecksum due = next_checksum(last, bytes);
      if (wire::get<RecordChecksum>(bytes.data() + bytes.size()) != due) return {};
      return due;
    };
    std::optional<RecordChecksum> seen = verify(p.in_checksum, rest.first(kRecordBytes));
    if (!seen) return damaged();
    const std::optional<Record> record = read_record(rest.first(kRecordBytes));
    if (!record) return invalid_message("a record");
    const std::size_t behind = bytes_behind(*record);
    const std::size_t tail = behind == 0 ? 0 : behind + kChecksumBytes;
    if (rest.size() < kHead + tail) break;
    const ByteView bytes = rest.subspan(kHead, behind);
    if (behind > 0 && !(seen = verify(*seen, bytes))) return damaged();
    p.in_checksum = *seen;
    p.in_read += kHead + tail;
    TITHE_TRY(handle_record(p, *record, bytes));
  }
  if (p.in_read > 0) {
    std::copy(p.in.begin() + static_cast<std::ptrdiff_t>(p.in_read),
              p.in.begin() + static_cast<std::ptrdiff_t>(p.in_have), p.in.begin());
    p.in_have -= p.in_read;
    p.in_read = 0;
  }
  return {};
}

// Acts on one record, whose checksum has been verified. Not ok: a correct rank does not send such a record now.
Status TcpTransport::handle_record(Peer& p, const Record& record, ByteView behind) {
  if (p.departed && record.kind != Kind::kAnswer) return invalid_message("data after its shutdown message");
  switch (record.kind) {
    case Kind::kWhole: {
      Lane& lane = p.lanes[record.about];
      ++lane.arrived;
      if (!lane.receives.empty() && lane.waiting.empty())
        deliver(p, lane.receives.pop(), behind);
      else
        lane.waiting.push({.whole = {behind.begin(), behind.end()}});
      return lane.waiting.empty() ? Status() : count_unread(p, behind.size());
    }
    case Kind::kLong: {
      Lane& lane = p.lanes[record.about];
      const std::uint32_t number = p.numbers_in++;
      Incoming& incoming = p.incoming[number];
      incoming.number = number;
      incoming.sequence = lane.arrived++;
      incoming.bytes = record.n;
      incoming.body = body_bytes(record.n);
      std::copy(behind.begin(), behind.end(), incoming.edge.begin());
      lane.waiting.push({.whole = {}, .incoming = &incoming});
      TITHE_TRY(count_unread(p, sizeof incoming));
      match(p, record.about, lane);
      return {};
    }
    case Kind::kPiece: {
      const auto it = p.incoming.find(record.about);
      if (it == p.incoming.end() || it->second.ended || record.n > it->second.body - it->second.announced)
        return invalid_message("a piece");
      Incoming& incoming = it->second;
      Inflow& flow = inflow(p, record.stream);
      flow.pieces.push({.incoming = &incoming, .offset = incoming.announced, .left = record.n});
      incoming.announced += record.n;
      if (flow.pieces.size() == 1) pull(p, flow);
      return {};
    }
    case Kind::kGrant: {
      Lane& lane = p.lanes[record.about];
      lane.send_limit = record.n;
      while (!lane.awaiting_grant.empty() && lane.awaiting_grant.front()->sequence < lane.send_limit)
        p.ready.push(lane.awaiting_grant.pop());
      return {};
    }
    case Kind::kEnd: {
      const auto it = p.incoming.find(record.about);
      if (it == p.incoming.end() || it->second.ended) return invalid_message("an end");
      it->second.ended = true;
      complete_if_done(p, it->second);
      return {};
    }
    case Kind::kFarewell:
      on_farewell(p, behind);
      return {};
    case Kind::kAnswer:
      p.answered = true;
      return {};
  }
  return {};
}

void TcpTransport::on_farewell(Peer& p, ByteView why) {
  p.departed = p.answered = maintenance_due_ = true;
  const std::string text = printable({reinterpret_cast<const char*>(why.data()), why.size()}, kMaxErrorText);
  if (p.error.ok() && text.empty()) p.error = {Code::kPeerLost, "it closed in good order", p.rank};
  p.failed = !text.empty();
  if (p.error.ok()) p.error = {Code::kPeerLost, fmt::format("it could not connect: {}", text), p.rank};
  send_record(p, {.kind = Kind::kAnswer});
  flush(p);
}

// Grants are sent with the next poll, or before the next record: callers post many receives at a time, which one grant
// covers.
void TcpTransport::queue_grant(Peer& p, Channel channel, Lane& lane) {
  if (std::exchange(lane.grant_queued, true)) return;
  p.to_grant.push_back(&lane);
  p.granted_channels.push_back(channel);
}

void TcpTransport::send_grants(Peer& p) {
  for (std::size_t i = 0; i < p.to_grant.size(); ++i) {
    Lane& lane = *p.to_grant[i];
    lane.grant_queued = false;
    lane.granted = lane.posted;
    if (p.error.ok())
      send_record(p, {.kind = Kind::kGrant, .about = p.granted_channels[i], .n = lane.granted});
  }
  p.to_grant.clear();
  p.granted_channels.clear();
  flush(p);
}

Status TcpTransport::count_unread(Peer& p, std::size_t bytes) {
  p.unread += bytes + kUnreadCost;
  if (p.unread <= kMaxUnread) return {};
  return {Code::kCorrupt,
          fmt::format("it sent more than {} MiB of messages for which this rank posted no receive",
                      kMaxUnread >> 20),
          p.rank};
}

Status TcpTransport::too_small(const Op& op, std::size_t bytes) {
  return {Code::kTooSmall,
          fmt::format("its message of {} bytes is larger than the {} bytes posted for it", bytes, op.size),
          op.peer};
}

void TcpTransport::deliver(Peer& p, Op* op, ByteView bytes) {
  if (bytes.size() > op->size) return finish(op, 0, too_small(*op, bytes.size()));
  if (!bytes.empty()) std::memcpy(op->data, bytes.data(), bytes.size());
  p.bytes_received += bytes.size();
  finish(op, bytes.size(), {});
}

// Pairs receives with messages in order. For a long message it copies the edge, and the body if it was stored
// meanwhile; later pieces are read straight into the receive's buffer.
void TcpTransport::match(Peer& p, Channel channel, Lane& lane) {
  while (!lane.receives.empty() && !lane.waiting.empty()) {
    Op* op = lane.receives.pop();
    const Waiting message = lane.waiting.pop();
    p.unread -= (message.incoming == nullptr ? message.whole.size() : sizeof(Incoming)) + kUnreadCost;
    if (message.incoming == nullptr) {
      deliver(p, op, message.whole);
      continue;
    }
    Incoming& incoming = *message.incoming;
    incoming.matched = true;
    incoming.op = op;
    incoming.drains = incoming.bytes > op->size;
    if (!incoming.drains) {
      const std::uint8_t* edge = incoming.edge.data();
      std::memcpy(op->data, edge, kFrameHeaderBytes);
      std::memcpy(op->data + kFrameHeaderBytes + incoming.body, edge + kFrameHeaderBytes,
                  incoming.bytes - incoming.body - kFrameHeaderBytes);
      p.bytes_received += incoming.bytes - incoming.body;
      if (!incoming.stored.empty()) {
        std::memcpy(op->data + kFrameHeaderBytes, incoming.stored.data(), incoming.body);
        p.bytes_received += incoming.arrived;
      }
    }
    p.unread_room += incoming.stored.size();
    std::vector<std::uint8_t>().swap(incoming.stored);
    if (incoming.sequence >= lane.granted) queue_grant(p, channel, lane);
    complete_if_done(p, incoming);
    resume(p);
  }
}

}  // namespace tithe::tcp
