// SPDX-License-Identifier: Apache-2.0
// Sessions. Whatever can wait runs without the GIL.
#include "tithe/session.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core.h"
#include "tithe/connect.h"

namespace tithe::python {
namespace {

using AnyArray = nb::ndarray<nb::c_contig, nb::device::cpu>;

DType dtype_of(std::string_view text) {
  if (text == "float32") return DType::kF32;
  if (text == "bfloat16") return DType::kBF16;
  if (text == "float16") return DType::kF16;
  raise({Code::kInvalid, "dtype " + std::string(text) + ": tithe takes float32, bfloat16 and float16"});
}

std::size_t bytes_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

DType dtype_of(std::string_view key, const AnyArray& a) {
  const nb::dlpack::dtype d = a.dtype();
  const auto code = static_cast<nb::dlpack::dtype_code>(d.code);
  if (code == nb::dlpack::dtype_code::Float && d.bits == 32) return DType::kF32;
  if (code == nb::dlpack::dtype_code::Float && d.bits == 16) return DType::kF16;
  if (code == nb::dlpack::dtype_code::Bfloat && d.bits == 16) return DType::kBF16;
  raise({Code::kInvalid, "'" + std::string(key) + "': tithe takes float32, bfloat16 and float16"});
}

// Tensors that lie back to back at one address, as in a DDP bucket. Made once, used every step.
struct Layout {
  Layout(std::vector<std::string> names, std::vector<std::size_t> counts, std::string_view type,
         std::vector<std::size_t> row_sizes)
      : keys(std::move(names)), sizes(std::move(counts)), rows(std::move(row_sizes)), dtype(dtype_of(type)) {
    if (rows.empty()) rows.resize(keys.size());
    if (keys.size() != sizes.size() || keys.size() != rows.size())
      raise({Code::kInvalid, "a layout needs one size per key, and one row per key or none"});
  }
  std::vector<std::string> keys;
  std::vector<std::size_t> sizes;
  std::vector<std::size_t> rows;  // Tensor::row
  DType dtype;
};

// The Python object. close() and calls of other threads may meet: each call keeps the session alive for itself,
// and the pointer changes only under the GIL.
class PySession {
 public:
  explicit PySession(std::unique_ptr<Session> session) : session_(std::move(session)), pid_(getpid()) {}
  ~PySession() { close(); }
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // A forked child has none of the threads that the destructor would wait for: it leaves the session alone.
  void close() {
    std::shared_ptr<Session> session = std::move(session_);
    session_ = nullptr;
    kept_.clear();
    if (!session) return;
    if (getpid() != pid_) {
      new std::shared_ptr<Session>(std::move(session));  // NOLINT(*-owning-memory): kept for good, on purpose
      return;
    }
    nb::gil_scoped_release release;
    session->cancel();
    session.reset();
  }

  std::shared_ptr<Session> get() const {
    if (!session_) raise({Code::kInvalid, "this session is closed"});
    if (getpid() != pid_)
      raise({Code::kInvalid, "a session does not survive fork(): open one in the process that uses it"});
    return session_;
  }

  template <typename F>
  auto run(F&& f) const {  // f(session) without the GIL; KeyboardInterrupt where that ended it
    const std::shared_ptr<Session> session = get();
    auto result = [&] {
      nb::gil_scoped_release release;
      return f(*session);
    }();
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    return result;
  }

  Ticket sync(const nb::list& items) {
    Kept kept;
    kept.keys.reserve(items.size());
    std::vector<Tensor> bucket;
    for (const nb::handle item : items) {
      const auto pair = nb::cast<nb::tuple>(item);
      kept.keys.push_back(nb::cast<std::string>(pair[0]));
      AnyArray array;
      if (!nb::try_cast(pair[1], array, false))
        raise({Code::kInvalid,
               "'" + kept.keys.back() + "': needs a writable, C-contiguous array in host memory"});
      const bool matrix = array.ndim() > 1 && array.size() > 0;
      bucket.push_back({kept.keys.back(), array.data(), array.size(), dtype_of(kept.keys.back(), array),
                        matrix ? array.size() / array.shape(0) : 0});  // a flat array may be anything
      kept.arrays.push_back(std::move(array));
    }
    const Ticket ticket = unwrap(run([&](Session& s) { return s.sync(bucket); }));
    kept_.emplace(ticket, std::move(kept));
    return ticket;
  }

