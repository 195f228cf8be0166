// SPDX-License-Identifier: Apache-2.0
// Opens a session: parses and checks all options before the session starts threads.
#include <fmt/format.h>

#include "base/bytes.h"
#include "base/environment.h"
#include "base/secret.h"
#include "engine/session/straggler_proxy.h"

namespace tithe::engine {

// Each check has the results of the checks before it. A refused option leaves no thread; only the trace file may exist
// already.
Result<std::unique_ptr<SessionCalls>> open_session(std::unique_ptr<Transport> transport,
                                                   const SessionOptions& options) {
  TITHE_TRY(check_environment());
  if (transport == nullptr) return Status(Code::kInvalid, "a session needs a transport");
  TITHE_TRY(check_members(options.members, transport->world()));
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
  SessionOptions with_link = options;
  if (options.link.empty() && transport->link_rate() > 0)
    with_link.link = fmt::format("{}kB/s", static_cast<double>(transport->link_rate()) / 1e3);
  Result<Choices> choices = choices_of(with_link, transport->world(), *hosts);
  if (!choices.ok()) return choices.status();
  Result<Schedule> schedule = Schedule::parse(options.schedule, choices->defaults().spec);
  if (!schedule.ok()) return schedule.status();
  const Result<Authenticate> authenticate = parse_authenticate(options.authenticate);
  if (!authenticate.ok()) return authenticate.status();
  const Cover checksum = transport->rounds_payloads() ? Cover::kHeader : Cover::kFrame;
  if (checksum == Cover::kHeader) {
    if (*authenticate == Authenticate::kPayloads)
      return Status(Code::kInvalid,
                    "the transport has lossy_card=on, which allows payloads to change in transit, and "
                    "authenticate=payloads refuses changed payloads: set authenticate=headers, or omit "
                    "lossy_card");
    TITHE_TRY(check_plain(*choices, automatic(options)));
  }
  const Result<DeviceChoice> device = parse_device(options.device);
  if (!device.ok()) return device.status();
  const Result<Pacing> pacing = parse_pacing(options.pacer);
  if (!pacing.ok()) return pacing.status();
  if (!advice_option().empty() && !advice_allowances().empty())
    if (const Result<AutoSpec> allowed = parse_auto(advice_allowances()); !allowed.ok())
      return Status(allowed.status().code(), "TITHE_ADVISE_ALLOW: " + allowed.status().what());
  const Result<Stragglers> stragglers = parse_stragglers(options.stragglers);
  if (!stragglers.ok()) return stragglers.status();
  TITHE_TRY(check_stragglers(*stragglers, options));
  TITHE_TRY(check_stragglers(*stragglers, *choices));
  std::unique_ptr<TraceFile> trace;
  if (const std::string pattern = options.trace.empty() ? trace_option() : options.trace; !pattern.empty()) {
    Result<std::unique_ptr<TraceFile>> opened = TraceFile::open(pattern, *transport, options.run);
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
  const bool proxied = stragglers->proxied() && transport->world() > 1;
  SessionSettings settings{.transport = std::move(transport),
                           .options = std::move(with_link),
                           .link_given = !options.link.empty(),
                           .choices = std::move(*choices),
                           .schedule = *schedule,
                           .tagging = {.what = *authenticate, .checksum = checksum},
                           .device = *device,
                           .pacing = *pacing,
                           .trace = std::move(trace),
                           .stragglers = *stragglers,
                           .proposed_job = proposed_job};
  if (proxied) return std::unique_ptr<SessionCalls>(std::make_unique<StragglerProxy>(std::move(settings)));
  return std::unique_ptr<SessionCalls>(std::make_unique<SessionImpl>(std::move(settings)));
}

}  // namespace tithe::engine
