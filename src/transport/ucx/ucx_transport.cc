// SPDX-License-Identifier: Apache-2.0
// Connecting, control words, and the end of peers; messages.cc has sends and receives.
//
// Callbacks for peers (on_error, on_said, on_heard, on_closed) only set flags; tend() acts on the flags. Each operation
// completes exactly once (`answered`), but its memory is reused only after UCX has finished with it (`ended`).
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
constexpr auto kLongestNap = std::chrono::nanoseconds(500ms);

}  // namespace

UcxTransport::UcxTransport(Rank rank, int world, std::unique_ptr<Worker> worker, const Secret& key)
    : rank_(rank), key_(key), worker_(std::move(worker)), peers_(static_cast<std::size_t>(world)) {
  for (int r = 0; r < world; ++r) {
    Peer& p = peers_[static_cast<std::size_t>(r)];
    p.self = this;
    p.rank = r;
    for (int w = 0; w < kWords; ++w) {
      p.says[static_cast<std::size_t>(w)] = proof(static_cast<Word>(w), rank_, r);
      p.shall[static_cast<std::size_t>(w)] = proof(static_cast<Word>(w), r, rank_);
    }
  }
}

// Only a rank of this job can compute a proof, so a stranger cannot send a farewell in a rank's name. Replaying a
// recorded word has no effect.
Secret UcxTransport::proof(Word word, Rank from, Rank to, ByteView text) const {
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

Status UcxTransport::connect(const std::vector<ReceivedPeerInfo>& infos, std::chrono::milliseconds timeout,
                             const std::function<bool()>& interrupted) {
  const Status status = connect_all(infos, timeout, interrupted);
  worker_->connected();
  last_words_ = printable(status.what(), kMostLastWords);
  return status;
}

Status UcxTransport::connect_all(const std::vector<ReceivedPeerInfo>& infos,
                                 std::chrono::milliseconds timeout,
                                 const std::function<bool()>& interrupted) {
  Status unreachable;
  const ProcessId me = own_process_id();
  listen();
  for (Peer& p : peers_) {
    if (p.rank == rank_) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    const ReceivedPeerInfo& info = infos[static_cast<std::size_t>(p.rank)];
    if (info.process.system == me.system && info.process.pid != me.pid) watch_.add(p.rank, info.process.pid);
    p.same_host = info.process.host == me.host;
    p.shares_memory = worker_->shares_memory() && info.process.system == me.system;
    params.address = reinterpret_cast<const ucp_address_t*>(info.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = on_error, .arg = &p};
    if (const ucs_status_t s = ucp_ep_create(worker_->handle(), &params, &p.ep); s == UCS_OK)
      say(p, Word::kHello);
    else if (unreachable.ok())
      unreachable = {
          Code::kIo,
          fmt::format(
              "UCX cannot reach rank {}: {}; check that both ranks allow a common transport and device{}",
              p.rank, ucs_status_string(s), p.same_host ? "" : several_interfaces()),
          p.rank};
  }
  TITHE_TRY(unreachable);  // after sending kHello to all ranks that can be reached
  const auto deadline = Clock::now() + timeout;
  const auto late = [&](const Peer& p) {
    return Status(
        Code::kTimeout,
        fmt::format("rank {} did not connect within {:.3g} s; if this rank only starts late, raise timeout{}",
                    p.rank, std::chrono::duration<double>(timeout).count(),
                    p.same_host ? "" : several_interfaces()),
        p.rank);
  };
  for (Peer& p : peers_) {
    while (p.rank != rank_ && (!p.greeted || p.words_in_flight > 0)) {
      // A peer that only closed may have connected successfully before this rank did; a peer that failed ends the wait.
      for (const Peer& other : peers_)
        if (!other.gone.ok() && (other.failed || other.rank == p.rank))
          return {other.gone.code(),
                  other.gone.what() + (other.failed || other.same_host ? "" : several_interfaces()),
                  other.rank};
      if (Clock::now() >= deadline) return late(p);
      if (interrupted && interrupted()) return {Code::kCancelled, "connecting was cancelled"};
      if (!worker_->progress()) nap(100ms);
      tend();
    }
  }
  // The peers receive this rank's kHello only after it has left the send queue, which needs this rank's progress.
  ucp_request_param_t param{};
  ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_->handle(), &param);
  while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS) {
    if (Clock::now() >= deadline || (interrupted && interrupted())) break;
    if (!worker_->progress()) nap(100ms);
    tend();
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
  return {};
}

