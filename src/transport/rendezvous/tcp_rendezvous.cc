// SPDX-License-Identifier: Apache-2.0
// Rendezvous over TCP: rank 0 collects a blob from each rank and sends all blobs to every rank (messages: handshake.h).
//
// Rank 0's clock decides how long ranks wait. A client that reached rank 0 waits for its answer even if the client
// started earlier, so that all ranks get the same list of missing ranks. If a conversation breaks or is damaged, the
// client starts a new one. Rank 0 stays until each client has confirmed its answer ("thanks").
//
// A client without proof of the token learns nothing, occupies a slot for at most a few seconds, and makes rank 0
// store no more than a claim. The number of slots is limited. If all are used, rank 0 drops the unproved client that
// has waited longest, since a real rank proves itself at once.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <optional>
#include <thread>

#include "transport/rendezvous/handshake.h"
#include "transport/rendezvous/socket.h"

namespace tithe::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kProofTimeout{5};  // a client must prove the token within this time
// Rank 0 answers a request at once. A process that does not answer within this time is not rank 0.
constexpr std::chrono::seconds kAnswerTimeout{10};
// A process that closes every connection for this long is not rank 0 either.
constexpr std::chrono::seconds kHangUpTimeout{3};
constexpr milliseconds kPause{50};
constexpr int kTries = 3;  // conversations that may fail because of damage in transit

// Rank 0's answer about missing ranks may come this much later than this rank's own deadline.
milliseconds grace(const Launch& launch) {
  return std::clamp<milliseconds>(launch.timeout / 10, milliseconds(500), milliseconds(5000));
}

std::string port_in_use_hint() {
  return "under torchrun, torch's own store holds MASTER_PORT: exchange addresses through torch as "
         "tithe.torch "
         "does, or give tithe another port";
}

// A connection on rank 0 while its messages arrive.
struct Client {
  enum class Stage : std::uint8_t { kNothing, kRequest, kClaim, kAll };
  Socket socket;
  Clock::time_point since;
  Blob bytes = Blob(kRequestBytes);  // of the expected message
  std::size_t have = 0;
  Stage stage = Stage::kNothing;
  Handshake shake = {};
  Rank rank = -1;
  bool proved() const { return stage >= Stage::kClaim; }
  bool complete() const { return stage == Stage::kAll; }
  void expect(std::size_t more) {
    bytes.assign(more, 0);
    have = 0;
  }
};

class Server {
 public:
  Server(const Launch& launch, ByteView mine)
      : launch_(launch),
        blobs_(static_cast<std::size_t>(launch.world)),
        came_before_(blobs_.size()),
        confirmed_(blobs_.size()) {
    blobs_[0].assign(mine.begin(), mine.end());
  }

  Result<std::vector<Blob>> run() {
    const Deadline deadline(Clock::now() + launch_.timeout, &launch_.interrupted);
    until_ = deadline.at;
    int why = 0;
    Result<std::vector<Socket>> listeners = listen_at(launch_.host, launch_.port, is_guarded(launch_), &why);
    if (!listeners.ok()) {
      if (why != EADDRINUSE) return listeners.status();
      return Status(Code::kIo, fmt::format("{} ({})", listeners.status().what(), port_in_use_hint()));
    }
    Status status;
    bool cancelled = false;
    while (status.ok() && !missing().empty()) {
      cancelled = deadline.cancelled();
      if (cancelled)
        status = {Code::kPeerLost, "rank 0 cancelled the rendezvous", 0};
      else
        status = Clock::now() >= deadline.at ? timeout_error() : step(*listeners, deadline.at);
    }
    answer_all(*listeners, status, Clock::now() + (cancelled ? milliseconds(500) : grace(launch_)));
    if (cancelled) return cancelled_error();
    if (!status.ok()) return status;
    for (std::size_t r = 1; r < confirmed_.size(); ++r)
      if (confirmed_[r] == 0)
        return Status(Code::kPeerLost, fmt::format("rank {} left during the rendezvous", r),
                      static_cast<Rank>(r));
    return std::move(blobs_);
  }

 private:
  void answer_all(const std::vector<Socket>& listeners, const Status& status, Clock::time_point deadline) {
    answer_ = status;
    for (Client& v : clients_)
      if (v.proved()) answer(v);
    const auto is_proved = [this](const Client& v) { return v.proved(); };
    const auto all_confirmed = [this] {
      return std::count(confirmed_.begin() + 1, confirmed_.end(), char{1}) + 1 == std::ssize(confirmed_);
    };
    // If all ranks came, a client that left without confirming will return, so rank 0 waits for it. If not, rank 0
    // waits only for clients that are connected.
    while (Clock::now() < deadline && !all_confirmed() &&
           (status.ok() || std::any_of(clients_.begin(), clients_.end(), is_proved)))
      (void)step(listeners, deadline);
  }

