// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace tithe::tcp {
namespace {

constexpr std::chrono::seconds kGreetingTime{5};

// A listener is a wire that is only waited for.
bool out_of_descriptors() { return errno == EMFILE || errno == ENFILE; }

// Greetings are small and come first: what does not go out at once never does.
bool say(Wire& wire, ByteView bytes) {
  return wire.write(bytes) == static_cast<std::ptrdiff_t>(bytes.size());
}

}  // namespace

Door::~Door() {
  for (Visitor& v : visitors_) v.wire->close();
  for (const auto& l : listeners_) l->close();
}

Status Door::listen(std::vector<Endpoint>& at) {
  for (Endpoint& endpoint : at) {
    Result<UniqueFd> listener = listen_at(endpoint);
    if (!listener.ok()) return listener.status();
    listeners_.push_back(Wire::take(context_, std::move(*listener)));
    if (!listeners_.back())
      return {Code::kIo, "the system has no room to wait for another socket (ulimit -n)"};
  }
  return {};
}

void Door::open(Welcome welcome) {
  welcome_ = std::move(welcome);
  for (const auto& l : listeners_) {
    l->on_readable = [this, listener = l.get()] { accept(*listener); };
    l->await_readable();
  }
}

void Door::accept(Wire& listener) {
  const std::size_t places = std::max<std::size_t>(64, 4 * static_cast<std::size_t>(job_.world));
  for (UniqueFd socket; (socket = accept_from(listener.socket())).is_open();) {
    if (visitors_.size() >= places) remove(visitors_.begin());
    std::shared_ptr<Wire> wire = Wire::take(context_, std::move(socket), job_.papers.get());
    if (!wire) continue;
    visitors_.push_back({.wire = std::move(wire), .since = Clock::now()});
    const auto visitor = std::prev(visitors_.end());
    visitor->wire->on_readable = [this, visitor] { hear(visitor); };
    visitor->wire->await_readable();
  }
  full_ = out_of_descriptors();  // tried again later: a waiting visitor would make this rank spin
  if (!full_) listener.await_readable();
}

void Door::hear(Visitors::iterator visitor) {
  Visitor& v = *visitor;
  for (;;) {
    const bool knocks = v.have < kKnockBytes;
    const Bytes into = knocks ? Bytes(v.knock).subspan(v.have) : Bytes(v.claim).subspan(v.have - kKnockBytes);
    const std::ptrdiff_t n = v.wire->read(into);
    if (n == 0) return v.wire->await_readable();
    if (n < 0) {
      if (v.wire->why().code() == Code::kMismatch) refused_ = v.wire->why().what();
      return remove(visitor);
    }
    v.have += static_cast<std::size_t>(n);
    if (v.have < kKnockBytes || (v.have > kKnockBytes && v.have < kKnockBytes + kClaimBytes)) continue;
    if (!take(v)) return remove(visitor);
    if (v.have == kKnockBytes + kClaimBytes) {
      visitors_.erase(visitor);  // the wire is its new owner's
      return;
    }
  }
}

bool Door::take(Visitor& v) {
  const std::optional<Knock> knock = read_knock(v.knock);
  if (!knock || knock->to != job_.rank || knock->from == job_.rank || knock->from >= job_.world) return false;
  if (!v.wire->is_rank(knock->from)) {
    refused_ = fmt::format("its certificate is not for {}", certificate_name(knock->from));
    return false;
  }
  if (v.have == kKnockBytes)
    return fill_random(v.nonce).ok() && say(*v.wire, write_challenge(job_.key, v.knock, v.nonce));
  if (!equal_secrets(claim(job_.key, v.knock, v.nonce), v.claim)) return false;
  return say(*v.wire, welcome(job_.key, v.knock, v.nonce)) && welcome_(*knock, v.wire);
}

void Door::remove(Visitors::iterator visitor) {
  visitor->wire->close();
  visitors_.erase(visitor);
}

