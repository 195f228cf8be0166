// SPDX-License-Identifier: Apache-2.0
#include "engine/session/straggler_proxy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/program/convert.h"

namespace tithe::engine {
namespace {

std::size_t bytes_in(const Tensor& t) { return t.n * bytes_of(t.dtype); }

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> out(t.n);
  const auto& convert = kSimdConversions;
  if (t.n == 0) return out;
  if (t.dtype == DType::kF32)
    std::memcpy(out.data(), t.data, bytes_in(t));
  else
    (t.dtype == DType::kBF16 ? convert.bf16_to_floats : convert.fp16_to_floats)(
        static_cast<const std::uint16_t*>(t.data), t.n, out.data());
  return out;
}

}  // namespace

// ---- The thread

// A lane of the session calls due() as soon as the session has begun a round.
StragglerProxy::StragglerProxy(SessionSettings settings)
    : how_(settings.stragglers),
      session_(std::move(settings), {.others_at_least = std::max(settings.transport->world() - how_.ranks, 1),
                                     .share = how_.share,
                                     .due = [this](std::uint64_t ended) { due(ended); }}),
      thread_([this] { run(); }) {}

StragglerProxy::~StragglerProxy() {
  session_.runner().cancel();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  kick();
  thread_.join();
}

void StragglerProxy::kick() {
  const std::lock_guard lock(kick_mutex_);
  kicked_ = true;
  kick_.notify_one();
}

// The calling lane must not wait for mutex_: a call of the program may hold it while it waits for the lane.
void StragglerProxy::due(std::uint64_t ended) {
  const std::lock_guard lock(kick_mutex_);
  due_ = ended + 1;
  kicked_ = true;
  kick_.notify_one();
}

bool StragglerProxy::is_due(std::uint64_t due) const {
  return due == rounds_ + 1 && !open_ && !disabled_ && settled_ && missed_.size() < how_.without &&
         how_.may_miss(session_.round());
}

// The proxy's thread: sleeps until due() or a change of state, and runs the due round without mutex_. A failure of
// the session disables it.
void StragglerProxy::run() {
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
    proxy_runs_ = true;
    Round round;
    round.number = proxy_round_ = session_.round();
    lock.unlock();
    Status s;
    try {
      s = play(round);
    } catch (const std::bad_alloc&) {
      s = session_.no_memory("the results of a round that continues without its program");
    }
    lock.lock();
    proxy_runs_ = false;
    if (s.ok()) {
      missed_.push_back(std::move(round));
      ++rounds_;
      ++proxied_;
    } else {
      disabled_ = true;
    }
    changed_.notify_all();
  }
}

// Runs a round with zeros as gradients; the results replace the zeros.
Status StragglerProxy::play(Round& round) {
  std::vector<Ticket> tickets;
  for (const Bucket& shapes : last_shapes_) {  // no other thread changes it while proxy_runs_ is set
    auto& results = round.results.emplace_back();
    std::vector<Tensor> bucket;
    for (const Shape& s : shapes) {
      results.emplace_back(s.dtype == DType::kF32 ? s.n : (s.n + 1) / 2);
      bucket.push_back(
          {.key = s.key, .data = results.back().data(), .n = s.n, .dtype = s.dtype, .row = s.row});
    }
    const Result<Ticket> ticket = session_.sync_for_proxy(bucket);
    if (!ticket.ok()) return ticket.status();
    tickets.push_back(*ticket);
  }
  for (const Ticket ticket : tickets) TITHE_TRY(session_.wait(ticket));
  TITHE_TRY(session_.commit());
  round.dropped = session_.last_round_dropped();
  return {};
}

// ---- The program

StragglerProxy::Bucket StragglerProxy::shape_of(std::span<const Tensor> bucket) {
  Bucket out;
  for (const Tensor& t : bucket) out.push_back({std::string(t.key), t.n, t.dtype, t.row});
  return out;
}

Result<Ticket> StragglerProxy::sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) {
  if (kind != RoundKind::kAllReduce) {
    TITHE_TRY(session_.runner().status());
    TITHE_TRY(check_bucket(bucket, kind, session_.member().world));
    return Status(
        Code::kUnsupported,
        fmt::format("{}: a straggler proxy has no values to send: open the session with stragglers= "
                    "without the setting without=",
                    name(kind)));
  }
  if (origin.device >= 0)
    return Status(Code::kUnsupported,
                  "stragglers with without= requires gradients in host memory, and this bucket is on a GPU");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !proxy_runs_; });
  if (missed_.empty()) {
    const Result<Ticket> ticket = session_.sync(bucket, origin, kind);
    if (ticket.ok()) {
      open_ = true;
      open_shapes_.push_back(shape_of(bucket));
    }
    return ticket;
  }
  const Result<Ticket> ticket = take(bucket);
  lock.unlock();
  if (ticket.ok() && session_.options().ended) session_.options().ended(*ticket, {});
  return ticket;
}

