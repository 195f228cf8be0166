// SPDX-License-Identifier: Apache-2.0
// Both sides of the handshake (tcp_handshake.h) as state machines on non-blocking wires.
#include "transport/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace tithe::tcp {
namespace {

constexpr std::chrono::seconds kGreetingTime{5};

// True if the last accept() failed for lack of file descriptors.
bool out_of_descriptors() { return errno == EMFILE || errno == ENFILE; }

// Handshake messages are the first bytes on a connection and small, so the socket's buffer has room for all of one.
bool write_all(Wire& wire, ByteView bytes) {
  return wire.write(bytes) == static_cast<std::ptrdiff_t>(bytes.size());
}

}  // namespace

Listener::~Listener() {
  for (PendingConnection& v : pending_) v.wire->close();
  for (const auto& l : listeners_) l->close();
}

Status Listener::listen(std::vector<Endpoint>& at) {
  for (Endpoint& endpoint : at) {
    Result<UniqueFd> listener = listen_at(endpoint);
    if (!listener.ok()) return listener.status();
    listeners_.push_back(Wire::adopt(context_, std::move(*listener)));
    if (!listeners_.back())
      return {Code::kIo,
              "the system cannot watch another socket: raise the limit of descriptors (ulimit -n)"};
  }
  return {};
}

void Listener::open(OnAccept welcome) {
  on_accept_ = std::move(welcome);
  for (const auto& l : listeners_) {
    l->on_readable = [this, listener = l.get()] { accept(*listener); };
    l->await_readable();
  }
}

void Listener::accept(Wire& listener) {
  const std::size_t capacity = std::max<std::size_t>(64, 4 * static_cast<std::size_t>(job_.world));
  for (UniqueFd socket; (socket = accept_from(listener.socket())).is_open();) {
    if (pending_.size() >= capacity) remove(pending_.begin());
    std::shared_ptr<Wire> wire = Wire::adopt(context_, std::move(socket), job_.credentials.get());
    if (!wire) continue;
    pending_.push_back({.wire = std::move(wire), .since = Clock::now()});
    const auto pending = std::prev(pending_.end());
    pending->wire->on_readable = [this, pending] { read_pending(pending); };
    pending->wire->await_readable();
  }
  full_ = out_of_descriptors();  // retried later: waiting for readability now would make this rank spin
  if (!full_) listener.await_readable();
}

// Reads the request and then the claim of a pending connection.
void Listener::read_pending(PendingConnections::iterator pending) {
  PendingConnection& v = *pending;
  for (;;) {
    const bool is_request = v.have < kConnectRequestBytes;
    const Bytes into =
        is_request ? Bytes(v.request).subspan(v.have) : Bytes(v.claim).subspan(v.have - kConnectRequestBytes);
    const std::ptrdiff_t n = v.wire->read(into);
    if (n == 0) return v.wire->await_readable();
    if (n < 0) {
      if (v.wire->error().code() == Code::kMismatch) refused_ = v.wire->error().what();
      return remove(pending);
    }
    v.have += static_cast<std::size_t>(n);
    if (v.have < kConnectRequestBytes ||
        (v.have > kConnectRequestBytes && v.have < kConnectRequestBytes + kClaimBytes))
      continue;
    if (!handle_pending(v)) return remove(pending);
    if (v.have == kConnectRequestBytes + kClaimBytes) {
      pending_.erase(pending);  // on_accept_ owns the wire now
      return;
    }
  }
}

bool Listener::handle_pending(PendingConnection& v) {
  const std::optional<ConnectRequest> request = read_request(v.request);
  if (!request || request->to != job_.rank || request->from == job_.rank || request->from >= job_.world)
    return false;
  if (!v.wire->is_rank(request->from)) {
    refused_ = fmt::format("its certificate is not issued for {}", certificate_name(request->from));
    return false;
  }
  if (v.have == kConnectRequestBytes)
    return fill_random(v.nonce).ok() && write_all(*v.wire, write_challenge(job_.key, v.request, v.nonce));
  if (!equal_secrets(claim(job_.key, v.request, v.nonce), v.claim)) return false;
  return write_all(*v.wire, welcome(job_.key, v.request, v.nonce)) && on_accept_(*request, v.wire);
}

void Listener::remove(PendingConnections::iterator pending) {
  pending->wire->close();
  pending_.erase(pending);
}

