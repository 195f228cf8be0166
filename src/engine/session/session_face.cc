// SPDX-License-Identifier: Apache-2.0
// The public interface of a session. Calls that differ with a straggler proxy go through SessionCalls, all others to
// the SessionImpl.
#include <fmt/format.h>

#include "base/text.h"
#include "engine/session/session_impl.h"
#include "tithe/session.h"

namespace tithe {

// The public header names no internal type, so this class holds the session.
class Session::Impl {
 public:
  explicit Impl(std::unique_ptr<engine::SessionCalls> opened) : calls_(std::move(opened)) {}
  engine::SessionCalls& calls() { return *calls_; }
  engine::SessionImpl& session() { return calls_->impl(); }

 private:
  const std::unique_ptr<engine::SessionCalls> calls_;
};

namespace {

// Makes the call. If memory runs out, the session ends.
template <typename Call>
Status unless_starved(engine::SessionCalls& session, std::string_view what, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return session.impl().no_memory(std::string(what));
  }
}

// The same for calls that read states. A message may quote text from a state, so it is made printable.
template <typename Call>
Status restored(engine::SessionCalls& session, std::size_t bytes, Call call) {
  const Status s = unless_starved(session, fmt::format("the contents of states of {} bytes", bytes), call);
  constexpr std::size_t kMaxText = 2000;
  return s.ok() ? s : Status(s.code(), printable(s.what(), kMaxText), s.peer());
}

// Closing a transport sends a farewell to all ranks, and takes seconds if one of them is frozen, so it runs in the
// background. With a trace it does not, because the next session needs the file.
template <typename Old>
void leave(std::shared_ptr<Old> old, engine::Runner& next) {
  if (old->session().runner().recorder().on()) return;
  try {
    next.run_in_background([left = std::move(old)]() mutable { left.reset(); });
  } catch (const std::bad_alloc&) {  // `old` is destroyed here
  }
}

}  // namespace

Session::Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
std::shared_ptr<Session::Impl> Session::impl() const {
  const std::lock_guard lock(mutex_);
  return impl_;
}

// If this fails, the other ranks detect that the transport is closed.
Result<std::unique_ptr<Session>> Session::open(std::unique_ptr<Transport> transport,
                                               const SessionOptions& options) {
  const Rank me = transport == nullptr ? Status::kNoPeer : transport->rank();
  try {
    auto opened = engine::open_session(std::move(transport), options);
    if (!opened.ok()) return opened.status();
    return std::unique_ptr<Session>(new Session(std::make_shared<Impl>(std::move(*opened))));
  } catch (const std::bad_alloc&) {
    return Status(Code::kIo, fmt::format("rank {} has no memory to open a session", me), me);
  } catch (const std::system_error& error) {
    return Status(Code::kIo,
                  fmt::format("rank {} cannot start the threads of a session: {}", me, error.what()), me);
  }
}