  Ticket sync_at(const Layout& layout, std::uintptr_t address) {
    std::vector<Tensor> bucket(layout.keys.size());
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      // A tensor of Python is known by its address alone.
      void* data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
      bucket[i] = {layout.keys[i], data, layout.sizes[i], layout.dtype, layout.rows[i]};
      address += layout.sizes[i] * bytes_of(layout.dtype);
    }
    return unwrap(run([&](Session& s) { return s.sync(bucket); }));
  }

  void wait(Ticket ticket) {
    const Status status = run([&](Session& s) { return s.wait(ticket); });
    kept_.erase(ticket);
    check(status);
  }

  nb::bytes state() {
    const std::vector<std::uint8_t> bytes = unwrap(run([](Session& s) { return s.state(); }));
    return nb::bytes(bytes.data(), bytes.size());
  }

  void restore(const nb::bytes& data) {
    const ByteView view(static_cast<const std::uint8_t*>(data.data()), data.size());
    check(run([&](Session& s) { return s.restore(view); }));
  }

  void residual(std::string_view key, const nb::ndarray<float, nb::c_contig, nb::device::cpu>& out) {
    check(run([&](Session& s) { return s.residual(key, {out.data(), out.size()}); }));
  }

  nb::dict stats() const {
    const SessionStats s = run([](Session& x) { return x.stats(); });
    nb::dict d;
    d["rounds"] = s.rounds;
    d["rounds_dropped"] = s.rounds_dropped;
    d["values"] = s.values;
    d["frames_sent"] = s.frames_sent;
    d["bytes_sent"] = s.bytes_sent;
    d["encode_ns"] = s.encode_ns;
    d["merge_ns"] = s.merge_ns;
    d["send_ns"] = s.send_ns;
    d["wait_ns"] = s.wait_ns;
    return d;
  }

  nb::list take_trace() {
    const std::vector<TraceEvent> events = run([](Session& s) { return s.take_trace(); });
    nb::list all;
    for (const TraceEvent& e : events) {
      nb::dict d;
      d["op"] = e.op;
      d["round"] = e.round;
      d["tensor"] = e.tensor;
      d["chunk"] = e.chunk;
      d["peer"] = e.peer;
      d["lane"] = e.lane;
      d["begin_ns"] = e.begin_ns;
      d["end_ns"] = e.end_ns;
      d["bytes"] = e.bytes;
      all.append(d);
    }
    return all;
  }

