// SPDX-License-Identifier: Apache-2.0
// Sessions. All blocking calls run without the GIL.
#include "tithe/session.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "core.h"
#include "interruptible.h"
#include "open_session.h"
#include "opening.h"
#include "py_session.h"
#include "stats_dicts.h"
#include "tithe/connect.h"
#include "xla_rounds.h"

namespace tithe::python {
namespace {

constexpr int kMaxLoopRanks = 256;

PySession* open(const std::shared_ptr<MainThreadCalls>& calls, const std::string& transport,
                ConnectOptions connect, const std::shared_ptr<std::atomic<bool>>& withdrawn,
                const SessionOptions& options) {
  // The session's timeout applies from the first message on.
  connect.timeout = connect.silence = options.timeout;
  auto opened = open_interruptible(calls, transport, std::move(connect), withdrawn);
  const std::string_view kind = opened->kind();
  // Python takes ownership.
  return new PySession(unwrap(Session::open(std::move(opened), options)), kind, options.timeout);
}

PySession* open_with_exchange(const std::string& transport, int rank, int world,
                              const nb::callable& all_gather, const SessionOptions& options) {
  const auto calls = std::make_shared<MainThreadCalls>();
  return open(calls, transport,
              {.rank = rank,
               .world = world,
               .all_gather = python_all_gather(all_gather, calls),
               .token = unwrap(token_from_environment()).token},
              std::make_shared<std::atomic<bool>>(false), options);
}

PySession* open_from_environment(const std::string& transport, const SessionOptions& options) {
  Launch launch = unwrap(launch_from_environment());
  launch.timeout = options.timeout;
  const auto withdrawn = std::make_shared<std::atomic<bool>>(false);
  launch.interrupted = [withdrawn] { return withdrawn->load(); };
  return open(std::make_shared<MainThreadCalls>(), transport, connect_options(launch), withdrawn, options);
}

nb::list open_over_loop(int world, const SessionOptions& options) {
  if (world < 1 || world > kMaxLoopRanks)
    raise({Code::kInvalid,
           "world=" + std::to_string(world) + ": must be in 1 .. " + std::to_string(kMaxLoopRanks)});
  nb::list ranks;
  for (std::unique_ptr<Transport>& transport : open_loop(world))
    ranks.append(
        nb::cast(new PySession(unwrap(Session::open(std::move(transport), options)), "loop", options.timeout),
                 nb::rv_policy::take_ownership));
  return ranks;
}

}  // namespace

// Pending buckets of the old world are dropped, and their arrays released.
void PySession::reform(const std::string& transport, int rank, int world, const nb::callable& all_gather,
                       const std::vector<std::string>& members, std::uint64_t epoch,
                       std::optional<double> timeout) {
  const std::shared_ptr<Open> open = get_open();
  check(between_processes(transport));
  const Token token = unwrap(token_from_environment()).token;
  const std::chrono::milliseconds patience = timeout ? to_milliseconds("timeout", *timeout) : timeout_;
  if (patience.count() <= 0)
    raise({Code::kInvalid, "reform: timeout=" + std::to_string(*timeout) + ": must be more than 0 seconds"});
  check(run([&](const Session& s) { return s.may_reform(rank, world, members, epoch); }));
  check(check_transport(transport, rank));
  cancel();
  const auto calls = std::make_shared<MainThreadCalls>();
  auto opened = open_interruptible(calls, transport,
                                   {.rank = rank,
                                    .world = world,
                                    .all_gather = python_all_gather(all_gather, calls),
                                    .token = token,
                                    .timeout = patience,
                                    .silence = patience},
                                   std::make_shared<std::atomic<bool>>(false));
  const auto given = std::make_shared<std::unique_ptr<Transport>>(std::move(opened));
  check(run_interruptible([=](Session& s) { return s.reform(std::move(*given), members, epoch); }));
  open->kept.clear();
  tickets_.clear();
}

void bind_session(nb::module_& m) {
  nb::class_<Layout>(m, "Layout", "Tensors of one dtype that are contiguous in memory.")
      .def(nb::init<std::vector<std::string>, std::vector<std::size_t>, std::string_view,
                    std::vector<std::size_t>>(),
           nb::arg("keys"), nb::arg("sizes"), nb::arg("dtype"), nb::arg("rows") = std::vector<std::size_t>())
      .def("pick", &Layout::pick, nb::arg("which"), "A layout of some of its tensors, at their positions.")
      .def_rw("side", &Layout::side, "Whether its tensors are side tensors: see Tensor in session.h.");
  nb::class_<PySession>(m, "Session", "The Python binding of include/tithe/session.h.")
      .def_prop_ro("rank", [](const PySession& s) { return s.get()->rank(); })
      .def_prop_ro("world", [](const PySession& s) { return s.get()->world(); })
      .def_prop_ro("transport", &PySession::transport)
      .def(
          "sync",
          [](PySession& s, const nb::list& items) { return s.sync(items, RoundKind::kAllReduce, {}); },
          nb::arg("items"))
      .def(
          "reduce_scatter",
          [](PySession& s, const nb::list& items, const PySession::Bounds& bounds) {
            return s.sync(items, RoundKind::kReduceScatter, bounds);
          },
          nb::arg("items"), nb::arg("bounds"))
      .def(
          "all_gather",
          [](PySession& s, const nb::list& items, const PySession::Bounds& bounds) {
            return s.sync(items, RoundKind::kAllGather, bounds);
          },
          nb::arg("items"), nb::arg("bounds"))
      .def(
          "sync_at",
          [](PySession& s, const Layout& layout, const nb::object& bucket) {
            return s.sync_some({{&layout, bucket}});
          },
          nb::arg("layout"), nb::arg("bucket"), "sync() for one array with the tensors of a layout.")
      .def("sync_some", &PySession::sync_some, nb::arg("pieces"),
           "sync() for several arrays at once, each with its layout.")
      .def("sync_on", &PySession::sync_on, nb::arg("layout"), nb::arg("address"), nb::arg("device"),
           nb::arg("stream"), nb::arg("owner"),
           "sync() for data at an address on a GPU. The values are valid after the work already queued on a "
           "cudaStream_t.")
      .def("wait", &PySession::wait, nb::arg("ticket"))
      .def("poll", &PySession::poll, nb::arg("ticket"))
      .def(
          "round_of",
          [](const PySession& s, std::vector<std::string> keys, const std::vector<std::size_t>& sizes,
             const std::vector<std::string>& types) {
            return new_round(s.get(), std::move(keys), sizes, types);
          },
          nb::arg("keys"), nb::arg("sizes"), nb::arg("types"),
          "Registers a round that XLA starts. Returns its number.")
      .def("commit", &PySession::commit)
      .def(
          "present", [](const PySession& s) { check(s.get()->present()); },
          "Raises the error that ended the session, or peer_lost if a rank has left without a message.")
      .def("member_monitor", &PySession::watched, nb::arg("members"))
      .def("evaluated", &PySession::evaluated, nb::arg("loss"))
      .def("learning_rate", &PySession::learning_rate, nb::arg("rate"))
      .def("propose", &PySession::propose, nb::arg("choices"), nb::arg("round") = 0)
      .def("proposal", &PySession::proposal)
      .def_prop_ro("choices", &PySession::choices)
      .def("messages", [](PySession& s) { return s.run([](Session& x) { return x.messages(); }); })
      .def_prop_ro("ratio", [](const PySession& s) { return s.get()->ratio(); })
      .def_prop_ro("last_round_dropped", [](const PySession& s) { return s.get()->last_round_dropped(); })
      .def("state", &PySession::state)
      .def("restore", &PySession::restore, nb::arg("state"))
      .def("restore_states", &PySession::restore_states, nb::arg("states"), nb::arg("book"))
      .def("common_state", &PySession::common_state)
      .def("round", [](const PySession& s) { return s.get()->round(); })
      .def("undo", &PySession::undo)
      .def("reform", &PySession::reform, nb::arg("transport"), nb::arg("rank"), nb::arg("world"),
           nb::arg("all_gather"), nb::arg("members"), nb::arg("epoch"),
           nb::arg("timeout").none() = nb::none())
      .def("residual", &PySession::residual, nb::arg("key"), nb::arg("out"))
      .def("stats", &PySession::stats)
      .def("tensor_stats", &PySession::tensor_stats)
      .def("plan_text", [](const PySession& s) { return s.get()->plan_text(); })
      .def(
          "trace", [](PySession& s, bool on) { s.get()->trace(on); }, nb::arg("on"))
      .def("take_trace", &PySession::take_trace)
      .def("write_trace", [](PySession& s) { check(s.run([](Session& x) { return x.write_trace(); })); })
      .def_prop_ro("tracing", [](const PySession& s) { return s.get()->tracing(); })
      .def(
          "mark",
          [](PySession& s, std::string_view op, std::int64_t begin_ns, std::int64_t end_ns) {
            s.run([&](Session& session) { session.mark(op, begin_ns, end_ns); });
          },
          nb::arg("op"), nb::arg("begin_ns"), nb::arg("end_ns"),
          "Adds an event of the caller to the trace; times are those of time.monotonic_ns().")
      .def("cancel", &PySession::cancel,
           "Ends the session and the waits of other threads; state() still works.")
      .def("close", &PySession::close, nb::arg("keep_state") = true,
           "Closes the network connections. With keep_state, state() still returns the last commit.");
  m.def(
      "round_call", [] { return reinterpret_cast<std::uintptr_t>(&tithe_run_round); },
      "The address of tithe_run_round, which runs a round of round_of().");
  m.def("open_loop", &open_over_loop, nb::arg("world"), nb::arg("options"));
  m.def("open", &open_with_exchange, nb::arg("transport"), nb::arg("rank"), nb::arg("world"),
        nb::arg("all_gather"), nb::arg("options"));
  m.def("open_environment", &open_from_environment, nb::arg("transport"), nb::arg("options"));
  m.def(
      "check_transport", [](std::string_view text) { check(between_processes(text)); }, nb::arg("text"),
      "Raises ValueError unless the text names a transport between processes; the same check as in open().");
  m.def("transports", [] {
    std::vector<std::string_view> names;
    for (const TransportKind* kind : all_transports()) names.push_back(kind->name);
    return names;
  });
}

}  // namespace tithe::python
