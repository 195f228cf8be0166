// SPDX-License-Identifier: Apache-2.0
// Connecting, control words, and the end of peers; messages.cc has sends and receives.
//
// Callbacks for peers (on_error, on_control_sent, on_control_received, on_closed) only set flags; maintain() acts on
// the flags. Each operation completes exactly once (`completed`), but its memory is reused only after UCX has finished
// with it (`ended`).
#include "transport/ucx/ucx_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/text.h"
#include "transport/ucx/causes.h"
#include "transport/ucx/tags.h"

namespace tithe::ucx {
namespace {

using namespace std::chrono_literals;

// A closing transport waits this long for the answers of peers that are alive but do not poll.
constexpr auto kFarewellTime = 2s;
// The time that UCX has to close connections.
constexpr auto kCloseTime = 1s;
// While a poll waits, UCX's keep-alive and the deadlines run at least this often.
constexpr auto kMaxWait = std::chrono::nanoseconds(500ms);

}  // namespace

UcxTransport::UcxTransport(Rank rank, int world, std::unique_ptr<Worker> worker, const Secret& key)
    : rank_(rank), key_(key), worker_(std::move(worker)), peers_(static_cast<std::size_t>(world)) {
  for (int r = 0; r < world; ++r) {
    Peer& p = peers_[static_cast<std::size_t>(r)];
    p.self = this;
    p.rank = r;
    for (int w = 0; w < kProofMessages; ++w) {
      p.own_proofs[static_cast<std::size_t>(w)] = proof(static_cast<ControlMessage>(w), rank_, r);
      p.expected_proofs[static_cast<std::size_t>(w)] = proof(static_cast<ControlMessage>(w), r, rank_);
    }
  }
}

// Only a rank of this job can compute a proof, so a stranger cannot send a farewell in a rank's name. Replaying a
// recorded word has no effect.
Secret UcxTransport::proof(ControlMessage word, Rank from, Rank to, ByteView text) const {
  std::uint8_t what[12];
  wire::put(what, static_cast<std::uint32_t>(word));
  wire::put(what + 4, static_cast<std::uint32_t>(from));
  wire::put(what + 8, static_cast<std::uint32_t>(to));
  return derive(key_, "tithe word", {what, text});
}

// In a child of fork(), UCX is not closed: its messages would appear to come from the parent.
UcxTransport::~UcxTransport() {
  if (forks_ == forks::count())
    close_now();
  else
    (void)worker_.release();
}

Status UcxTransport::connect(const std::vector<ReceivedPeerInfo>& infos, Clock::time_point deadline,
                             std::chrono::milliseconds timeout, const std::function<bool()>& interrupted) {
  const Status status = connect_all(infos, deadline, timeout, interrupted);
  worker_->connected();
  connect_error_ = printable(status.what(), kMaxErrorText);
  return status;
}

// Greets all peers, then waits for the greeting of each. An unreachable peer is reported after all greetings, so that
// the other peers do not wait for this rank.
Status UcxTransport::connect_all(const std::vector<ReceivedPeerInfo>& infos, Clock::time_point deadline,
                                 std::chrono::milliseconds timeout,
                                 const std::function<bool()>& interrupted) {
  Status unreachable;
  const ProcessId me = own_process_id();
  post_control_receive();
  for (Peer& p : peers_) {
    if (p.rank == rank_) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    const ReceivedPeerInfo& info = infos[static_cast<std::size_t>(p.rank)];
    if (info.process.system == me.system && info.process.pid != me.pid)
      process_monitor_.add(p.rank, info.process.pid);
    p.same_host = info.process.host == me.host;
    p.shares_memory = worker_->shares_memory() && info.process.system == me.system;
    params.address = reinterpret_cast<const ucp_address_t*>(info.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = on_error, .arg = &p};
    if (const ucs_status_t s = ucp_ep_create(worker_->handle(), &params, &p.ep); s == UCS_OK)
      send_control(p, ControlMessage::kHello);
    else if (unreachable.ok())
      unreachable = {
          Code::kIo,
          fmt::format(
              "UCX cannot reach rank {}: {}; check that both ranks allow a common transport and device{}",
              p.rank, ucs_status_string(s), p.same_host ? "" : several_interfaces()),
          p.rank};
  }
  TITHE_TRY(unreachable);  // after sending kHello to all ranks that can be reached
  const auto late = [&](const Peer& p) {
    return Status(
        Code::kTimeout,
        fmt::format("rank {} did not connect within {:.3g} s; if this rank only starts late, raise timeout{}",
                    p.rank, std::chrono::duration<double>(timeout).count(),
                    p.same_host ? "" : several_interfaces()),
        p.rank);
  };
  for (Peer& p : peers_) {
    while (p.rank != rank_ && (!p.greeted || p.control_in_flight > 0)) {
      // A peer that only closed may have connected successfully before this rank did; a peer that failed ends the wait.
      for (const Peer& other : peers_)
        if (!other.error.ok() && (other.failed || other.rank == p.rank))
          return {other.error.code(),
                  other.error.what() + (other.failed || other.same_host ? "" : several_interfaces()),
                  other.rank};
      if (Clock::now() >= deadline) return late(p);
      if (interrupted && interrupted()) return {Code::kCancelled, "connecting was cancelled"};
      if (!worker_->progress()) wait_for_event(100ms);
      maintain();
    }
  }
  // The peers receive this rank's kHello only after it has left the send queue, which needs this rank's progress.
  ucp_request_param_t param{};
  ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_->handle(), &param);
  while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS) {
    if (Clock::now() >= deadline || (interrupted && interrupted())) break;
    if (!worker_->progress()) wait_for_event(100ms);
    maintain();
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
  return {};
}

