// SPDX-License-Identifier: Apache-2.0
// The public interface of a session: open(), and the calls. If there is a straggler proxy (straggler_proxy.h), the
// program's calls go through it.
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/secret.h"
#include "base/text.h"
#include "engine/session/straggler_proxy.h"
#include "plan/lanes.h"
#include "tithe/seam/machine.h"

namespace tithe {
namespace {

// With a straggler proxy, `what` is allowed only if no result is stored for the program.
template <typename Impl>
Status level(const Impl& impl, std::string_view what) {
  return impl.proxy() == nullptr ? Status{} : impl.proxy()->level(what);
}

// Makes the call. If memory runs out, the session ends.
template <typename Impl, typename Call>
Status unless_starved(Impl& impl, std::string_view what, Call call) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return impl.no_memory(std::string(what));
  }
}

// The same for calls that read states. A message may quote text from a state, so it is made printable.
template <typename Impl, typename Call>
Status restored(Impl& impl, std::size_t bytes, Call call) {
  const Status s = unless_starved(impl, fmt::format("the contents of states of {} bytes", bytes), call);
  constexpr std::size_t kMostText = 2000;
  return s.ok() ? s : Status(s.code(), printable(s.what(), kMostText), s.peer());
}

}  // namespace

Session::Session(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;
std::shared_ptr<Session::Impl> Session::impl() const {
  const std::lock_guard lock(mutex_);
  return impl_;
}

// `options` include the link: the given one, or else the one that the transport detected.
Session::Impl::Impl(std::unique_ptr<Transport> transport, SessionOptions options, bool link_said,
                    Choices choices, Schedule schedule, const engine::Tagging& tagging,
                    const engine::DeviceChoice& device, const engine::Pacing& pacing,
                    std::unique_ptr<engine::TraceFile> trace, const engine::Stragglers& stragglers,
                    std::uint64_t proposed_job)
    : trace_(std::move(trace)),
      options_(std::move(options)),
      cores_(transport->cores()),
      lanes_(options_.lanes.value_or(usual_lanes(cores_.cores, cores_.ranks))),
      member_{
          .me = transport->rank(),
          .world = transport->world(),
          .hosts = choices.usual().hosts,
          .servers = options_.servers,
          .divide = options_.average ? static_cast<float>(transport->world() - options_.servers) : 1.0F,
          .seed = options_.seed,
          .run = engine::run_in(options_.run, options_.epoch),
          .force_reference = options_.force_reference,
          .workers = lanes_ + 1,
          .tagging = {!transport->key().empty(), tagging.what, tagging.checksum},
          .tags = transport->key().empty() ? nullptr : std::make_shared<Tags>(transport->key(), lanes_ + 1),
          .gpus = std::make_shared<engine::Gpus>(device, lanes_ + 1),
          .strangers = engine::strangers_may_speak(*transport)},
      automatic_(automatic_text(options_)),
      link_said_(link_said),
      schedule_(schedule),
      choices_(std::make_shared<const Choices>(std::move(choices))),
      proposed_job_(proposed_job),
      straggler_detector_(stragglers.share, member_.world),
      all_away_(static_cast<std::size_t>(member_.world)),
      proxy_(stragglers.proxied() && member_.world > 1 ? std::make_unique<StragglerProxy>(*this, stragglers)
                                                       : nullptr),
      runner_(std::move(transport), member_, lanes_,
              {options_.timeout, options_.patience, options_.interrupted}, pacing,
              {[this](std::uint32_t number, const std::string& text) { return build(number, text); },
               [this](std::uint32_t number) { discard(number); }},
              options_.ended, proxy_trigger_for(stragglers)) {
  if (trace_ != nullptr) runner_.recorder().keep();
  if (!automatic_.empty() || !advice_option().empty()) start_advisor();
  if (proxy_ != nullptr) proxy_->start();
}

Session::Impl::~Impl() {
  if (proxy_ != nullptr) {
    runner_.cancel();
    proxy_->stop();
  }
  (void)write_trace();
}

engine::ProxyTrigger Session::Impl::proxy_trigger_for(const engine::Stragglers& stragglers) {
  if (proxy_ == nullptr) return {};
  return {.others_at_least = std::max(member_.world - stragglers.ranks, 1),
          .share = stragglers.share,
          .due = [this](std::uint64_t ended) { proxy_->due(ended); }};
}

// Parses and checks all options before the Impl starts threads.
Result<std::unique_ptr<Session>> Session::Impl::open(std::unique_ptr<Transport> transport,
                                                     const SessionOptions& options) {
  TITHE_TRY(check_environment());
  if (transport == nullptr) return Status(Code::kInvalid, "a session needs a transport");
  TITHE_TRY(engine::check_members(options.members, transport->world()));
  if (options.lanes && (*options.lanes < 0 || *options.lanes > 256))
    return Status(Code::kInvalid, fmt::format("lanes={}: must lie in 0 .. 256", *options.lanes));
  if (options.timeout.count() <= 0) return Status(Code::kInvalid, "timeout must be positive");
  if (options.patience < options.timeout)
    return Status(Code::kInvalid, fmt::format("patience={} ms is shorter than timeout={} ms: raise patience",
                                              options.patience.count(), options.timeout.count()));
  Result<Hosts> hosts = transport->hosts();
  if (!options.hosts.empty()) hosts = Hosts::parse(options.hosts, transport->world());
  if (!hosts.ok()) return hosts.status();
  if (options.servers < 0 || options.servers >= transport->world())
    return Status(Code::kInvalid, fmt::format("servers={}: at least one of {} ranks must not be a server",
                                              options.servers, transport->world()));
  SessionOptions told = options;
  if (options.link.empty() && transport->link_rate() > 0)
    told.link = fmt::format("{}kB/s", static_cast<double>(transport->link_rate()) / 1e3);
  Result<Choices> choices = engine::choices_of(told, transport->world(), *hosts);
  if (!choices.ok()) return choices.status();
  Result<Schedule> schedule = Schedule::parse(options.schedule, choices->usual().spec);
  if (!schedule.ok()) return schedule.status();
  const Result<engine::Authenticate> authenticate = engine::parse_authenticate(options.authenticate);
  if (!authenticate.ok()) return authenticate.status();
  const Result<Cover> checksum = engine::parse_checksum(options.checksum, *authenticate);
  if (!checksum.ok()) return checksum.status();
  if (*checksum == Cover::kHeader) TITHE_TRY(engine::check_plain(*choices, engine::automatic(options)));
  const Result<engine::DeviceChoice> device = engine::parse_device(options.device);
  if (!device.ok()) return device.status();
  const Result<engine::Pacing> pacing = engine::parse_pacing(options.pacer);
  if (!pacing.ok()) return pacing.status();
  if (!advice_option().empty() && !advice_allowances().empty())
    if (const Result<AutoSpec> allowed = parse_auto(advice_allowances()); !allowed.ok())
      return Status(allowed.status().code(), "TITHE_ADVISE_ALLOW: " + allowed.status().what());
  const Result<engine::Stragglers> stragglers = engine::parse_stragglers(options.stragglers);
  if (!stragglers.ok()) return stragglers.status();
  TITHE_TRY(engine::check_stragglers(*stragglers, options));
  TITHE_TRY(engine::check_stragglers(*stragglers, *choices));
  std::unique_ptr<engine::TraceFile> trace;
  if (const std::string asked = options.trace.empty() ? trace_option() : options.trace; !asked.empty()) {
    Result<std::unique_ptr<engine::TraceFile>> opened =
        engine::TraceFile::open(asked, *transport, options.run);
    if (!opened.ok()) return opened.status();
    trace = std::move(*opened);
  }
  std::uint64_t proposed_job = 0;
  // Rank 0 proposes the job's random number, which is never zero.
  if (transport->rank() == 0) {
    std::uint8_t drawn[sizeof proposed_job];
    TITHE_TRY(fill_random(drawn));
    proposed_job = wire::get<std::uint64_t>(drawn) | 1;
  }
  return std::unique_ptr<Session>(new Session(std::make_shared<Impl>(
      std::move(transport), std::move(told), !options.link.empty(), std::move(*choices), *schedule,
      engine::Tagging{.what = *authenticate, .checksum = *checksum}, *device, *pacing, std::move(trace),
      *stragglers, proposed_job)));
}

// If this fails, the other ranks detect that the transport is closed.
Result<std::unique_ptr<Session>> Session::open(std::unique_ptr<Transport> transport,
                                               const SessionOptions& options) {
  const Rank me = transport == nullptr ? Status::kNoPeer : transport->rank();
  try {
    return Impl::open(std::move(transport), options);
  } catch (const std::bad_alloc&) {
    return Status(Code::kIo, fmt::format("rank {} has no memory to open a session", me), me);
  } catch (const std::system_error& error) {
    return Status(Code::kIo,
                  fmt::format("rank {} cannot start the threads of a session: {}", me, error.what()), me);
  }
}

int Session::rank() const { return impl()->member().me; }
int Session::world() const { return impl()->member().world; }
Result<Ticket> Session::sync(std::span<const Tensor> bucket, const Origin& origin, RoundKind kind) {
  try {
    const auto inside = impl();
    return inside->proxy() != nullptr && kind == RoundKind::kAllReduce ? inside->proxy()->sync(bucket, origin)
                                                                       : inside->sync(bucket, origin, kind);
  } catch (const std::bad_alloc&) {
    return impl()->no_memory(impl()->needs(bucket, kind));
  }
}
Status Session::wait(Ticket ticket) {
  const auto inside = impl();
  return unless_starved(*inside, "a wait", [&] {
    return inside->told(inside->proxy() != nullptr ? inside->proxy()->wait(ticket) : inside->wait(ticket));
  });
}
Status Session::commit() {
  const auto inside = impl();
  return unless_starved(*inside, "the agreed choices", [&] {
    return inside->told(inside->proxy() != nullptr ? inside->proxy()->commit() : inside->commit());
  });
}
Result<bool> Session::poll(Ticket ticket) {
  const auto inside = impl();
  return inside->proxy() != nullptr ? inside->proxy()->poll(ticket) : inside->poll(ticket);
}
Status Session::present() const { return impl()->runner().present(); }
std::vector<Rank> Session::missed() const { return impl()->runner().missed(); }
void Session::cancel() { impl()->runner().cancel(); }
Status Session::evaluated(double loss) {
  return unless_starved(*impl(), "the end of a round", [&] {
    TITHE_TRY(level(*impl(), "evaluated"));
    return impl()->evaluated(loss);
  });
}
Status Session::learning_rate(double rate) {
  return unless_starved(*impl(), "the end of a round", [&] {
    TITHE_TRY(level(*impl(), "learning_rate"));
    return impl()->learning_rate(rate);
  });
}
double Session::ratio() const { return impl()->ratio(); }
Status Session::propose(std::string_view choices, std::uint64_t round) {
  return impl()->user_proposes(choices, round);
}
Status Session::propose(std::span<const Rule> rules, std::uint64_t round) {
  return impl()->user_proposes(to_json(rules), round);
}
Proposal Session::proposal() const { return impl()->proposal(); }
std::string Session::choices() const { return impl()->choices(); }
std::vector<std::string> Session::messages() { return impl()->messages(); }
std::uint64_t Session::round() const {
  const auto inside = impl();
  return inside->proxy() != nullptr ? inside->proxy()->round() : inside->next_round();
}
bool Session::last_round_dropped() const {
  const auto inside = impl();
  return inside->proxy() != nullptr ? inside->proxy()->last_round_dropped() : inside->last_round_dropped();
}
Result<std::vector<std::uint8_t>> Session::state() {
  TITHE_TRY(level(*impl(), "state"));
  try {
    return impl()->state();
  } catch (const std::bad_alloc&) {  // nothing was changed
    return Status(Code::kIo,
                  "there is no memory for a state, which needs 4 to 8 bytes for each residual value");
  }
}
Result<std::vector<std::uint8_t>> Session::common_state() {
  TITHE_TRY(level(*impl(), "common_state"));
  return impl()->common_state();
}
Status Session::restore(ByteView state) {
  TITHE_TRY(level(*impl(), "restore"));
  return restored(*impl(), state.size(), [&] { return impl()->restore(state); });
}
Status Session::restore(std::span<const ByteView> states, Lost lost) {
  TITHE_TRY(level(*impl(), "restore"));
  std::size_t bytes = 0;
  for (const ByteView state : states) bytes += state.size();
  return restored(*impl(), bytes, [&] { return impl()->restore(states, lost); });
}
Status Session::undo() { return impl()->undo(); }
Status Session::residual(std::string_view key, std::span<float> out) const {
  return impl()->residual(key, out);
}
SessionStats Session::stats() const { return impl()->stats(); }
std::vector<TensorStats> Session::tensor_stats() const { return impl()->tensor_stats(); }
std::string Session::plan_text() const { return impl()->plan_text(); }
void Session::trace(bool on) { impl()->runner().recorder().trace(on); }
std::vector<TraceEvent> Session::take_trace() { return impl()->runner().recorder().take_trace(); }
bool Session::tracing() const { return impl()->runner().recorder().on(); }
Status Session::write_trace() { return impl()->write_trace(); }
void Session::mark(std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
  impl()->runner().mark(op, begin_ns, end_ns);
}

}  // namespace tithe