 private:
  struct Kept {  // what a ticket's tensors point to
    std::vector<std::string> keys;
    std::vector<AnyArray> arrays;
  };
  std::shared_ptr<Session> session_;
  pid_t pid_;
  std::unordered_map<Ticket, Kept> kept_;
};

// Calls Python under the GIL; an exception there becomes a Status, since the library has none.
AllGather python_all_gather(const nb::callable& gather) {
  return [&gather](ByteView mine) -> Result<std::vector<std::vector<std::uint8_t>>> {
    const nb::gil_scoped_acquire acquire;
    try {
      const nb::object blobs = gather(nb::bytes(mine.data(), mine.size()));
      std::vector<std::vector<std::uint8_t>> all;
      for (const nb::handle blob : blobs) {
        const auto b = nb::cast<nb::bytes>(blob);
        const auto* p = static_cast<const std::uint8_t*>(b.data());
        all.emplace_back(p, p + b.size());
      }
      return all;
    } catch (const std::exception& e) {  // nb::python_error, nb::cast_error
      return Status(Code::kIo, std::string("the exchange of addresses failed: ") + e.what());
    }
  };
}

// Ctrl-C: whether Python's handlers have raised. On other threads than the main one they never run.
bool interrupted() {
  const nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

PySession* open(Result<std::unique_ptr<Transport>> transport, SessionOptions options) {
  if (!transport.ok()) raise(transport.status());
  options.interrupted = interrupted;
  return new PySession(unwrap(Session::open(std::move(*transport), options)));  // Python takes it over
}

PySession* open_over_ucx(int rank, int world, const nb::callable& all_gather, const std::string& transports,
                         const std::string& devices, const SessionOptions& options) {
  const AllGather gather = python_all_gather(all_gather);
  const auto connect = [&] {
    nb::gil_scoped_release release;
    return open_ucx(rank, world, gather, {.transports = transports, .devices = devices});
  };
  return open(connect(), options);
}

PySession* open_from_environment(const std::string& transports, const std::string& devices,
                                 const SessionOptions& options) {
  const Launch launch = unwrap(launch_from_environment());
  const auto connect = [&] {
    nb::gil_scoped_release release;
    return open_ucx(launch.rank, launch.world, meet(launch), {.transports = transports, .devices = devices});
  };
  return open(connect(), options);
}

nb::list open_over_loop(int world, const SessionOptions& options) {
  if (world < 1) raise({Code::kInvalid, "world must be at least 1"});
  nb::list ranks;
  for (std::unique_ptr<Transport>& transport : open_loop(world))
    ranks.append(nb::cast(open(std::move(transport), options), nb::rv_policy::take_ownership));
  return ranks;
}

void bind_options(nb::module_& m) {
  nb::class_<SessionOptions>(m, "Options", "What a session does; docs of each in include/tithe/session.h.")
      .def(nb::init<>())
      .def_rw("codec", &SessionOptions::codec)
      .def_rw("strategy", &SessionOptions::strategy)
      .def_rw("schedule", &SessionOptions::schedule)
      .def_rw("lanes", &SessionOptions::lanes)
      .def_rw("average", &SessionOptions::average)
      .def_rw("min_values", &SessionOptions::min_values)
      .def_rw("part_values", &SessionOptions::part_values)
      .def_prop_rw(
          "timeout", [](const SessionOptions& o) { return std::chrono::duration<double>(o.timeout).count(); },
          [](SessionOptions& o, double seconds) {
            o.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
          },
          "Seconds in which nothing is heard from a peer that owes something, after which the peer is named.")
      .def_prop_rw(
          "patience",
          [](const SessionOptions& o) { return std::chrono::duration<double>(o.patience).count(); },
          [](SessionOptions& o, double seconds) {
            o.patience = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * seconds));
          },
          "Seconds in which a peer answers, but gives nothing, after which the peer is named.")
      .def_rw("seed", &SessionOptions::seed)
      .def_rw("run", &SessionOptions::run)
      .def_rw("force_reference", &SessionOptions::force_reference);
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_options(m);
  nb::class_<Layout>(m, "Layout", "Tensors of one dtype that lie back to back in memory.")
      .def(nb::init<std::vector<std::string>, std::vector<std::size_t>, std::string_view,
                    std::vector<std::size_t>>(),
           nb::arg("keys"), nb::arg("sizes"), nb::arg("dtype"), nb::arg("rows") = std::vector<std::size_t>());
  nb::class_<PySession>(m, "Session", "include/tithe/session.h, as Python sees it.")
      .def_prop_ro("rank", [](const PySession& s) { return s.get()->rank(); })
      .def_prop_ro("world", [](const PySession& s) { return s.get()->world(); })
      .def("sync", &PySession::sync, nb::arg("items"))
      .def("sync_at", &PySession::sync_at, nb::arg("layout"), nb::arg("address"),
           "The same for a layout at an address, whose memory the caller keeps alive until wait().")
      .def("wait", &PySession::wait, nb::arg("ticket"))
      .def("commit", [](PySession& s) { check(s.run([](Session& x) { return x.commit(); })); })
      .def(
          "evaluated",
          [](PySession& s, double loss) { check(s.run([=](Session& x) { return x.evaluated(loss); })); },
          nb::arg("loss"))
      .def(
          "learning_rate",
          [](PySession& s, double rate) { check(s.run([=](Session& x) { return x.learning_rate(rate); })); },
          nb::arg("rate"))
      .def_prop_ro("ratio", [](const PySession& s) { return s.get()->ratio(); })
      .def_prop_ro("last_round_dropped", [](const PySession& s) { return s.get()->last_round_dropped(); })
      .def("state", &PySession::state)
      .def("restore", &PySession::restore, nb::arg("state"))
      .def("residual", &PySession::residual, nb::arg("key"), nb::arg("out"))
      .def("stats", &PySession::stats)
      .def("plan_text", [](const PySession& s) { return s.get()->plan_text(); })
      .def(
          "trace", [](PySession& s, bool on) { s.get()->trace(on); }, nb::arg("on"))
      .def("take_trace", &PySession::take_trace)
      .def("close", &PySession::close);
  m.def("open_loop", &open_over_loop, nb::arg("world"), nb::arg("options"));
  m.def("open_ucx", &open_over_ucx, nb::arg("rank"), nb::arg("world"), nb::arg("all_gather"),
        nb::arg("transports"), nb::arg("devices"), nb::arg("options"));
  m.def("open_environment", &open_from_environment, nb::arg("transports"), nb::arg("devices"),
        nb::arg("options"));
}

}  // namespace tithe::python
