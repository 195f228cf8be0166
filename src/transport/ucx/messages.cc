// SPDX-License-Identifier: Apache-2.0
// Sends and receives of UcxTransport, as one UCX message or in pieces.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "transport/ucx/tags.h"
#include "transport/ucx/ucx_transport.h"

namespace tithe::ucx {
namespace {

using namespace std::chrono_literals;

// If UCX still uses the buffer of a cancelled operation after this time, the connection is closed.
constexpr auto kCancelTime = 1s;
// Longer messages travel in pieces. Over a network a piece takes half a second on a link of 1 Mbit/s; only complete
// pieces show that the link makes progress. If peers may share memory, pieces are larger: messages of 1 MB took up to
// 10 % longer in pieces of 256 KiB than in one.
constexpr std::size_t kNetworkPiece = 64 * 1024, kMemoryPiece = 512 * 1024;
// The size of a piece if the window holds fewer than four network pieces.
constexpr std::size_t kWindowPiece = 16 * 1024;
// Bytes of one message in flight: more than the bandwidth-delay product of a fast link over a long distance.
constexpr std::size_t kMaxUnderWay = 16 * 1024 * 1024;
// Sends up to this size complete without an acknowledgement.
constexpr std::size_t kSmallMessage = 4096;

// Announcement: u64 mark | u64 bytes of the message | u32 number of its first piece | u32 bytes of a piece
constexpr std::uint64_t kMark = 0x474E4F4C'58555454;  // "TTUXLONG" in file order

ucp_request_param_t request_of(void* user_data) {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.user_data = user_data;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  return param;
}

// A receive whose message is already here completes at once. UCX 1.13 reports its length only to the callback, so
// NO_IMM_CMPL forces the callback, which may run before the call returns.
ucp_request_param_t receive_of(void* user_data, ucp_tag_recv_nbx_callback_t callback) {
  ucp_request_param_t param = request_of(user_data);
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = callback;
  return param;
}

}  // namespace

std::size_t UcxTransport::piece_bytes(const Peer& peer) const {
  if (window_ == 0) return peer.shares_memory ? kMemoryPiece : kNetworkPiece;
  return window_ < 4 * kNetworkPiece ? kWindowPiece : kNetworkPiece;
}

// True if the send must be synchronous. An ordinary UCX send may complete while megabytes of it are in a socket buffer.
// A synchronous send completes once the receiver's UCX has matched it and acknowledged the match.
bool UcxTransport::acknowledged(std::size_t bytes) const { return window_ > 0 && bytes > kSmallMessage; }

Status UcxTransport::send(Rank peer, Channel channel, ByteView bytes, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("send: rank {} of {} is not a peer", peer, world())};
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  Op* op = new_op(peer, id, false);
  if (!p.error.ok()) {
    complete(op, 0, p.error);
    release(op);
    return {};
  }
  bytes_sent_ += bytes.size();
  op->data = const_cast<std::uint8_t*>(bytes.data());  // NOLINT(*-const-cast): one field for both ways
  op->total = bytes.size();
  if (bytes.size() > piece_bytes(p) || bytes.size() == kAnnouncementBytes) {
    send_long(p, channel, op);
    return {};
  }
  ucp_request_param_t param = request_of(op);
  param.cb.send = on_sent;
  const auto give = acknowledged(bytes.size()) ? ucp_tag_send_sync_nbx : ucp_tag_send_nbx;
  ucs_status_ptr_t r = give(p.ep, bytes.data(), bytes.size(), tag_of(channel, rank_), &param);
  if (UCS_PTR_IS_PTR(r))
    op->request = r;
  else
    finish(op, bytes.size(), UCS_PTR_STATUS(r));
  return {};
}

Status UcxTransport::recv(Rank peer, Channel channel, Bytes into, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("recv: rank {} of {} is not a peer", peer, world())};
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  Op* op = new_op(peer, id, true);
  if (!p.error.ok() && !p.left) {
    complete(op, 0, p.error);
    release(op);
    return {};
  }
  op->data = into.data();
  op->room = into.size();
  // A small receive goes to op->announcement, since an announcement may come instead of the message.
  const bool small = into.size() < kAnnouncementBytes;
  const ucp_request_param_t param = receive_of(op, on_received);
  ucs_status_ptr_t r =
      ucp_tag_recv_nbx(worker_->handle(), small ? op->announcement.data() : into.data(),
                       small ? kAnnouncementBytes : into.size(), tag_of(channel, peer), kWholeTag, &param);
  if (op->ended) return {};
  if (!UCS_PTR_IS_PTR(r)) {
    finish(op, 0, UCS_PTR_STATUS(r));
    return {};
  }
  if (!op->in_pieces) op->request = r;
  if (p.left) {  // nothing of a peer that has left is still in flight
    cancel_requests(op);
    maintenance_due_ = true;
  }
  return {};
}