// Returns a stored result to the program: the gradient enters the residual, and the result replaces it in the bucket.
// A dropped round discards the gradient, as it does on all ranks.
Result<Ticket> StragglerProxy::take(std::span<const Tensor> bucket) {
  TITHE_TRY(check_bucket(bucket, RoundKind::kAllReduce, session_.member().world));
  Round& round = missed_.front();
  if (round.taken == round.results.size() || shape_of(bucket) != last_shapes_[round.taken])
    return Status(
        Code::kInvalid,
        fmt::format("round {} continued without this rank, and its bucket {} had another layout: stragglers "
                    "with without= requires the same buckets in the same order in all rounds",
                    round.number, round.taken));
  auto& results = round.results[round.taken++];
  for (std::size_t k = 0; k < bucket.size(); ++k) {
    if (!round.dropped) session_.add_unsent(bucket[k].key, floats_of(bucket[k]), round.number);
    if (bucket[k].n > 0) std::memcpy(bucket[k].data, results[k].data(), bytes_in(bucket[k]));
  }
  results = {};
  return *late_.insert(session_.issue_ticket()).first;
}

Status StragglerProxy::wait(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (late_.erase(ticket) > 0) return {};
  }
  return session_.wait(ticket);
}

Result<bool> StragglerProxy::poll(Ticket ticket) {
  {
    const std::lock_guard lock(mutex_);
    if (late_.contains(ticket)) return true;
  }
  return session_.poll(ticket);
}

// If results are stored, ends the oldest such round for the program. Otherwise commits the program's own round.
Status StragglerProxy::commit() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !proxy_runs_; });
  if (!missed_.empty()) {
    Round& round = missed_.front();
    if (round.taken == 0) return {};  // the program's round is not open
    if (round.taken < round.results.size())
      return {Code::kInvalid, fmt::format("round {} continued without this rank, with {} buckets: pass all "
                                          "of them before commit(); this rank passed {}",
                                          round.number, round.results.size(), round.taken)};
    dropped_ = round.dropped;
    missed_.pop_front();
    session_.program_returned();
    kick();
    return {};
  }
  if (!open_) return session_.runner().status();
  lock.unlock();
  const std::uint64_t before = session_.round();
  const Status s = session_.commit();
  lock.lock();
  if (session_.round() == before) {  // the commit failed
    disabled_ = true;
    return s;
  }
  late_.clear();
  open_ = false;
  settled_ = open_shapes_ == last_shapes_;
  last_shapes_ = std::exchange(open_shapes_, {});
  dropped_ = session_.last_round_dropped();
  ++rounds_;
  kick();
  return s;
}

bool StragglerProxy::last_round_dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

Status StragglerProxy::level(std::string_view what, bool for_good) {
  bool open = false;
  {
    const std::lock_guard lock(mutex_);
    open = open_ && !disabled_;
  }
  if (open) (void)commit();  // a failure appears in the caller's next call
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !proxy_runs_; });
  disabled_ = disabled_ || (for_good && missed_.empty());
  lock.unlock();
  return check_level(what);
}

Status StragglerProxy::check_level(std::string_view what) const {
  const std::lock_guard lock(mutex_);
  if (missed_.empty()) return {};
  return {Code::kInvalid, fmt::format("{}: {} rounds continued without this rank, and it has not received "
                                      "their results: pass its buckets of these rounds first. With level=N "
                                      "in stragglers, all ranks are in the same round after every N-th round",
                                      what, missed_.size())};
}

std::uint64_t StragglerProxy::round() const {
  const std::lock_guard lock(mutex_);
  if (!missed_.empty()) return missed_.front().number;
  return proxy_runs_ ? proxy_round_ : session_.round();
}

SessionStats StragglerProxy::stats() const {
  SessionStats s = session_.stats();
  const std::lock_guard lock(mutex_);
  s.rounds_missed += proxied_;
  s.rounds_behind = missed_.size();
  return s;
}

// ---- Calls that need all ranks in the same round

Status StragglerProxy::evaluated(double loss) {
  TITHE_TRY(level("evaluated"));
  return session_.evaluated(loss);
}

Status StragglerProxy::learning_rate(double rate) {
  TITHE_TRY(level("learning_rate"));
  return session_.learning_rate(rate);
}

Result<std::vector<std::uint8_t>> StragglerProxy::state(bool residuals) {
  TITHE_TRY(level(residuals ? "state" : "common_state"));
  return session_.state(residuals);
}

Status StragglerProxy::restore(ByteView bytes) {
  TITHE_TRY(level("restore"));
  return session_.restore(bytes);
}

Status StragglerProxy::restore(std::span<const ByteView> states, Lost lost) {
  TITHE_TRY(level("restore"));
  return session_.restore(states, lost);
}

Status StragglerProxy::may_reform(Rank rank, int world, const std::vector<std::string>& members,
                                  std::uint64_t epoch) const {
  TITHE_TRY(session_.may_reform(rank, world, members, epoch));
  return check_level("reform");
}

}  // namespace tithe::engine