int Session::rank() const { return impl()->session().member().me; }
int Session::world() const { return impl()->session().member().world; }
Result<Ticket> Session::sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) {
  const auto inside = impl();
  try {
    return inside->calls().sync(bucket, origin, kind);
  } catch (const std::bad_alloc&) {
    return inside->session().no_memory(inside->session().needs(bucket, kind));
  }
}
Status Session::wait(Ticket ticket) {
  const auto inside = impl();
  return unless_starved(inside->calls(), "a wait",
                        [&] { return inside->session().trace_if_ended(inside->calls().wait(ticket)); });
}
Status Session::commit() {
  const auto inside = impl();
  return unless_starved(inside->calls(), "the agreed choices",
                        [&] { return inside->session().trace_if_ended(inside->calls().commit()); });
}
Result<bool> Session::poll(Ticket ticket) { return impl()->calls().poll(ticket); }
Status Session::present() const { return impl()->session().runner().present(); }
std::vector<Rank> Session::missed() const { return impl()->session().runner().missed(); }
void Session::cancel() { impl()->session().runner().cancel(); }
Status Session::evaluated(double loss) {
  const auto inside = impl();
  return unless_starved(inside->calls(), "the end of a round",
                        [&] { return inside->calls().evaluated(loss); });
}
Status Session::learning_rate(double rate) {
  const auto inside = impl();
  return unless_starved(inside->calls(), "the end of a round",
                        [&] { return inside->calls().learning_rate(rate); });
}
double Session::ratio() const { return impl()->session().ratio(); }
Status Session::propose(std::string_view choices, std::uint64_t round) {
  return impl()->session().user_proposes(choices, round);
}
Status Session::propose(std::span<const Rule> rules, std::uint64_t round) {
  return impl()->session().user_proposes(to_json(rules), round);
}
Proposal Session::proposal() const { return impl()->session().proposal(); }
std::string Session::choices() const { return impl()->session().choices(); }
std::vector<std::string> Session::messages() { return impl()->session().messages(); }
std::uint64_t Session::round() const { return impl()->calls().round(); }
bool Session::last_round_dropped() const { return impl()->calls().last_round_dropped(); }
Result<std::vector<std::uint8_t>> Session::state() {
  try {
    return impl()->calls().state(true);
  } catch (const std::bad_alloc&) {  // nothing was changed
    return Status(Code::kIo,
                  "there is no memory for a state, which needs 4 to 8 bytes for each residual value");
  }
}
Result<std::vector<std::uint8_t>> Session::common_state() { return impl()->calls().state(false); }
Status Session::restore(ByteView state) {
  const auto inside = impl();
  return restored(inside->calls(), state.size(), [&] { return inside->calls().restore(state); });
}
Status Session::restore(std::span<const ByteView> states, Lost lost) {
  const auto inside = impl();
  std::size_t bytes = 0;
  for (const ByteView state : states) bytes += state.size();
  return restored(inside->calls(), bytes, [&] { return inside->calls().restore(states, lost); });
}
Status Session::may_reform(Rank rank, int world, const std::vector<std::string>& members,
                           std::uint64_t epoch) const {
  return impl()->calls().may_reform(rank, world, members, epoch);
}

// Makes a new session for the new world, from the state of the last commit. Then the pointer changes, and the old
// session is destroyed with its lanes and its transport. If a step fails before the pointer changes, the old session is
// cancelled and keeps its state.
Status Session::reform(std::unique_ptr<Transport> transport, std::vector<std::string> members,
                       std::uint64_t epoch) {
  std::shared_ptr<Impl> old = impl();
  if (transport == nullptr) return {Code::kInvalid, "reform: a session needs a transport"};
  TITHE_TRY(old->calls().may_reform(transport->rank(), transport->world(), members, epoch));
  TITHE_TRY(old->calls().begin_reform());
  const Rank me = old->session().member().me;
  try {
    old->session().runner().cancel();
    const Result<std::vector<std::uint8_t>> state = old->session().state(true);
    if (!state.ok()) return state.status();
    auto opened =
        engine::open_session(std::move(transport), old->session().options_in(std::move(members), epoch));
    if (!opened.ok()) return opened.status();
    const auto next = std::make_shared<Impl>(std::move(*opened));
    const ByteView mine(*state);
    TITHE_TRY(next->session().restore(std::span(&mine, 1), Lost::kSpread));
    next->session().follow(old->session(), old->calls().stats());
    const std::lock_guard lock(mutex_);
    impl_ = next;
  } catch (const std::bad_alloc&) {
    return {Code::kIo,
            "there is no memory to continue with other ranks, which needs a second copy of the session's "
            "residuals",
            me};
  }
  leave(std::move(old), impl()->session().runner());
  return {};
}
Status Session::undo() { return impl()->session().undo(); }
Status Session::residual(std::string_view key, std::span<float> out) const {
  return impl()->session().residual(key, out);
}
SessionStats Session::stats() const { return impl()->calls().stats(); }
std::vector<TensorStats> Session::tensor_stats() const { return impl()->session().tensor_stats(); }
std::string Session::plan_text() const { return impl()->session().plan_text(); }
void Session::trace(bool on) { impl()->session().runner().recorder().trace(on); }
std::vector<TraceEvent> Session::take_trace() { return impl()->session().runner().recorder().take_trace(); }
bool Session::tracing() const { return impl()->session().runner().recorder().on(); }
Status Session::write_trace() { return impl()->session().write_trace(); }
void Session::mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
  impl()->session().runner().mark(op, begin_ns, end_ns);
}

}  // namespace tithe