void UcxTransport::cancel(OpId id) {
  const auto it = std::find_if(active_.begin(), active_.end(), [&](const Op* op) {
    return op->id == id && !op->completed && !op->withdrawn;
  });
  if (it != active_.end()) withdraw(*it);
}

void UcxTransport::withdraw(Op* op) {
  op->withdrawn = true;
  op->cancel_deadline = Clock::now() + kCancelTime;
  ++withdrawn_;
  op->drains = op->is_recv;
  if (op->is_recv || !op->in_pieces) cancel_requests(op);  // UCX cannot cancel a piece that was sent
}

// Cancels the UCX requests of an operation. Their callbacks run during the call or later.
void UcxTransport::cancel_requests(Op* op) {
  if (closed_) return;
  if (!op->in_pieces) {
    if (op->request != nullptr) ucp_request_cancel(worker_->handle(), op->request);
    return;
  }
  const bool was_busy = std::exchange(op->busy, true);
  for (std::size_t i = 0; i < pieces_.size(); ++i)
    if (pieces_[i].op == op && pieces_[i].request != nullptr)
      ucp_request_cancel(worker_->handle(), pieces_[i].request);
  op->busy = was_busy;
  post_pieces(op);
}

UcxTransport::Op* UcxTransport::new_op(Rank peer, OpId id, bool is_recv) {
  if (free_.empty()) {
    ops_.emplace_back();
    free_.push_back(&ops_.back());
  }
  Op* op = free_.back();
  free_.pop_back();
  *op = {.self = this, .id = id, .peer = peer, .is_recv = is_recv, .place = active_.size()};
  active_.push_back(op);
  return op;
}

void UcxTransport::release(Op* op) {
  active_[op->place] = active_.back();
  active_[op->place]->place = op->place;
  active_.pop_back();
  if (op->withdrawn) --withdrawn_;
  op->ended = true;
  free_.push_back(op);
}

void UcxTransport::complete(Op* op, std::size_t bytes, Status status) {
  if (op->completed) return;
  op->completed = true;
  done_.push_back({.op = op->id, .bytes = bytes, .status = std::move(status)});
}

Status UcxTransport::failure_of(const Op& op) const {
  if (op.withdrawn) return {Code::kCancelled, "withdrawn", op.peer};
  if (!op.error.ok()) return op.error;
  const Peer& p = peers_[static_cast<std::size_t>(op.peer)];
  return p.error.ok() ? Status(Code::kCancelled, "this transport was closed", op.peer) : p.error;
}

// UCX has completed a message that travelled as one.
void UcxTransport::finish(Op* op, std::size_t bytes, ucs_status_t status) {
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  if (status == UCS_OK) {
    if (op->is_recv) p.bytes_received += bytes;
    complete(op, bytes, {});
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    complete(op, 0,
             {Code::kTooSmall, fmt::format("its message is larger than the {} bytes posted for it", op->room),
              p.rank});
  } else {
    if (p.error.ok() && !op->withdrawn) break_off(p, connection_error(status));
    complete(op, 0, failure_of(*op));
  }
  release(op);
}

void UcxTransport::on_sent(void* request, ucs_status_t status, void* arg) {
  auto* op = static_cast<Op*>(arg);
  op->self->finish(op, 0, status);
  ucp_request_free(request);
}

void UcxTransport::on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                               void* arg) {
  auto* op = static_cast<Op*>(arg);
  std::size_t bytes = status == UCS_OK ? info->length : 0;
  const bool small = op->room < kAnnouncementBytes;
  if (bytes == kAnnouncementBytes) {
    op->self->on_announcement(op, small ? op->announcement.data() : op->data);
  } else {
    if (bytes > op->room) {
      status = UCS_ERR_MESSAGE_TRUNCATED;
      bytes = 0;
    }
    if (small && bytes > 0) std::memcpy(op->data, op->announcement.data(), bytes);
    op->self->finish(op, bytes, status);
  }
  ucp_request_free(request);
}

