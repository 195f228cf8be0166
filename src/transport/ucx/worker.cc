// SPDX-License-Identifier: Apache-2.0
// Configures UCX: no output, no signal handlers, keep-alive by the session's `silence`, and protocols that suit the
// links. UCX_TLS, UCX_NET_DEVICES and the UCX_RNDV_ variables of the environment stay in force.
#include "transport/ucx/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>

#include "transport/ucx/causes.h"
#include "transport/ucx/descriptors.h"

namespace tithe::ucx {
namespace {

constexpr std::int64_t kMaxProbes = 120;  // the kernel's limit is 127

using Config = std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)>;

// UCX's process-wide state does not allow two concurrent calls of ucp_init(), which ranks in threads would make.
std::mutex& init_mutex() {
  static std::mutex m;
  return m;
}

// A library must not print. UCX prints "diag" and "error" lines to stdout when a peer dies. A log level that the user
// set in UCX's variables stays.
void quieten() {
  if (ucs_global_opts.log_component.log_level == UCS_LOG_LEVEL_WARN)
    ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_FATAL;
}

// A library must not change the process' signal handlers. UCX installs handlers for SIGHUP, SIGSEGV and similar signals
// when it is loaded. tithe depends on UCX, so it is loaded right after UCX, and then restores the earlier handlers,
// such as those of faulthandler. If the user set UCX's variables for this, they stay in force.
[[gnu::constructor]] void give_signals_back() {
  const auto log_level = std::exchange(ucs_global_opts.log_component.log_level, UCS_LOG_LEVEL_FATAL);
  if (ucs_global_opts.handle_errors == UCS_BIT(UCS_HANDLE_ERROR_BACKTRACE) &&  // the default
      std::getenv("UCX_HANDLE_ERRORS") == nullptr && std::getenv("UCX_ERROR_SIGNALS") == nullptr)
    for (unsigned i = 0; i < ucs_global_opts.error_signals.count; ++i)
      ucs_debug_disable_signal(ucs_global_opts.error_signals.signals[i]);
  if (ucs_global_opts.debug_signo > 0 && std::getenv("UCX_DEBUG_SIGNO") == nullptr)
    ucs_debug_disable_signal(static_cast<int>(ucs_global_opts.debug_signo));
  ucs_global_opts.log_component.log_level = log_level;
}

// True if process_vm_readv() works here. A seccomp filter may forbid it, and so does Yama's ptrace_scope from 2 on. At
// 1, UCX permits it for its own processes.
bool can_read_other_processes() {
  char from = 'x', to = 0;
  const iovec local{.iov_base = &to, .iov_len = 1}, remote{.iov_base = &from, .iov_len = 1};
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 && scope < 2;
}

// The lines that a printing function of UCX writes.
template <typename Print>
std::vector<std::string> lines_of(const Print& print) {
  char* text = nullptr;
  std::size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (stream == nullptr) return {};
  print(stream);
  std::fclose(stream);
  std::istringstream all(std::string(text, length));
  std::free(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(all, line);) lines.push_back(std::move(line));
  return lines;
}

// The value of a variable such as "UCX_TLS" in UCX's configuration, which includes the environment.
std::string value_of(const ucp_config_t* config, std::string_view variable) {
  for (const std::string& line :
       lines_of([&](FILE* stream) { ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG); }))
    if (line.starts_with(variable) && line.size() > variable.size() && line[variable.size()] == '=')
      return line.substr(variable.size() + 1);
  return {};
}

