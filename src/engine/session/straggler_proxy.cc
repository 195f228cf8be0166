// SPDX-License-Identifier: Apache-2.0
#include "engine/session/straggler_proxy.h"

#include <fmt/format.h>

#include <cstring>

#include "base/finite.h"
#include "base/text.h"
#include "engine/program/convert.h"

namespace tithe {
namespace {

std::size_t bytes_in(const Tensor& t) { return t.n * bytes_of(t.dtype); }

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> out(t.n);
  const auto& convert = engine::kSimdConversions;
  if (t.n == 0) return out;
  if (t.dtype == DType::kF32)
    std::memcpy(out.data(), t.data, bytes_in(t));
  else
    (t.dtype == DType::kBF16 ? convert.bf16_to_floats : convert.fp16_to_floats)(
        static_cast<const std::uint16_t*>(t.data), t.n, out.data());
  return out;
}

}  // namespace

// ---- The session's functions for the proxy

// Adds a late gradient, whose round ran without it, to the residual. No round may be open.
void Session::Impl::add_unsent(const Tensor& tensor, std::uint64_t round) {
  const std::vector<float> gradient = floats_of(tensor);
  const std::lock_guard lock(mutex_);
  release_undo();
  if (all_finite(gradient) && store_.of(tensor.key).add_unsent(gradient)) return;
  for (const float v : gradient)
    if (is_finite(v) && v != 0.0F) {
      ++values_dropped_;
      sum_dropped_ += double{v};
    }
  say(
      fmt::format("round {} continued without rank {}, and its gradient of tensor '{}' is dropped: the "
                  "gradient, or its sum with the residual, is not finite",
                  round, member_.me, printable(tensor.key, 200)));
}

void Session::Impl::caller_returned() {
  const std::lock_guard lock(mutex_);
  left_ns_ = runner_.now_ns();
  blocked_ns_ = 0;
}

Ticket Session::Impl::late_ticket() {
  const std::lock_guard lock(mutex_);
  return ++last_ticket_;
}

// ---- The thread

void Session::Impl::StragglerProxy::start() {
  thread_ = std::thread([this] { run(); });
}

void Session::Impl::StragglerProxy::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  kick();
  if (thread_.joinable()) thread_.join();
}

void Session::Impl::StragglerProxy::kick() {
  const std::lock_guard lock(kick_mutex_);
  kicked_ = true;
  kick_.notify_one();
}

// The calling lane must not wait for mutex_: a call of the program may hold it while it waits for the lane.
void Session::Impl::StragglerProxy::due(std::uint64_t ended) {
  const std::lock_guard lock(kick_mutex_);
  due_ = ended + 1;
  kicked_ = true;
  kick_.notify_one();
}

bool Session::Impl::StragglerProxy::is_due(std::uint64_t due) const {
  return due == rounds_ + 1 && !open_ && !over_ && settled_ && missed_.size() < how_.without &&
         how_.may_miss(session_.next_round());
}

// The proxy's thread: sleeps until due() or a change of state, and runs the due round without mutex_. A failure of
// the session disables it.
void Session::Impl::StragglerProxy::run() {
  while (true) {
    std::uint64_t due = 0;
    {
      std::unique_lock kicks(kick_mutex_);
      kick_.wait(kicks, [&] { return kicked_; });
      kicked_ = false;
      due = due_;
    }
    std::unique_lock lock(mutex_);
    if (stop_) return;
    if (!is_due(due)) continue;
    standing_ = true;
    Round round;
    round.number = playing_ = session_.next_round();
    lock.unlock();
    Status s;
    try {
      s = play(round);
    } catch (const std::bad_alloc&) {
      s = session_.no_memory("the results of a round that continues without its program");
    }
    lock.lock();
    standing_ = false;
    if (s.ok()) {
      missed_.push_back(std::move(round));
      ++rounds_;
      ++proxied_;
    } else {
      over_ = true;
    }
    changed_.notify_all();
  }
}

// Runs a round with zeros as gradients; the results replace the zeros.
Status Session::Impl::StragglerProxy::play(Round& round) {
  std::vector<Ticket> tickets;
  for (const Bucket& shapes : usual_) {  // no other thread changes it while standing_ is set
    auto& results = round.results.emplace_back();
    std::vector<Tensor> bucket;
    for (const Shape& s : shapes) {
      results.emplace_back(s.dtype == DType::kF32 ? s.n : (s.n + 1) / 2);
      bucket.push_back(
          {.key = s.key, .data = results.back().data(), .n = s.n, .dtype = s.dtype, .row = s.row});
    }
    const Result<Ticket> ticket = session_.sync(bucket, {}, RoundKind::kAllReduce, RoundOwner::kProxy);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket ticket : tickets) TITHE_TRY(session_.wait(ticket));
  TITHE_TRY(session_.commit(RoundOwner::kProxy));
  round.dropped = session_.last_round_dropped();
  return {};
}

// ---- The program