  void answer(Client& v) {
    const std::string& what = answer_->what();
    const Blob text(what.begin(), what.end());
    const std::span<const Blob> items = answer_->ok() ? std::span<const Blob>(blobs_) : std::span(&text, 1);
    (void)send_all(v.socket, write_answer(v.shake, *answer_, items), Clock::now() + grace(launch_));
    v.stage = Client::Stage::kAll;
  }

  std::vector<Rank> missing() const {
    std::vector<bool> here(blobs_.size());
    here[0] = true;
    for (const Client& v : clients_)
      if (v.complete()) here[static_cast<std::size_t>(v.rank)] = true;
    std::vector<Rank> out;
    for (std::size_t r = 0; r < here.size(); ++r)
      if (!here[r]) out.push_back(static_cast<Rank>(r));
    return out;
  }

  Status timeout_error() const {
    std::vector<Rank> never, left;
    for (const Rank r : missing())
      (came_before_[static_cast<std::size_t>(r)] != 0 ? left : never).push_back(r);
    const std::string leavers =
        fmt::format("rank{} {} connected and left again", left.size() == 1 ? "" : "s", name_ranks(left));
    if (never.empty())
      return {Code::kPeerLost, fmt::format("{} before the rendezvous was complete", leavers), left.front()};
    const Status absent = missing_ranks_error(never, launch_);
    const Status s(absent.code(), left.empty() ? absent.what() : fmt::format("{} {}", absent.what(), leavers),
                   absent.peer());
    if (unproved_closed_ == 0) return s;
    return {s.code(),
            fmt::format(
                "{} ({} process{} connected without this job's token: set the same TITHE_TOKEN on all ranks)",
                s.what(), unproved_closed_, unproved_closed_ == 1 ? "" : "es"),
            s.peer()};
  }

  // Waits for the next event and handles it. Not ok: a rank that proved the token belongs to another world.
  Status step(const std::vector<Socket>& listeners, Clock::time_point deadline) {
    std::vector<pollfd> fds;
    for (const Socket& s : listeners) fds.push_back({.fd = s.get(), .events = POLLIN, .revents = 0});
    for (const Client& v : clients_) fds.push_back({.fd = v.socket.get(), .events = POLLIN, .revents = 0});
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    poll(fds.data(), fds.size(), static_cast<int>(std::clamp<std::int64_t>(left.count(), 1, 100)));
    for (auto v = clients_.begin(); v != clients_.end();) {
      bool keep_open = v->proved() || Clock::now() < v->since + kProofTimeout;
      if (keep_open) TITHE_TRY(read(*v, &keep_open));
      v = keep_open ? std::next(v) : drop(v);
    }
    for (const Socket& listener : listeners)
      for (Socket s = accept_from(listener); s.is_open(); s = accept_from(listener)) {
        limit_unproved();
        clients_.push_back({.socket = std::move(s), .since = Clock::now()});
        bool keep_open = true;
        TITHE_TRY(read(clients_.back(), &keep_open));
        if (!keep_open) drop(std::prev(clients_.end()));  // it may have closed after our challenge
      }
    return {};
  }

  // Drops the oldest unproved client if the limit is reached; clients are in order of arrival.
  void limit_unproved() {
    const std::size_t capacity = 4 * blobs_.size() + 16;
    std::size_t unproved = 0;
    for (const Client& v : clients_) unproved += v.proved() ? 0 : 1;
    if (unproved < capacity) return;
    const auto first =
        std::find_if(clients_.begin(), clients_.end(), [](const Client& v) { return !v.proved(); });
    drop(first);
  }

  std::list<Client>::iterator drop(std::list<Client>::iterator v) {
    if (v->stage == Client::Stage::kRequest) ++unproved_closed_;
    return clients_.erase(v);
  }

  Status read(Client& v, bool* keep_open) {
    for (;;) {
      // A byte is the client's confirmation. An end of the connection means that its rank must return.
      if (v.complete()) {
        std::uint8_t more;
        const std::ptrdiff_t n = recv_some(v.socket, {&more, 1});
        *keep_open = n == 0;
        if (n > 0 && answer_) confirmed_[static_cast<std::size_t>(v.rank)] = 1;
        return {};
      }
      const std::ptrdiff_t n = recv_some(v.socket, std::span(v.bytes).subspan(v.have));
      if (n <= 0) {
        *keep_open = n == 0;
        return {};
      }
      v.have += static_cast<std::size_t>(n);
      if (v.have < v.bytes.size()) continue;
      TITHE_TRY(handle_message(v, keep_open));
      if (!*keep_open) return {};
    }
  }

