// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/ucx_transport.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::ucx {
namespace {

using namespace std::chrono_literals;

// A closing transport waits this long for peers that are alive but do not poll.
constexpr auto kFarewellTime = 2s;
// A cancelled operation whose buffer UCX still uses after this long costs the connection.
constexpr auto kLetGoTime = 1s;
// Keep-alive and deadlines run at least this often while a poll waits.
constexpr auto kLongestNap = std::chrono::nanoseconds(500ms);

// Tags: channel << 32 | source rank; words of the transport itself have bit 31 set.
constexpr ucp_tag_t kWordBit = ucp_tag_t{1} << 31;
constexpr ucp_tag_t tag_of(Channel channel, Rank source) {
  return ucp_tag_t{channel} << 32 | static_cast<ucp_tag_t>(source);
}

}  // namespace

UcxTransport::UcxTransport(Rank rank, int world, std::unique_ptr<Worker> worker)
    : rank_(rank), worker_(std::move(worker)), peers_(static_cast<std::size_t>(world)) {
  for (int r = 0; r < world; ++r) {
    peers_[static_cast<std::size_t>(r)].self = this;
    peers_[static_cast<std::size_t>(r)].rank = r;
  }
}

UcxTransport::~UcxTransport() { close_now(); }

Status UcxTransport::connect(const std::vector<HeardHello>& hellos, std::chrono::seconds timeout) {
  const Home me = my_home();
  listen();
  for (Peer& p : peers_) {
    if (p.rank == rank_) continue;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    const HeardHello& hello = hellos[static_cast<std::size_t>(p.rank)];
    if (hello.home.system == me.system && hello.home.process != me.process)
      watch_.add(p.rank, hello.home.process);
    params.address = reinterpret_cast<const ucp_address_t*>(hello.address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {.cb = on_error, .arg = &p};
    if (const ucs_status_t s = ucp_ep_create(worker_->handle(), &params, &p.ep); s != UCS_OK)
      return {Code::kIo,
              fmt::format("UCX cannot reach rank {}: {}; do both ranks allow a common transport and device?",
                          p.rank, ucs_status_string(s)),
              p.rank};
    say(p, Word::kHello);
  }
  const auto deadline = Clock::now() + timeout;
  const auto late = [&](const Peer& p) {
    return Status(Code::kTimeout, fmt::format("rank {} did not connect within {} s", p.rank, timeout.count()),
                  p.rank);
  };
  for (Peer& p : peers_) {
    while (p.rank != rank_ && (!p.greeted || p.words_in_flight > 0)) {
      if (!p.gone.ok()) return p.gone;
      if (Clock::now() >= deadline) return late(p);
      if (!worker_->progress()) nap(100ms);
      tend();
    }
  }
  // Nobody hears this rank's word before it has left for the wire, which needs this rank's progress.
  ucp_request_param_t param{};
  ucs_status_ptr_t flush = ucp_worker_flush_nbx(worker_->handle(), &param);
  while (UCS_PTR_IS_PTR(flush) && ucp_request_check_status(flush) == UCS_INPROGRESS) {
    if (Clock::now() >= deadline) break;
    if (!worker_->progress()) nap(100ms);
    tend();
  }
  if (UCS_PTR_IS_PTR(flush)) ucp_request_free(flush);
  return {};
}

// ---- Operations
// ------------------------------------------------------------------------------------------------------

Status UcxTransport::send(Rank peer, Channel channel, ByteView bytes, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("send to rank {} of {}", peer, world())};
  Peer& p = peers_[static_cast<std::size_t>(peer)];
  Op* op = take_op(peer, id, false);
  if (!p.gone.ok()) {
    answer(op, 0, p.gone);
    release(op);
    return {};
  }
  bytes_sent_ += bytes.size();
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.cb.send = on_sent;
  param.user_data = op;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  ucs_status_ptr_t r = ucp_tag_send_nbx(p.ep, bytes.data(), bytes.size(), tag_of(channel, rank_), &param);
  if (UCS_PTR_IS_PTR(r))
    op->request = r;
  else
    finish(op, bytes.size(), UCS_PTR_STATUS(r));
  return {};
}