void Listener::maintain(Clock::time_point now) {
  while (!pending_.empty() && now >= pending_.front().since + kGreetingTime) remove(pending_.begin());
  if (!full_) return;
  if (!pending_.empty()) remove(pending_.begin());
  for (const auto& l : listeners_) l->await_readable();
}

Connector::Connector(asio::io_context& context, const Job& job, const ConnectRequest& request,
                     std::vector<Endpoint> at, Done done)
    : context_(context), job_(job), request_(request), at_(std::move(at)), done_(std::move(done)) {}

void Connector::begin() { next({Code::kIo, "it has no address that this rank can reach", request_.to}); }

void Connector::close() {
  if (wire_) wire_->close();
  wire_.reset();
}

// Starts the next attempt; `why` is the error of the previous one.
void Connector::next(Status why) {
  close();
  if (next_ == at_.size() && next_ > 0 && tries_ < kTries) {
    next_ = 0;
    ++tries_;
  }
  while (next_ < at_.size()) {
    const Endpoint& to = at_[next_++];
    Result<UniqueFd> socket = connect_to(to, request_.purpose == Purpose::kData ? job_.tos : 0);
    if (socket.ok())
      wire_ = Wire::adopt(context_, std::move(*socket), job_.credentials.get(), request_.to,
                          request_.purpose == Purpose::kData);
    if (!wire_) {
      why = socket.ok() ? Status(Code::kIo, "too few file descriptors: raise the limit (ulimit -n)")
                        : socket.status();
      continue;
    }
    deadline_ = Clock::now() + kGreetingTime;
    have_ = 0;
    wire_->on_writable = [this] { connect(); };
    wire_->await_writable();
    return;
  }
  Done done = std::move(done_);
  done({why.code(), why.what(), request_.to}, nullptr);
}

void Connector::connect() {
  if (const Status s = connected(wire_->socket()); !s.ok()) {
    const Endpoint& to = at_[next_ - 1];
    return next({s.code(), fmt::format("{} (at {}:{})", s.what(), to.address().to_string(), to.port())});
  }
  wire_->on_readable = [this] { send_request(); };
  send_request();
}

void Connector::send_request() {
  const std::ptrdiff_t shaken = wire_->handshake();
  if (shaken == 0) return wire_->await_readable();
  if (shaken < 0) return next(wire_->error());
  wire_->on_readable = [this] { read_reply(); };
  if (const Status s = fill_random(request_.nonce); !s.ok()) return next(s);
  request_bytes_ = write_request(request_);
  if (!write_all(*wire_, request_bytes_))
    return next(wire_->error().ok() ? Status(Code::kPeerLost, "its connection broke") : wire_->error());
  wire_->await_readable();
}

void Connector::read_reply() {
  for (;;) {
    const std::size_t expected = have_ < kChallengeBytes ? kChallengeBytes : kChallengeBytes + kWelcomeBytes;
    const std::ptrdiff_t n = wire_->read(Bytes(reply_).first(expected).subspan(have_));
    if (n == 0) return wire_->await_readable();
    if (n < 0) return next(wire_->error());
    have_ += static_cast<std::size_t>(n);
    if (have_ < expected) continue;
    const ByteView reply(reply_);
    if (expected == kChallengeBytes) {
      const std::optional<Secret> nonce =
          read_challenge(job_.key, request_bytes_, reply.first(kChallengeBytes));
      if (!nonce) return next({Code::kMismatch, "the process at its address is not a rank of this job"});
      nonce_ = *nonce;
      if (!write_all(*wire_, claim(job_.key, request_bytes_, nonce_)))
        return next({Code::kPeerLost, "its connection broke"});
      continue;
    }
    // The challenge proved that the other end has the key, so the welcome was damaged in transit. The other end may
    // have accepted this rank already, so the connection is not retried.
    Status status;
    if (!equal_secrets(welcome(job_.key, request_bytes_, nonce_), reply.last(kWelcomeBytes)))
      status = {Code::kCorrupt, "its handshake was damaged in transit", request_.to};
    Done done = std::move(done_);
    done(status, std::exchange(wire_, nullptr));
    return;
  }
}

void Connector::maintain(Clock::time_point now) {
  if (wire_ && now >= deadline_) next({Code::kTimeout, "it did not answer"});
}

}  // namespace tithe::tcp