  // A returning client has closed its earlier connection, but step() may not have read that end yet.
  bool is_connected(Client& complete) {
    bool keep_open = false;
    return read(complete, &keep_open).ok() && keep_open;
  }

  // Handles a complete message.
  Status handle_message(Client& v, bool* keep_open) {
    *keep_open = false;
    switch (v.stage) {
      case Client::Stage::kNothing: {
        const std::optional<Secret> nonce = read_request(v.bytes);
        if (!nonce) return {};
        v.shake = {.token = launch_.token,
                   .client = *nonce,
                   .left = std::chrono::duration_cast<milliseconds>(until_ - Clock::now())};
        TITHE_TRY(fill_random(v.shake.host));
        *keep_open = send_some(v.socket, write_challenge(v.shake));
        v.expect(kClaimBytes);
        v.stage = Client::Stage::kRequest;
        return {};
      }
      case Client::Stage::kRequest: {
        const std::optional<Claim> claim = read_claim(v.bytes, v.shake);
        if (!claim) return {};
        v.stage = Client::Stage::kClaim;
        v.rank = static_cast<Rank>(claim->rank);
        if (claim->world != static_cast<std::uint32_t>(launch_.world))
          return {Code::kMismatch,
                  fmt::format("rank {} was started with world size {}, rank 0 with {}", v.rank, claim->world,
                              launch_.world),
                  v.rank < launch_.world ? v.rank : Status::kNoPeer};
        if (v.rank < 1 || v.rank >= launch_.world)
          return {Code::kMismatch,
                  fmt::format("a process identifies itself as rank {} of {}", v.rank, launch_.world)};
        v.expect(claim->bytes);
        *keep_open = true;
        return {};
      }
      case Client::Stage::kClaim: {
        std::optional<Blob> blob = open_claim(v.bytes, v.shake);
        if (!blob) return {};
        for (Client& other : clients_)
          if (&other != &v && other.complete() && other.rank == v.rank && is_connected(other))
            return {Code::kMismatch, fmt::format("two processes identify themselves as rank {}", v.rank),
                    v.rank};
        v.expect(0);
        *keep_open = true;
        came_before_[static_cast<std::size_t>(v.rank)] = 1;
        v.stage = Client::Stage::kAll;
        if (answer_)  // a returning client; the others got their answers already
          answer(v);
        else
          blobs_[static_cast<std::size_t>(v.rank)] = std::move(*blob);
        return {};
      }
      case Client::Stage::kAll:
        break;
    }
    return {};
  }

  const Launch& launch_;
  std::vector<Blob> blobs_;
  std::list<Client> clients_;
  std::vector<char> came_before_, confirmed_;  // by rank
  std::optional<Status> answer_;               // set: the answer for all clients from now on
  Clock::time_point until_ = {};
  int unproved_closed_ = 0;  // clients that sent a valid request and no proof
};