std::size_t UcxTransport::poll(std::span<Completion> out, std::chrono::nanoseconds wait) {
  const bool patient = wait > 0ns;
  const auto deadline = patient ? Clock::now() + std::min(wait, std::chrono::nanoseconds(24h)) : Clock::now();
  for (;;) {
    const bool any = worker_->progress();
    tend();
    if (next_ < done_.size() || out.empty()) break;
    const auto now = patient ? Clock::now() : deadline;
    if (now >= deadline) break;
    if (any) continue;
    if (nap(std::min<std::chrono::nanoseconds>(deadline - now, kLongestNap))) {
      worker_->progress();
      tend();
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
  return peers_[static_cast<std::size_t>(peer)].gone;
}

std::uint64_t UcxTransport::bytes_received(Rank peer) const {
  return valid(peer) ? peers_[static_cast<std::size_t>(peer)].bytes_received : 0;
}

// ---- Peers
// ------------------------------------------------------------------------------------------------------

void UcxTransport::say(Peer& peer, Word word) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_said;
  param.user_data = &peer;
  if (word == Word::kFailed) {
    const Secret shows =
        proof(word, rank_, peer.rank,
              {reinterpret_cast<const std::uint8_t*>(last_words_.data()), last_words_.size()});
    peer.why.assign(shows.begin(), shows.end());
    peer.why.insert(peer.why.end(), last_words_.begin(), last_words_.end());
  }
  const ByteView shown =
      word == Word::kFailed ? ByteView(peer.why) : ByteView(peer.says[static_cast<std::size_t>(word)]);
  ucs_status_ptr_t r = ucp_tag_send_nbx(peer.ep, shown.data(), shown.size(),
                                        tag_of(static_cast<Channel>(word), rank_) | kWordBit, &param);
  if (UCS_PTR_IS_PTR(r))
    ++peer.words_in_flight;
  else if (UCS_PTR_IS_ERR(r))
    break_off(peer, how_it_ended(UCS_PTR_STATUS(r)));
}

void UcxTransport::on_said(void* request, ucs_status_t status, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  --peer->words_in_flight;
  peer->self->must_tend_ = true;
  if (status != UCS_OK) peer->self->break_off(*peer, how_it_ended(status));
  ucp_request_free(request);
}

// Keeps one receive posted for the control words of all peers.
void UcxTransport::listen() {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = on_heard;
  param.user_data = this;
  for (listening_ = false; !listening_;) {
    listening_ = true;  // until on_heard() runs
    ucs_status_ptr_t r =
        ucp_tag_recv_nbx(worker_->handle(), heard_.data(), heard_.size(), kWordBit, kWordBit, &param);
    if (UCS_PTR_IS_ERR(r)) return;
    word_ = r;
  }
}

void UcxTransport::on_heard(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg) {
  auto* self = static_cast<UcxTransport*>(arg);
  self->listening_ = false;
  self->must_tend_ = true;
  if (status == UCS_OK) self->hear(info->sender_tag, info->length);
  ucp_request_free(request);
}

void UcxTransport::hear(ucp_tag_t tag, std::size_t bytes) {
  const auto source = static_cast<Rank>(tag & kSourceBits);
  if (!valid(source)) return;
  Peer& p = peers_[static_cast<std::size_t>(source)];
  const auto word = static_cast<std::size_t>(tag >> 32);
  if (word == static_cast<std::size_t>(Word::kFailed)) return hear_why(p, ByteView(heard_).first(bytes));
  if (word >= kWords || !equal_secrets(p.shall[word], ByteView(heard_).first(bytes))) return;
  must_tend_ = true;
  switch (static_cast<Word>(word)) {
    case Word::kHello:
      p.greeted = true;
      break;
    case Word::kFarewell:
      p.left = p.answered = p.waits_for_answer = true;
      if (p.gone.ok()) p.gone = {Code::kPeerLost, "it closed in good order", p.rank};
      break;
    case Word::kAnswer:
      p.answered = true;
      break;
    case Word::kFailed:
      break;
  }
}

void UcxTransport::hear_why(Peer& p, ByteView said) {
  if (said.size() < kSecretBytes) return;
  const ByteView text = said.subspan(kSecretBytes);
  if (!equal_secrets(proof(Word::kFailed, p.rank, rank_, text), said.first(kSecretBytes))) return;
  p.left = p.failed = p.answered = p.waits_for_answer = must_tend_ = true;
  if (p.gone.ok())
    p.gone = {
        Code::kPeerLost,
        fmt::format("it could not connect: {}",
                    printable({reinterpret_cast<const char*>(text.data()), text.size()}, kMostLastWords)),
        p.rank};
}

void UcxTransport::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  peer->self->break_off(*peer, how_it_ended(status));
}