std::size_t UcxTransport::poll(std::span<Completion> out, std::chrono::nanoseconds wait) {
  const bool patient = wait > 0ns;
  const auto deadline = patient ? Clock::now() + std::min(wait, std::chrono::nanoseconds(24h)) : Clock::now();
  for (;;) {
    const bool any = worker_->progress();
    maintain();
    if (next_ < done_.size() || out.empty()) break;
    const auto now = patient ? Clock::now() : deadline;
    if (now >= deadline) break;
    if (any) continue;
    if (wait_for_event(std::min<std::chrono::nanoseconds>(deadline - now, kMaxWait))) {
      worker_->progress();
      maintain();
      break;
    }
  }
  std::size_t n = 0;
  for (; n < out.size() && next_ < done_.size(); ++n) out[n] = std::move(done_[next_++]);
  if (next_ == done_.size()) {
    done_.clear();
    next_ = 0;
  }
  return n;
}

Status UcxTransport::peer_status(Rank peer) const {
  if (peer < 0 || peer >= world())
    return {Code::kInvalid, fmt::format("rank {} does not exist in a world of {}", peer, world())};
  return peers_[static_cast<std::size_t>(peer)].error;
}

std::uint64_t UcxTransport::bytes_received(Rank peer) const {
  return valid(peer) ? peers_[static_cast<std::size_t>(peer)].bytes_received : 0;
}

// ---- Peers
// ------------------------------------------------------------------------------------------------------

void UcxTransport::send_control(Peer& peer, ControlMessage word) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_control_sent;
  param.user_data = &peer;
  if (word == ControlMessage::kFailed) {
    const Secret evidence =
        proof(word, rank_, peer.rank,
              {reinterpret_cast<const std::uint8_t*>(connect_error_.data()), connect_error_.size()});
    peer.failure_text.assign(evidence.begin(), evidence.end());
    peer.failure_text.insert(peer.failure_text.end(), connect_error_.begin(), connect_error_.end());
  }
  const ByteView shown = word == ControlMessage::kFailed
                             ? ByteView(peer.failure_text)
                             : ByteView(peer.own_proofs[static_cast<std::size_t>(word)]);
  ucs_status_ptr_t r = ucp_tag_send_nbx(peer.ep, shown.data(), shown.size(),
                                        tag_of(static_cast<Channel>(word), rank_) | kControlBit, &param);
  if (UCS_PTR_IS_PTR(r))
    ++peer.control_in_flight;
  else if (UCS_PTR_IS_ERR(r))
    break_off(peer, connection_error(UCS_PTR_STATUS(r)));
}

void UcxTransport::on_control_sent(void* request, ucs_status_t status, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  --peer->control_in_flight;
  peer->self->maintenance_due_ = true;
  if (status != UCS_OK) peer->self->break_off(*peer, connection_error(status));
  ucp_request_free(request);
}

// Keeps one receive posted for the control words of all peers.
void UcxTransport::post_control_receive() {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = on_control_received;
  param.user_data = this;
  for (listening_ = false; !listening_;) {
    listening_ = true;  // until on_control_received() runs
    ucs_status_ptr_t r = ucp_tag_recv_nbx(worker_->handle(), control_buffer_.data(), control_buffer_.size(),
                                          kControlBit, kControlBit, &param);
    if (UCS_PTR_IS_ERR(r)) return;
    control_request_ = r;
  }
}

void UcxTransport::on_control_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                       void* arg) {
  auto* self = static_cast<UcxTransport*>(arg);
  self->listening_ = false;
  self->maintenance_due_ = true;
  if (status == UCS_OK) self->handle_control(info->sender_tag, info->length);
  ucp_request_free(request);
}

void UcxTransport::handle_control(ucp_tag_t tag, std::size_t bytes) {
  const auto source = static_cast<Rank>(tag & kSourceBits);
  if (!valid(source)) return;
  Peer& p = peers_[static_cast<std::size_t>(source)];
  const auto word = static_cast<std::size_t>(tag >> 32);
  if (word == static_cast<std::size_t>(ControlMessage::kFailed))
    return handle_failure(p, ByteView(control_buffer_).first(bytes));
  if (word >= kProofMessages ||
      !equal_secrets(p.expected_proofs[word], ByteView(control_buffer_).first(bytes)))
    return;
  maintenance_due_ = true;
  switch (static_cast<ControlMessage>(word)) {
    case ControlMessage::kHello:
      p.greeted = true;
      break;
    case ControlMessage::kFarewell:
      p.left = p.answered = p.answer_pending = true;
      if (p.error.ok()) p.error = {Code::kPeerLost, "it closed in good order", p.rank};
      break;
    case ControlMessage::kAnswer:
      p.answered = true;
      break;
    case ControlMessage::kFailed:
      break;
  }
}