// ---- Pieces
// ------------------------------------------------------------------------------------------------------

void UcxTransport::send_long(Peer& p, Channel channel, Op* op) {
  op->in_pieces = true;
  op->piece = piece_bytes(p);
  op->left = (op->total + op->piece - 1) / op->piece;
  op->number = std::exchange(p.pieces, p.pieces + static_cast<std::uint32_t>(op->left));
  wire::put(&op->announcement[0], kMark);
  wire::put(&op->announcement[8], std::uint64_t{op->total});
  wire::put(&op->announcement[16], op->number);
  wire::put(&op->announcement[20], static_cast<std::uint32_t>(op->piece));
  ucp_request_param_t param = request_of(op);
  param.cb.send = on_announced;
  ucs_status_ptr_t r =
      ucp_tag_send_nbx(p.ep, op->announcement.data(), kAnnouncementBytes, tag_of(channel, rank_), &param);
  if (UCS_PTR_IS_PTR(r)) ++op->in_flight;
  if (UCS_PTR_IS_ERR(r)) break_off(p, connection_error(UCS_PTR_STATUS(r)));
  post_pieces(op);
}

void UcxTransport::on_announced(void* request, ucs_status_t status, void* arg) {
  auto* op = static_cast<Op*>(arg);
  Peer& p = op->self->peers_[static_cast<std::size_t>(op->peer)];
  --op->in_flight;
  if (status != UCS_OK && p.error.ok()) op->self->break_off(p, connection_error(status));
  op->self->post_pieces(op);
  ucp_request_free(request);
}

// `announcement` belongs to the message that this receive has matched.
void UcxTransport::on_announcement(Op* op, const std::uint8_t* announcement) {
  const auto total = wire::get<std::uint64_t>(announcement + 8);
  op->in_pieces = true;
  op->request = nullptr;
  op->number = wire::get<std::uint32_t>(announcement + 16);
  op->total = total;
  op->piece = wire::get<std::uint32_t>(announcement + 20);
  const bool known = op->piece == kNetworkPiece || op->piece == kMemoryPiece || op->piece == kWindowPiece;
  if (known) op->left = total / op->piece + (total % op->piece != 0);
  if (wire::get<std::uint64_t>(announcement) != kMark || total == 0 || !known) {
    op->stopped = true;
    op->error = {Code::kCorrupt, "it sent an invalid announcement of a message", op->peer};
  } else if (total > op->room) {
    op->drains = true;
    op->error = {
        Code::kTooSmall,
        fmt::format("its message of {} bytes is larger than the {} bytes posted for it", total, op->room),
        op->peer};
  }
  post_pieces(op);
}

// Posts pieces up to the window, and ends the message when none is in flight. `busy` guards against recursion: a piece
// that has already arrived completes inside post_piece().
void UcxTransport::post_pieces(Op* op) {
  if (op->busy || op->ended) return;
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  op->busy = true;  // pieces that have already arrived complete while they are posted
  const std::size_t most = op->is_recv || window_ == 0 ? kMaxUnderWay : std::max(window_, op->piece);
  while (op->left > 0 && op->in_flight * op->piece < most && !closed_ && !op->stopped) {
    if (op->is_recv ? !p.error.ok() && !p.left : !p.error.ok() || op->withdrawn) break;
    maintenance_due_ = maintenance_due_ || p.left;  // nothing of a peer that has left is still in flight
    if (!post_piece(op)) break;
  }
  op->busy = false;
  if (op->withdrawn && op->is_recv && op->in_use == 0) complete(op, 0, failure_of(*op));
  if (op->in_flight == 0) end_long(op);
}