void UcxTransport::break_off(Peer& peer, const Status& why) {
  peer.broken = true;
  must_tend_ = true;
  if (peer.gone.ok()) peer.gone = {why.code(), why.what(), peer.rank};
}

// Cancels receives that no message has matched; matched ones end when the connection closes.
void UcxTransport::give_up_receives(Peer& peer) {
  const std::vector<Op*> now(active_);
  for (Op* op : now)
    if (op->peer == peer.rank && op->is_recv && !op->ended) cancel_requests(op);
}

bool UcxTransport::nap(std::chrono::nanoseconds most) {
  const bool woken = worker_->wait(most, watch_.descriptor());
  for (Rank r = watch_.ended(); r >= 0; r = watch_.ended()) {
    worker_->progress();  // first processes a farewell that the process sent before it ended
    break_off(peers_[static_cast<std::size_t>(r)], {Code::kPeerLost, "its process ended"});
  }
  return woken;
}

void UcxTransport::tend() {
  if (withdrawn_ > 0) {
    const auto now = Clock::now();
    for (const Op* op : active_)
      if (op->withdrawn && !op->answered && now >= op->let_go)
        break_off(peers_[static_cast<std::size_t>(op->peer)],
                  {Code::kPeerLost, "it did not complete a cancelled operation"});
  }
  while (must_tend_) {
    must_tend_ = false;
    if (!listening_) listen();
    for (Peer& p : peers_)
      if (p.ep != nullptr || p.closed) tend(p);
  }
}

// Advances the shutdown of a peer: answers its farewell, closes its endpoint, then completes its remaining operations.
void UcxTransport::tend(Peer& p) {
  if (std::exchange(p.waits_for_answer, false)) {
    if (!p.broken) say(p, Word::kAnswer);
    give_up_receives(p);
  }
  if (!p.closed && (p.broken || (p.left && p.words_in_flight == 0))) {
    p.closed = true;
    give_up_receives(p);
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    param.cb.send = on_closed;
    param.user_data = &p;
    p.closing = UCS_PTR_IS_PTR(ucp_ep_close_nbx(std::exchange(p.ep, nullptr), &param));
    must_tend_ = true;
  }
  if (p.closed && !p.closing) {
    give_up_receives(p);
    // UCX never completes a receive whose message had only begun to arrive. No byte can follow, so the receive ends
    // here.
    for (Op* op : active_)
      if (op->peer == p.rank) answer(op, 0, why_not(*op));
  }
}

void UcxTransport::on_closed(void* request, ucs_status_t, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  peer->closing = false;
  peer->self->must_tend_ = true;
  ucp_request_free(request);
}

// Sends a farewell and waits for the answers, so that all sent messages have arrived; then closes UCX.
void UcxTransport::close_now() {
  const auto pump = [&](auto pending, Clock::time_point deadline) {
    while (std::any_of(peers_.begin(), peers_.end(), pending) && Clock::now() < deadline) {
      if (!worker_->progress()) nap(20ms);
      tend();
    }
  };
  const std::vector<Op*> now(active_);
  for (Op* op : now)
    if (!op->answered && !op->withdrawn) withdraw(op);
  for (Peer& p : peers_)
    if (p.ep != nullptr && p.gone.ok()) say(p, last_words_.empty() ? Word::kFarewell : Word::kFailed);
  pump([](const Peer& p) { return p.ep != nullptr && p.greeted && !p.answered && p.gone.ok(); },
       Clock::now() + kFarewellTime);
  for (Peer& p : peers_)
    if (p.ep != nullptr) break_off(p, {Code::kPeerLost, "this rank closed its transport"});
  tend();
  pump([](const Peer& p) { return p.closing; }, Clock::now() + kCloseTime);
  is_over_ = true;
  if (listening_) ucp_request_cancel(worker_->handle(), word_);
  worker_.reset();  // the last callbacks run here, so the operations must still exist
}

}  // namespace tithe::ucx