// One conversation with rank 0. kIo: it can be retried. *verified: the result is rank 0's own answer.
Result<std::vector<Blob>> request_blobs(const Launch& launch, ByteView mine, const Socket& socket,
                                        Deadline deadline, bool* verified) {
  const auto here = [&](const Status& s) {
    return Status(s.code(), fmt::format("{}:{}: {}", launch.host, launch.port, s.what()), s.peer());
  };
  Handshake shake{.token = launch.token};
  TITHE_TRY(fill_random(shake.client));
  TITHE_TRY(send_all(socket, write_request(shake.client), deadline));
  Blob challenge(kChallengeBytes);
  const auto answer_timeout = std::min<milliseconds>(kAnswerTimeout, launch.timeout / 2);
  const Deadline soon = deadline.at_most(Clock::now() + answer_timeout);
  // The first bytes tell whether the other end is tithe's rank 0. Another program may never send the full length.
  const std::size_t first = 4;
  Status s = recv_all(socket, std::span(challenge).first(first), soon);
  if (s.ok() && !has_magic(challenge))
    return Status(Code::kMismatch,
                  fmt::format("the program at {}:{} is not tithe's rank 0 ({})", launch.host, launch.port,
                              port_in_use_hint()),
                  0);
  if (s.ok()) s = recv_all(socket, std::span(challenge).subspan(first), soon);
  if (s.code() == Code::kTimeout && soon.at < deadline.at)
    return Status(
        Code::kTimeout,
        fmt::format("{}:{} did not answer for {} s: rank 0 is blocked, or the program that listens there is "
                    "not tithe's rank 0 ({})",
                    launch.host, launch.port, std::chrono::duration<double>(answer_timeout).count(),
                    port_in_use_hint()),
        0);
  TITHE_TRY(s);
  if (const Status wrong = read_challenge(challenge, shake); !wrong.ok()) return here(wrong);
  TITHE_TRY(send_all(socket, write_claim(shake, static_cast<std::uint32_t>(launch.world), launch.rank, mine),
                     deadline));
  Blob answer(kAnswerBytes);
  const Deadline answer_deadline(std::max(deadline.at, Clock::now() + shake.left) + grace(launch),
                                 deadline.interrupted);
  s = recv_all(socket, answer, answer_deadline);
  const std::optional<std::size_t> bytes = s.ok() ? read_answer(answer, shake, launch.world) : std::nullopt;
  if (s.ok() && !bytes) return here({Code::kCorrupt, "the answer of rank 0 was changed in transit", 0});
  if (s.ok()) {
    answer.assign(*bytes, 0);
    s = recv_all(socket, answer, answer_deadline);
  }
  if (s.code() == Code::kTimeout)
    return Status(
        Code::kTimeout,
        fmt::format("rank 0 is at {}:{}, but did not report within {} s that all ranks connected",
                    launch.host, launch.port, std::chrono::duration<double>(launch.timeout).count()),
        0);
  TITHE_TRY(s);
  Result<std::vector<Blob>> all = open_answer(answer, shake, launch.world, verified);
  if (*verified) (void)send_some(socket, Blob{1});
  return all;
}

Result<std::vector<Blob>> join(const Launch& launch, ByteView mine) {
  const Deadline deadline(Clock::now() + launch.timeout, &launch.interrupted);
  // Until rank 0 answers, it may not have started yet, or another program may listen at its address for a while.
  Status last;
  int tries = 0;
  // The error of a failed conversation. If a later conversation succeeds, the error was damage in transit.
  Status first;
  // The time since which every connection was closed without an answer.
  Clock::time_point closed_since{};
  while (Clock::now() < deadline.at) {
    if (deadline.cancelled()) return cancelled_error();
    Result<Socket> socket = connect_to(launch.host, launch.port, deadline);
    last = socket.status();
    if (last.ok()) {
      bool verified = false;
      Result<std::vector<Blob>> all = request_blobs(launch, mine, *socket, deadline, &verified);
      if (all.ok() || verified) return all;
      last = all.status();
      if (last.code() == Code::kCancelled) return cancelled_error();
      const bool damaged = last.code() == Code::kMismatch || last.code() == Code::kCorrupt;
      if (damaged && first.ok()) first = last;
      if (!first.ok() && (!damaged || ++tries == kTries)) return first;
      if (last.code() != Code::kIo && !damaged) break;
      if (closed_since == Clock::time_point{}) closed_since = Clock::now();
      if (Clock::now() - closed_since >= kHangUpTimeout)
        return Status(Code::kMismatch,
                      fmt::format("the program at {}:{} closes the connection: it is not tithe's rank 0 ({})",
                                  launch.host, launch.port, port_in_use_hint()),
                      0);
    } else if (last.code() == Code::kCancelled) {
      return cancelled_error();
    } else {
      closed_since = {};
    }
    std::this_thread::sleep_for(kPause);
  }
  if (!last.ok() && last.code() != Code::kIo &&
      (last.peer() != Status::kNoPeer || last.code() != Code::kTimeout))
    return last;
  const Status timeout = missing_ranks_error({0}, launch);
  return Status(timeout.code(), timeout.what() + (last.ok() ? "" : fmt::format(" ({})", last.what())), 0);
}

}  // namespace

Result<std::vector<Blob>> over_tcp(const Launch& launch, ByteView mine) {
  if (launch.host.empty() || launch.port < 1 || launch.port > 65535)
    return Status(Code::kInvalid,
                  fmt::format("'{}:{}' is not a valid address for a rendezvous", launch.host, launch.port));
  if (!is_guarded(launch) && !is_loopback(launch.host))
    return Status(
        Code::kInvalid,
        fmt::format("other machines can reach {}, and this job has no token: set TITHE_TOKEN to the same "
                    "value on all ranks (create one with openssl rand -hex 32), or TITHE_TOKEN=none if every "
                    "machine that can reach it is trusted (docs/reference/security.md)",
                    launch.host));
  return launch.rank == 0 ? Server(launch, mine).run() : join(launch, mine);
}

}  // namespace tithe::rendezvous