Status UcxTransport::recv(Rank peer, Channel channel, Bytes into, OpId id) {
  if (!valid(peer)) return {Code::kInvalid, fmt::format("recv from rank {} of {}", peer, world())};
  const Peer& p = peers_[static_cast<std::size_t>(peer)];
  Op* op = take_op(peer, id, true);
  if (!p.gone.ok() && !p.left) {
    answer(op, 0, p.gone);
    release(op);
    return {};
  }
  // A message that is here already completes at once; UCX 1.13 tells its length only to the callback, hence
  // NO_IMM_CMPL, under which the callback may run before the call returns.
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = on_received;
  param.user_data = op;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  ucs_status_ptr_t r = ucp_tag_recv_nbx(worker_->handle(), into.data(), into.size(), tag_of(channel, peer),
                                        ~ucp_tag_t{0}, &param);
  if (op->ended) return {};
  if (!UCS_PTR_IS_PTR(r)) {
    finish(op, 0, UCS_PTR_STATUS(r));
    return {};
  }
  op->request = r;
  if (p.left) {  // nothing of a peer that left is still under way
    ucp_request_cancel(worker_->handle(), r);
    must_tend_ = true;
  }
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

void UcxTransport::cancel(OpId id) {
  const auto it = std::find_if(active_.begin(), active_.end(),
                               [&](const Op* op) { return op->id == id && !op->answered && !op->withdrawn; });
  if (it != active_.end()) withdraw(*it);
}

void UcxTransport::withdraw(Op* op) {
  op->withdrawn = true;
  op->let_go = Clock::now() + kLetGoTime;
  ++withdrawn_;
  ucp_request_cancel(worker_->handle(), op->request);  // completes it through its callback, now or later
}

Status UcxTransport::peer_status(Rank peer) const {
  if (peer < 0 || peer >= world()) return {Code::kInvalid, fmt::format("no rank {} of {}", peer, world())};
  return peers_[static_cast<std::size_t>(peer)].gone;
}

UcxTransport::Op* UcxTransport::take_op(Rank peer, OpId id, bool is_recv) {
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

void UcxTransport::answer(Op* op, std::size_t bytes, Status status) {
  if (op->answered) return;
  op->answered = true;
  done_.push_back({.op = op->id, .bytes = bytes, .status = std::move(status)});
}

// UCX is done with the operation.
void UcxTransport::finish(Op* op, std::size_t bytes, ucs_status_t status) {
  Peer& p = peers_[static_cast<std::size_t>(op->peer)];
  if (status == UCS_OK) {
    if (op->is_recv) p.received += bytes;
    answer(op, bytes, {});
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    answer(op, 0,
           {Code::kTooSmall,
            fmt::format("a message of rank {} is larger than the buffer posted for it", p.rank), p.rank});
  } else if (op->withdrawn) {
    answer(op, 0, {Code::kCancelled, "withdrawn", p.rank});
  } else {
    if (p.gone.ok()) break_off(p, ucs_status_string(status));
    answer(op, 0, p.gone);
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
  op->self->finish(op, status == UCS_OK ? info->length : 0, status);
  ucp_request_free(request);
}

// ---- Peers
// ------------------------------------------------------------------------------------------------------

void UcxTransport::say(Peer& peer, Word word) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = on_said;
  param.user_data = &peer;
  ucs_status_ptr_t r =
      ucp_tag_send_nbx(peer.ep, nullptr, 0, tag_of(static_cast<Channel>(word), rank_) | kWordBit, &param);
  if (UCS_PTR_IS_PTR(r))
    ++peer.words_in_flight;
  else if (UCS_PTR_IS_ERR(r))
    break_off(peer, ucs_status_string(UCS_PTR_STATUS(r)));
}

void UcxTransport::on_said(void* request, ucs_status_t status, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  --peer->words_in_flight;
  peer->self->must_tend_ = true;
  if (status != UCS_OK) peer->self->break_off(*peer, ucs_status_string(status));
  ucp_request_free(request);
}

// One receive for the words of all peers stands at any time.
void UcxTransport::listen() {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = on_heard;
  param.user_data = this;
  for (listening_ = false; !listening_;) {
    listening_ = true;  // until on_heard
    ucs_status_ptr_t r = ucp_tag_recv_nbx(worker_->handle(), nullptr, 0, kWordBit, kWordBit, &param);
    if (UCS_PTR_IS_ERR(r)) return;
    word_ = r;
  }
}

void UcxTransport::on_heard(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* arg) {
  auto* self = static_cast<UcxTransport*>(arg);
  self->listening_ = false;
  self->must_tend_ = true;
  if (status == UCS_OK) self->hear(info->sender_tag);
  ucp_request_free(request);
}

void UcxTransport::hear(ucp_tag_t tag) {
  const auto source = static_cast<Rank>(tag & (kWordBit - 1));
  if (!valid(source)) return;
  Peer& p = peers_[static_cast<std::size_t>(source)];
  must_tend_ = true;
  switch (static_cast<Word>(tag >> 32)) {
    case Word::kHello:
      p.greeted = true;
      break;
    case Word::kFarewell:
      p.left = p.answered = p.waits_for_answer = true;
      if (p.gone.ok())
        p.gone = {Code::kPeerLost, fmt::format("rank {} is gone: it closed its transport", p.rank), p.rank};
      break;
    case Word::kAnswer:
      p.answered = true;
      break;
  }
}

void UcxTransport::on_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  peer->self->break_off(*peer, ucs_status_string(status));
}

void UcxTransport::break_off(Peer& peer, std::string why) {
  peer.broken = true;
  must_tend_ = true;
  if (peer.gone.ok())
    peer.gone = {Code::kPeerLost, fmt::format("rank {} is gone: {}", peer.rank, why), peer.rank};
}

// Ends receives that no message has met; those that one has met end with the connection.
void UcxTransport::give_up_receives(Peer& peer) {
  const std::vector<Op*> now(active_);
  for (Op* op : now)
    if (op->peer == peer.rank && op->is_recv && !op->answered && op->request != nullptr)
      ucp_request_cancel(worker_->handle(), op->request);
}

bool UcxTransport::nap(std::chrono::nanoseconds most) {
  const bool woken = worker_->wait(most, watch_.descriptor());
  for (Rank r = watch_.ended(); r >= 0; r = watch_.ended()) {
    worker_->progress();  // a farewell that it sent before it ended comes first
    break_off(peers_[static_cast<std::size_t>(r)], "its process ended");
  }
  return woken;
}

void UcxTransport::tend() {
  if (withdrawn_ > 0) {
    const auto now = Clock::now();
    for (const Op* op : active_)
      if (op->withdrawn && !op->answered && now >= op->let_go)
        break_off(peers_[static_cast<std::size_t>(op->peer)], "it did not let go of a cancelled operation");
  }
  while (must_tend_) {
    must_tend_ = false;
    if (!listening_) listen();
    for (Peer& p : peers_)
      if (p.ep != nullptr || p.closed) tend(p);
  }
}

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
    // UCX forgets a receive whose message had begun to arrive: no byte can follow, so it ends here.
    for (Op* op : active_)
      if (op->peer == p.rank)
        answer(op, 0, op->withdrawn ? Status(Code::kCancelled, "withdrawn", p.rank) : p.gone);
  }
}

void UcxTransport::on_closed(void* request, ucs_status_t, void* arg) {
  auto* peer = static_cast<Peer*>(arg);
  peer->closing = false;
  peer->self->must_tend_ = true;
  ucp_request_free(request);
}

// Says farewell and waits for the answers, so that what was sent has arrived; then lets UCX go.
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
    if (p.ep != nullptr && p.gone.ok()) say(p, Word::kFarewell);
  pump([](const Peer& p) { return p.ep != nullptr && p.greeted && !p.answered && p.gone.ok(); },
       Clock::now() + kFarewellTime);
  for (Peer& p : peers_)
    if (p.ep != nullptr) break_off(p, "this rank closed its transport");
  tend();
  pump([](const Peer& p) { return p.closing; }, Clock::now() + kLetGoTime);
  if (listening_) ucp_request_cancel(worker_->handle(), word_);
  worker_.reset();  // the last callbacks come from here: the operations must still exist
}

}  // namespace tithe::ucx