// Posts the next piece. False: stop feeding, because the message cannot continue.
bool UcxTransport::post_piece(Op* op) {
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  if (free_pieces_.empty()) {
    pieces_.emplace_back();
    free_pieces_.push_back(&pieces_.back());
  }
  Piece* piece = free_pieces_.back();
  free_pieces_.pop_back();
  *piece = {
      .op = op, .bytes = op->drains ? 0 : std::min(op->piece, op->total - op->next), .drains = op->drains};
  piece->number = op->again.empty() ? op->number++ : op->again.back();
  if (!op->again.empty()) op->again.pop_back();
  std::uint8_t* at = piece->drains ? nullptr : op->data + op->next;
  op->next += piece->bytes;
  --op->left;
  ++op->in_flight;
  op->in_use += !piece->drains;
  ucs_status_ptr_t r = nullptr;
  if (op->is_recv) {
    const ucp_request_param_t param = receive_of(piece, on_piece_received);
    r = ucp_tag_recv_nbx(worker_->handle(), at, piece->bytes, piece_tag(piece->number, op->peer), kWholeTag,
                         &param);
  } else {
    ucp_request_param_t param = request_of(piece);
    param.cb.send = on_piece_sent;
    const auto give = acknowledged(op->total) ? ucp_tag_send_sync_nbx : ucp_tag_send_nbx;
    r = give(p.ep, at, piece->bytes, piece_tag(piece->number, rank_), &param);
  }
  if (piece->ended) return true;
  if (UCS_PTR_IS_PTR(r))
    piece->request = r;
  else
    piece_ended(piece, UCS_PTR_STATUS(r), piece->bytes);
  return !op->stopped;
}

void UcxTransport::on_piece_sent(void* request, ucs_status_t status, void* arg) {
  auto* piece = static_cast<Piece*>(arg);
  piece->op->self->piece_ended(piece, status, piece->bytes);
  ucp_request_free(request);
}

void UcxTransport::on_piece_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                     void* arg) {
  auto* piece = static_cast<Piece*>(arg);
  piece->op->self->piece_ended(piece, status, status == UCS_OK ? info->length : 0);
  ucp_request_free(request);
}

// Classifies the result of a piece. An empty piece means that the sender withdrew the message. A receive without a
// buffer is truncated on purpose. A cancelled piece of a draining receive is posted again without a buffer, since the
// sender may still send it.
void UcxTransport::piece_ended(Piece* piece, ucs_status_t status, std::size_t bytes) {
  Op* op = std::exchange(piece->op, nullptr);
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  const auto stop = [&](Status why) {
    op->stopped = true;
    if (op->error.ok()) op->error = std::move(why);
  };
  piece->ended = true;
  free_pieces_.push_back(piece);
  --op->in_flight;
  op->in_use -= !piece->drains;
  const bool was_stopped = op->stopped;
  if (status == UCS_OK && bytes == 0 && op->is_recv) {
    stop({Code::kCancelled, "it withdrew its message", p.rank});
  } else if (status == UCS_OK && bytes == piece->bytes) {
    if (op->is_recv) p.bytes_received += bytes;
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED && piece->drains) {
    // intended: the bytes are discarded
  } else if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
    stop({Code::kCorrupt, "a piece of its message has an invalid size", p.rank});
  } else if (status == UCS_ERR_CANCELED && op->drains && p.error.ok() && !closed_) {
    ++op->left;  // post it again, without a buffer
    op->again.push_back(piece->number);
  } else {
    if (p.error.ok() && !op->stopped) break_off(p, connection_error(status));
    stop(p.error);
  }
  if (op->stopped && !was_stopped && op->is_recv) cancel_requests(op);  // no piece will match them
  post_pieces(op);
}

// Sends an empty piece, which tells the receiver that no further piece follows.
void UcxTransport::end_early(Op* op) {
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  ucp_request_param_t param = request_of(&p);
  param.cb.send = on_control_sent;
  ucs_status_ptr_t r = ucp_tag_send_nbx(p.ep, nullptr, 0, piece_tag(op->number, rank_), &param);
  if (UCS_PTR_IS_PTR(r)) ++p.control_in_flight;
  if (UCS_PTR_IS_ERR(r)) break_off(p, connection_error(UCS_PTR_STATUS(r)));
}

// UCX has completed a message that travelled in pieces.
void UcxTransport::end_long(Op* op) {
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  const bool whole = op->left == 0 && !op->stopped;
  if (!whole && op->withdrawn && !op->is_recv && p.error.ok()) end_early(op);
  if (whole && op->error.ok() && !op->drains)
    complete(op, op->is_recv ? op->total : 0, {});
  else
    complete(op, 0, failure_of(*op));
  release(op);
}

}  // namespace tithe::ucx