void Door::tend(Clock::time_point now) {
  while (!visitors_.empty() && now >= visitors_.front().since + kGreetingTime) remove(visitors_.begin());
  if (!full_) return;
  if (!visitors_.empty()) remove(visitors_.begin());
  for (const auto& l : listeners_) l->await_readable();
}

Call::Call(asio::io_context& context, const Job& job, const Knock& knock, std::vector<Endpoint> at, Done done)
    : context_(context), job_(job), knock_(knock), at_(std::move(at)), done_(std::move(done)) {}

void Call::begin() { next({Code::kIo, "it has no address that this rank could reach", knock_.to}); }

void Call::hang_up() {
  if (wire_) wire_->close();
  wire_.reset();
}

// The endpoint before failed so.
void Call::next(Status why) {
  hang_up();
  if (next_ == at_.size() && next_ > 0 && tries_ < kTries) {
    next_ = 0;
    ++tries_;
  }
  while (next_ < at_.size()) {
    const Endpoint& to = at_[next_++];
    Result<UniqueFd> socket = connect_to(to, knock_.purpose == Purpose::kData ? job_.tos : 0);
    if (socket.ok())
      wire_ = Wire::take(context_, std::move(*socket), job_.papers.get(), knock_.to,
                         knock_.purpose == Purpose::kData);
    if (!wire_) {
      why = socket.ok() ? Status(Code::kIo, "too few file descriptors (ulimit -n)") : socket.status();
      continue;
    }
    deadline_ = Clock::now() + kGreetingTime;
    have_ = 0;
    wire_->on_writable = [this] { dial(); };
    wire_->await_writable();
    return;
  }
  Done done = std::move(done_);
  done({why.code(), why.what(), knock_.to}, nullptr);
}

void Call::dial() {
  if (const Status s = connected(wire_->socket()); !s.ok()) {
    const Endpoint& to = at_[next_ - 1];
    return next({s.code(), fmt::format("{} (at {}:{})", s.what(), to.address().to_string(), to.port())});
  }
  wire_->on_readable = [this] { greet(); };
  greet();
}

void Call::greet() {
  const std::ptrdiff_t shaken = wire_->shake();
  if (shaken == 0) return wire_->await_readable();
  if (shaken < 0) return next(wire_->why());
  wire_->on_readable = [this] { hear(); };
  if (const Status s = fill_random(knock_.nonce); !s.ok()) return next(s);
  said_ = write_knock(knock_);
  if (!say(*wire_, said_))
    return next(wire_->why().ok() ? Status(Code::kPeerLost, "its connection broke") : wire_->why());
  wire_->await_readable();
}

void Call::hear() {
  for (;;) {
    const std::size_t due = have_ < kChallengeBytes ? kChallengeBytes : kChallengeBytes + kWelcomeBytes;
    const std::ptrdiff_t n = wire_->read(Bytes(heard_).first(due).subspan(have_));
    if (n == 0) return wire_->await_readable();
    if (n < 0) return next(wire_->why());
    have_ += static_cast<std::size_t>(n);
    if (have_ < due) continue;
    const ByteView heard(heard_);
    if (due == kChallengeBytes) {
      const std::optional<Secret> nonce = read_challenge(job_.key, said_, heard.first(kChallengeBytes));
      if (!nonce) return next({Code::kMismatch, "what answers at its address is no rank of this job"});
      nonce_ = *nonce;
      if (!say(*wire_, claim(job_.key, said_, nonce_)))
        return next({Code::kPeerLost, "its connection broke"});
      continue;
    }
    // Its challenge has shown the key, so these bytes were changed on their way; and it may have taken this rank in.
    Status status;
    if (!equal_secrets(welcome(job_.key, said_, nonce_), heard.last(kWelcomeBytes)))
      status = {Code::kCorrupt, "its greeting was damaged on the way", knock_.to};
    Done done = std::move(done_);
    done(status, std::exchange(wire_, nullptr));
    return;
  }
}

void Call::tend(Clock::time_point now) {
  if (wire_ && now >= deadline_) next({Code::kTimeout, "it did not answer"});
}

}  // namespace tithe::tcp