// "tcp/eth0" from "#  resource 2  :  md 1  dev 2  flags -- tcp/eth0".
std::vector<std::string> devices_of(ucp_context_h context) {
  std::vector<std::string> devices;
  for (const std::string& line : lines_of([&](FILE* stream) { ucp_context_print_info(context, stream); })) {
    const std::size_t flags = line.find(" flags ");
    if (line.find("resource ") == std::string::npos || flags == std::string::npos) continue;
    std::string device = line.substr(line.find_last_of(' ') + 1);
    if (!device.starts_with("self/")) devices.push_back(std::move(device));
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

bool has_rdma(const std::vector<std::string>& devices) {
  return std::any_of(devices.begin(), devices.end(), [](const std::string& device) {
    return device.starts_with("rc_") || device.starts_with("ud_") || device.starts_with("dc_");
  });
}

constexpr ucp_params_t kParams = [] {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  return params;
}();

// The transports and devices that UCX finds without any restriction, to choose from.
std::string ways_here() {
  ucp_config_t* handle = nullptr;
  if (ucp_config_read(nullptr, nullptr, &handle) != UCS_OK) return {};
  const Config config(handle, ucp_config_release);
  ucp_context_h context = nullptr;
  if (ucp_config_modify(handle, "TLS", "all") != UCS_OK ||
      ucp_config_modify(handle, "NET_DEVICES", "all") != UCS_OK ||
      ucp_init(&kParams, handle, &context) != UCS_OK)
    return {};
  const std::string text = fmt::format("{}", fmt::join(devices_of(context), ", "));
  ucp_cleanup(context);
  return text;
}

// Explains why UCX opened no context: the requested values, their origin, and the available ones.
Status no_context(const ucp_config_t* config, const Options& options, ucs_status_t status) {
  const auto requested = [&](const char* variable, const std::string& passed) {
    if (!passed.empty()) return fmt::format("{}={} (as passed)", variable, passed);
    const std::string value = value_of(config, variable);
    return value == "all" ? std::string() : fmt::format("{}={} (the environment's)", variable, value);
  };
  const std::string transports = requested("UCX_TLS", options.transports);
  const std::string devices = requested("UCX_NET_DEVICES", options.devices);
  const std::string there = ways_here();
  return ucx_error(
      fmt::format("opening with {}{}{}", transports.empty() && devices.empty() ? "all it has" : transports,
                  transports.empty() || devices.empty() ? "" : " and ", devices),
      status, there.empty() ? "it finds no device on this machine" : "this machine has " + there);
}

Status modify(ucp_config_t* config, const char* key, const std::string& value) {
  const ucs_status_t s = ucp_config_modify(config, key, value.c_str());
  if (s == UCS_OK) return {};
  return {Code::kInvalid,
          fmt::format("UCX rejects {}={}: {}{}", key, value, ucs_status_string(s), another_ucx())};
}

}  // namespace

Status connection_error(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_ENDPOINT_TIMEOUT:  // also after a reset: UCX over TCP does not distinguish them
      return {Code::kTimeout, "its connection broke or reached a timeout"};
    case UCS_ERR_CONNECTION_RESET:
      return {Code::kPeerLost, "its connection was reset"};
    case UCS_ERR_UNREACHABLE:
      return {Code::kPeerLost, "it cannot be reached"};
    default:
      return {Code::kPeerLost, fmt::format("its connection failed: {}", ucs_status_string(status))};
  }
}

Status ucx_error(std::string_view doing, ucs_status_t status, std::string_view more) {
  return {Code::kIo,
          fmt::format("UCX, {}: {}{}{}", doing, ucs_status_string(status), more.empty() ? "" : "; ", more)};
}

Result<std::unique_ptr<Worker>> Worker::open(const Options& options, std::chrono::milliseconds silence,
                                             int world) {
  std::unique_ptr<Worker> worker(new Worker);
  if (const Status s = worker->start(options, silence, world); !s.ok()) return s;
  return worker;
}