Session::Impl::StragglerProxy::Bucket Session::Impl::StragglerProxy::shape_of(
    std::span<const Tensor> bucket) {
  Bucket out;
  for (const Tensor& t : bucket) out.push_back({std::string(t.key), t.n, t.dtype, t.row});
  return out;
}

Result<Ticket> Session::Impl::StragglerProxy::sync(std::span<const Tensor> bucket, const Origin& origin) {
  if (origin.device >= 0)
    return Status(Code::kUnsupported,
                  "stragglers with without= requires gradients in host memory, and this bucket is on a GPU");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !standing_; });
  if (missed_.empty()) {
    const Result<Ticket> ticket = session_.sync(bucket, origin);
    if (ticket.ok()) {
      open_ = true;
      now_.push_back(shape_of(bucket));
    }
    return ticket;
  }
  const Result<Ticket> ticket = take(bucket);
  lock.unlock();
  if (ticket.ok() && session_.options_.ended) session_.options_.ended(*ticket, {});
  return ticket;
}

// Returns a stored result to the program: the gradient enters the residual, and the result replaces it in the bucket.
// A dropped round discards the gradient, as it does on all ranks.
Result<Ticket> Session::Impl::StragglerProxy::take(std::span<const Tensor> bucket) {
  TITHE_TRY(engine::check_bucket(bucket, RoundKind::kAllReduce, session_.member_.world));
  Round& round = missed_.front();
  if (round.taken == round.results.size() || shape_of(bucket) != usual_[round.taken])
    return Status(
        Code::kInvalid,
        fmt::format("round {} continued without this rank, and its bucket {} had another layout: stragglers "
                    "with without= requires the same buckets in the same order in all rounds",
                    round.number, round.taken));
  auto& results = round.results[round.taken++];
  for (std::size_t k = 0; k < bucket.size(); ++k) {
    if (!round.dropped) session_.add_unsent(bucket[k], round.number);
    if (bucket[k].n > 0) std::memcpy(bucket[k].data, results[k].data(), bytes_in(bucket[k]));
  }
  results = {};
  return *late_.insert(session_.late_ticket()).first;
}

Status Session::Impl::StragglerProxy::wait(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (late_.erase(ticket) > 0) return {};
  }
  return session_.wait(ticket);
}

Result<bool> Session::Impl::StragglerProxy::poll(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (late_.contains(ticket)) return true;
  }
  return session_.poll(ticket);
}

// If results are stored, ends the oldest such round for the program. Otherwise commits the program's own round.
Status Session::Impl::StragglerProxy::commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !standing_; });
  if (!missed_.empty()) {
    Round& round = missed_.front();
    if (round.taken == 0) return {};  // the program's round is not open
    if (round.taken < round.results.size())
      return {Code::kInvalid, fmt::format("round {} continued without this rank, with {} buckets: pass all "
                                          "of them before commit(); this rank passed {}",
                                          round.number, round.results.size(), round.taken)};
    dropped_ = round.dropped;
    missed_.pop_front();
    session_.caller_returned();
    kick();
    return {};
  }
  if (!open_) return session_.runner_.status();
  lock.unlock();
  const std::uint64_t before = session_.next_round();
  const Status s = session_.commit();
  lock.lock();
  if (session_.next_round() == before) {  // the commit failed
    over_ = true;
    return s;
  }
  late_.clear();
  open_ = false;
  settled_ = now_ == usual_;
  usual_ = std::exchange(now_, {});
  dropped_ = session_.last_round_dropped();
  ++rounds_;
  kick();
  return s;
}

bool Session::Impl::StragglerProxy::last_round_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

Status Session::Impl::StragglerProxy::level(std::string_view what, bool for_good) {
  bool open = false;
  {
    const std::lock_guard lock(mutex_);
    open = open_ && !over_;
  }
  if (open) (void)commit();  // a failure appears in the caller's next call
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !standing_; });
  over_ = over_ || (for_good && missed_.empty());
  lock.unlock();
  return check_level(what);
}

Status Session::Impl::StragglerProxy::check_level(std::string_view what) const {
  const std::uint64_t waiting = behind();
  if (waiting == 0) return {};
  return {Code::kInvalid, fmt::format("{}: {} rounds continued without this rank, and it has not received "
                                      "their results: pass its buckets of these rounds first. With level=N "
                                      "in stragglers, all ranks are in the same round after every N-th round",
                                      what, waiting)};
}

std::uint64_t Session::Impl::StragglerProxy::round() const {
  const std::lock_guard lock(mutex_);
  if (!missed_.empty()) return missed_.front().number;
  return standing_ ? playing_ : session_.next_round();
}

std::uint64_t Session::Impl::StragglerProxy::behind() const {
  const std::lock_guard lock(mutex_);
  return missed_.size();
}

std::uint64_t Session::Impl::StragglerProxy::proxied() const {
  const std::lock_guard lock(mutex_);
  return proxied_;
}

}  // namespace tithe