void UcxTransport::handle_failure(Peer& p, ByteView message) {
  if (message.size() < kSecretBytes) return;
  const ByteView text = message.subspan(kSecretBytes);
  if (!equal_secrets(proof(ControlMessage::kFailed, p.rank, rank_, text), message.first(kSecretBytes)))
    return;
  p.left = p.failed = p.answered = p.answer_pending = maintenance_due_ = true;
  if (p.error.ok())
    p.error = {
        Code::kPeerLost,
        fmt::format("it could not connect: {}",
                    printable({reinterpret_cast<const char*>(text.data()), text.size()}, kMaxErrorText)),
        p.rank};
}

void UcxTransport::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  peer->self->break_off(*peer, connection_error(status));
}

void UcxTransport::break_off(Peer& peer, const Status& why) {
  peer.broken = true;
  maintenance_due_ = true;
  if (peer.error.ok()) peer.error = {why.code(), why.what(), peer.rank};
}

// Cancels receives that no message has matched; matched ones end when the connection closes.
void UcxTransport::cancel_receives(Peer& peer) {
  const std::vector<Op*> now(active_);
  for (Op* op : now)
    if (op->peer == peer.rank && op->is_recv && !op->ended) cancel_requests(op);
}

bool UcxTransport::wait_for_event(std::chrono::nanoseconds most) {
  const bool woken = worker_->wait(most, process_monitor_.descriptor());
  for (Rank r = process_monitor_.ended(); r >= 0; r = process_monitor_.ended()) {
    worker_->progress();  // first processes a farewell that the process sent before it ended
    break_off(peers_[static_cast<std::size_t>(r)], {Code::kPeerLost, "its process ended"});
  }
  return woken;
}

void UcxTransport::maintain() {
  if (withdrawn_ > 0) {
    const auto now = Clock::now();
    for (const Op* op : active_)
      if (op->withdrawn && !op->completed && now >= op->cancel_deadline)
        break_off(peers_[static_cast<std::size_t>(op->peer)],
                  {Code::kPeerLost, "it did not complete a cancelled operation"});
  }
  while (maintenance_due_) {
    maintenance_due_ = false;
    if (!listening_) post_control_receive();
    for (Peer& p : peers_)
      if (p.ep != nullptr || p.closed) maintain(p);
  }
}

// Advances the shutdown of a peer: answers its farewell, closes its endpoint, then completes its remaining operations.
void UcxTransport::maintain(Peer& p) {
  if (std::exchange(p.answer_pending, false)) {
    if (!p.broken) send_control(p, ControlMessage::kAnswer);
    cancel_receives(p);
  }
  if (!p.closed && (p.broken || (p.left && p.control_in_flight == 0))) {
    p.closed = true;
    cancel_receives(p);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = on_closed;
    param.user_data = &p;
    p.closing = UCS_PTR_IS_PTR(ucp_ep_close_nbx(std::exchange(p.ep, nullptr), &param));
    maintenance_due_ = true;
  }
  if (p.closed && !p.closing) {
    cancel_receives(p);
    // UCX never completes a receive whose message had only begun to arrive. No byte can follow, so the receive ends
    // here.
    for (Op* op : active_)
      if (op->peer == p.rank) complete(op, 0, failure_of(*op));
  }
}

void UcxTransport::on_closed(void* request, ucs_status_t, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  peer->closing = false;
  peer->self->maintenance_due_ = true;
  ucp_request_free(request);
}

// Sends a farewell and waits for the answers, so that all sent messages have arrived; then closes UCX.
void UcxTransport::close_now() {
  const auto pump = [&](auto pending, Clock::time_point deadline) {
    while (std::any_of(peers_.begin(), peers_.end(), pending) && Clock::now() < deadline) {
      if (!worker_->progress()) wait_for_event(20ms);
      maintain();
    }
  };
  const std::vector<Op*> now(active_);
  for (Op* op : now)
    if (!op->completed && !op->withdrawn) withdraw(op);
  for (Peer& p : peers_)
    if (p.ep != nullptr && p.error.ok())
      send_control(p, connect_error_.empty() ? ControlMessage::kFarewell : ControlMessage::kFailed);
  pump([](const Peer& p) { return p.ep != nullptr && p.greeted && !p.answered && p.error.ok(); },
       Clock::now() + kFarewellTime);
  for (Peer& p : peers_)
    if (p.ep != nullptr) break_off(p, {Code::kPeerLost, "this rank closed its transport"});
  maintain();
  pump([](const Peer& p) { return p.closing; }, Clock::now() + kCloseTime);
  closed_ = true;
  if (listening_) ucp_request_cancel(worker_->handle(), control_request_);
  worker_.reset();  // the last callbacks run here, so the operations must still exist
}

}  // namespace tithe::ucx