Status Worker::start(const Options& options, std::chrono::milliseconds silence, int world) {
  TITHE_TRY(Sockets::usable());  // in a child of fork() the mutex may stay locked forever
  const std::lock_guard lock(init_mutex());
  TITHE_TRY(check_descriptors(world));
  quieten();
  ucp_config_t* handle = nullptr;
  if (const ucs_status_t s = ucp_config_read(nullptr, nullptr, &handle); s != UCS_OK)
    return ucx_error("reading its configuration", s);
  const Config config(handle, ucp_config_release);
  if (!options.transports.empty()) TITHE_TRY(modify(handle, "TLS", options.transports));
  if (!options.devices.empty()) TITHE_TRY(modify(handle, "NET_DEVICES", options.devices));
  // The interval of UCX's keep-alive messages; the default is 20 s. Over TCP a failed keep-alive is reported only after
  // the kernel has retransmitted it for a quarter of an hour, so the session itself must detect a cut link.
  TITHE_TRY(modify(handle, "KEEPALIVE_INTERVAL", "1s"));
  // A rank that does not poll sends no keep-alive message. For it the kernel probes the connection about every second.
  // UCX would make the kernel give up after 28 s, whatever `silence` is.
  const auto probes = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(silence).count());
  const std::int64_t interval = (probes + kMaxProbes - 1) / kMaxProbes;
  // UCX 1.13 retries a connection with a blocking call, which takes two minutes on a cut link.
  TITHE_TRY(modify(handle, "MAX_CONN_RETRIES", "1"));
  TITHE_TRY(modify(handle, "KEEPIDLE", "1s"));
  // UCX drops the part below a second.
  TITHE_TRY(modify(handle, "KEEPINTVL", fmt::format("{}500ms", interval)));
  const KeepAlive keep_alive{.idle = 1,
                             .interval = static_cast<int>(interval),
                             .probes = static_cast<int>((probes + interval - 1) / interval)};
  TITHE_TRY(modify(handle, "KEEPCNT", fmt::format("{}", keep_alive.probes)));
  // With error handling enabled, UCX 1.13 uses shared memory only if MM_ERROR_HANDLING is set. Shared memory pays off
  // only together with CMA, by which the receiver copies straight from the sender's memory. Without CMA, large messages
  // move in pieces of 8 KiB, several times slower than TCP between processes that sleep while they wait.
  shares_memory_ = can_read_other_processes() && value_of(handle, "UCX_TLS") != "tcp";
  if (can_read_other_processes()) {
    TITHE_TRY(modify(handle, "MM_ERROR_HANDLING", "y"));
    TITHE_TRY(modify(handle, "MEMORY_INVALIDATE", "y"));
    // A full queue makes its senders spin; UCX's default is 64.
    TITHE_TRY(modify(handle, "MM_FIFO_SIZE", "512"));
    // System V shared memory segments outlive a killed process, so that transport is excluded.
    if (options.transports.empty() && value_of(handle, "UCX_TLS") == "all")
      TITHE_TRY(modify(handle, "TLS", "^sysv"));
  }

  // The rendezvous protocol of UCX asks the receiver before a long message. Over TCP the question and the answer queue
  // behind the traffic in the other direction, so two ranks that send to each other alternate, which takes 1.1 to 1.4
  // times as long on links of 1 Gbit/s and saves nothing. Over shared memory the protocol saves a copy. With 95 %, UCX
  // chooses it only where it is 20 times as fast, which is the case only over shared memory. RDMA keeps UCX's own rule.
  const std::string percent = value_of(handle, "UCX_RNDV_PERF_DIFF");
  const bool configured =
      std::strtod(percent.c_str(), nullptr) != 1 || value_of(handle, "UCX_RNDV_THRESH") != "auto";
  if (!configured) TITHE_TRY(modify(handle, "RNDV_PERF_DIFF", "95.0"));
  ucs_status_t s = ucp_init(&kParams, handle, &context_);
  if (s == UCS_OK && !configured && has_rdma(devices_of(context_))) {
    ucp_cleanup(context_);
    context_ = nullptr;
    TITHE_TRY(modify(handle, "RNDV_PERF_DIFF", percent));
    s = ucp_init(&kParams, handle, &context_);
  }
  if (s != UCS_OK) return no_context(handle, options, s);
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_EVENTS;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  worker_params.events = UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV | UCP_WAKEUP_TX | UCP_WAKEUP_RX;
  sockets_ = std::make_unique<Sockets>(keep_alive);
  if (s = ucp_worker_create(context_, &worker_params, &worker_); s != UCS_OK)
    return {Code::kIo,
            ucx_error("creating a worker", s).what() + little_shared_memory(world) + another_ucx()};

  if (s = ucp_worker_get_efd(worker_, &events_); s != UCS_OK)
    return ucx_error("asking for its event descriptor", s);
  wake_ = UniqueFd::from([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake_.is_open()) return {Code::kIo, fmt::format("eventfd: {}", std::strerror(errno))};
  const Result<std::vector<std::uint8_t>> where = address();
  if (!where.ok()) return where.status();
  sockets_->created(*where);
  return {};
}

Worker::~Worker() {
  const std::lock_guard lock(init_mutex());
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

Result<std::vector<std::uint8_t>> Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  if (const ucs_status_t s = ucp_worker_get_address(worker_, &address, &length); s != UCS_OK)
    return ucx_error("asking for its address", s);
  const auto* p = reinterpret_cast<const std::uint8_t*>(address);
  std::vector<std::uint8_t> out(p, p + length);
  ucp_worker_release_address(worker_, address);
  return out;
}

std::vector<std::string> Worker::devices() const { return devices_of(context_); }

bool Worker::progress() {
  bool any = false;
  // Bounded, so that a fast sender cannot keep the caller here forever.
  for (int i = 0; i < 1000 && ucp_worker_progress(worker_) != 0; ++i) any = true;
  if (any) guard_.moved();
  return any;
}

bool Worker::consume_wake() {
  std::uint64_t count = 0;
  return read(wake_.get(), &count, sizeof count) > 0;
}

bool Worker::wait(std::chrono::nanoseconds most, int also) {
  if (consume_wake()) return true;
  if (ucp_worker_arm(worker_) != UCS_OK) {  // busy: events are pending
    guard_.idle_wakeup();
    return false;
  }
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit{.tv_sec = whole.count(), .tv_nsec = (most - whole).count()};
  pollfd fds[] = {{.fd = events_, .events = POLLIN, .revents = 0},
                  {.fd = wake_.get(), .events = POLLIN, .revents = 0},
                  {.fd = also, .events = POLLIN, .revents = 0}};
  // An interrupted wait counts as one that found nothing.
  const bool early = ppoll(fds, 3, &limit, nullptr) > 0;
  if (consume_wake()) return true;
  if (early)
    guard_.idle_wakeup();
  else
    guard_.moved();
  return false;
}

void Worker::wake() {
  const std::uint64_t one = 1;
  // fails only if the event is already set
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

}  // namespace tithe::ucx
