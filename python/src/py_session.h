// SPDX-License-Identifier: Apache-2.0
#pragma once
// The C++ object of tithe.Session. All blocking calls run without the GIL.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
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
#include "stats_dicts.h"
#include "tithe/session.h"

namespace tithe::python {

// The Python object. close() may run concurrently with calls of other threads: each call holds its own reference to the
// session, and open_ changes only under the GIL.
class PySession {
 public:
  PySession(std::unique_ptr<Session> session, std::string_view transport, std::chrono::milliseconds timeout)
      : open_(std::make_shared<Open>(std::move(session))),
        pid_(getpid()),
        transport_(transport),
        timeout_(timeout) {}
  ~PySession() { close(false); }
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // Thread-safe. Ends blocking calls of other threads; the state remains available.
  void cancel() {
    const std::shared_ptr<Session> session = get();
    const WithoutGil released;
    session->cancel();
  }

  // With `keep_state`, state() returns the state of the last commit after close(). A forked child does not have the
  // threads that the destructor would join, so it leaks the session.
  void close(bool keep_state) {
    std::shared_ptr<Open> open = std::move(open_);
    open_ = nullptr;
    free_nodes_.clear();
    if (!open) return;
    if (getpid() != pid_) {
      new std::shared_ptr<Open>(std::move(open));  // NOLINT(*-owning-memory): leaked on purpose
      return;
    }
    std::optional<Result<std::vector<std::uint8_t>>> last;
    Status traced;
    {
      const WithoutGil released;
      Session& session = *open->session;
      session.cancel();
      last_choices_ = session.choices();
      if (keep_state) last.emplace(session.state());
      traced = session.write_trace();
      if (open.use_count() == 1) open->session.reset();  // else the last running call destroys it
    }
    open.reset();
    last_state_ = std::move(last);
    if (!traced.ok() && PyErr_WarnEx(PyExc_RuntimeWarning, traced.what().c_str(), 1) != 0)
      PyErr_WriteUnraisable(nullptr);  // warnings are errors, and a destructor must not raise
  }

  MemberMonitor watched(std::vector<std::string> members) const {
    return member_monitor(get(), std::move(members));
  }
  std::shared_ptr<Session> get() const {
    const std::shared_ptr<Open> open = get_open();
    return {open, open->session.get()};
  }

  template <typename F>
  // Runs f(session) without the GIL, for calls that do not block.
  auto run(F&& f) const {
    const std::shared_ptr<Session> session = get();
    const WithoutGil released;
    return f(*session);
  }

  // The same for calls that may block: Ctrl-C ends the call, and with it the session.
  template <typename F>
  auto run_interruptible(F f) const {
    const std::shared_ptr<Session> session = get();
    std::optional<decltype(f(*session))> result;
    python::run_interruptible(
        std::make_shared<MainThreadCalls>(), [&] { result.emplace(f(*session)); },
        [&] { session->cancel(); });
    return std::move(*result);
  }

  using Bounds = std::map<std::string, std::vector<std::size_t>, std::less<>>;
  Ticket sync(const nb::list& items, RoundKind kind, const Bounds& bounds) {
    TicketArrays kept;
    kept.keys.reserve(items.size());
    std::vector<Tensor> bucket;
    std::size_t bounded = 0;
    std::optional<Origin> origin;
    for (const nb::handle item : items) {
      if (!PyTuple_Check(item.ptr()) || nb::len(item) != 2)
        throw_as(PyExc_TypeError, "sync requires a list of (key, array) pairs");
      kept.keys.push_back(key_of(item[0]));
      const std::string& key = kept.keys.back();
      auto array = array_anywhere(key, item[1], origin);
      const bool matrix = array.ndim() > 1 && array.size() > 0;
      bucket.push_back({key,
                        array.data(),
                        array.size(),
                        dtype_of(key, array.dtype()),
                        matrix ? array.size() / array.shape(0) : 0,  // a flat array has no known rows
                        {}});
      if (const auto found = bounds.find(key); found != bounds.end()) {
        bucket.back().bounds = found->second;
        ++bounded;
      }
      kept.arrays.push_back(std::move(array));
    }
    if (bounded < bounds.size())
      for (const auto& [key, entries] : bounds)
        if (std::ranges::find(kept.keys, key) == kept.keys.end())
          raise({Code::kInvalid, "bounds has an entry for '" + key + "', which is not among the tensors"});
    const std::shared_ptr<Open> open = get_open();
    const Ticket ticket =
        unwrap(run([&](Session& s) { return s.sync(bucket, origin.value_or(Origin{}), kind); }));
    keep(*open, ticket) = std::move(kept);
    return ticket;
  }

  Ticket sync_some(const std::vector<std::pair<const Layout*, nb::object>>& pieces) {
    TicketArrays kept;
    std::vector<Piece> at;
    for (const auto& [layout, tensor] : pieces) {
      if (layout == nullptr) throw_as(PyExc_TypeError, "sync_some requires a list of (layout, array) pairs");
      kept.arrays.emplace_back(array_for(*layout, tensor));
      at.push_back({layout, kept.arrays.back().data()});
    }
    const std::shared_ptr<Open> open = get_open();
    const Ticket ticket = sync_from(at, {});
    keep(*open, ticket) = std::move(kept);
    return ticket;
  }

  // For tensors on a GPU that are valid after the work already queued on this stream. `owner` is kept alive until
  // commit().
  Ticket sync_on(const Layout& layout, std::uint64_t address, int device, std::uint64_t stream,
                 const nb::object& owner) {
    if (device < 0 || address == 0)
      raise({Code::kInvalid, "sync_on requires an address and the number of a GPU, at least 0"});
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a device's addresses are numbers
    const Piece whole{&layout, reinterpret_cast<void*>(address)};
    const std::shared_ptr<Open> open = get_open();
    const Ticket ticket = sync_from({&whole, 1}, {device, stream});
    keep(*open, ticket).owner = owner;
    return ticket;
  }

  void wait(Ticket ticket) {
    check(run_interruptible([=](Session& s) { return s.wait(ticket); }));
  }

  bool poll(Ticket ticket) {
    return unwrap(run([=](Session& s) { return s.poll(ticket); }));
  }

  // commit() completes the results of a round, so the round's arrays are kept until then.
  void commit() {
    const std::shared_ptr<Open> open = get_open();
    std::vector<Ticket> tickets = std::move(tickets_);
    tickets.clear();
    for (const auto& [ticket, kept] : open->kept) tickets.push_back(ticket);  // sync() may run concurrently
    check(run_interruptible([](Session& s) { return s.commit(); }));
    for (const Ticket ticket : tickets)
      if (TicketArraysMap::node_type node = open->kept.extract(ticket)) {
        node.mapped().keys.clear();
        node.mapped().arrays.clear();
        node.mapped().owner.reset();
        free_nodes_.push_back(std::move(node));
      }
    tickets_ = std::move(tickets);
  }

  nb::bytes state() {
    return to_bytes(unwrap(!open_ && last_state_ ? *last_state_
                                                 : run_interruptible([](Session& s) { return s.state(); })));
  }

  nb::bytes common_state() {
    return to_bytes(unwrap(run_interruptible([](Session& s) { return s.common_state(); })));
  }

  void restore(const nb::bytes& data) {
    check(run_interruptible([view = view_of(data)](Session& s) { return s.restore(view); }));
  }

  void restore_states(const nb::list& states, bool book) {
    std::vector<ByteView> views;
    for (const nb::handle state : states)
      views.push_back(view_of(state, "restore requires bytes, or a list of bytes"));
    const Lost lost = book ? Lost::kBook : Lost::kSpread;
    check(run_interruptible([views, lost](Session& s) { return s.restore(views, lost); }));
  }

  void undo() {
    check(run([](Session& s) { return s.undo(); }));
  }

  void reform(const std::string& transport, int rank, int world, const nb::callable& all_gather,
              const std::vector<std::string>& members, std::uint64_t epoch, std::optional<double> timeout);

  void evaluated(double loss) {
    check(run_interruptible([=](Session& s) { return s.evaluated(loss); }));
  }
  void learning_rate(double rate) {
    check(run_interruptible([=](Session& s) { return s.learning_rate(rate); }));
  }

  std::string choices() const {
    return open_ ? run([](Session& s) { return s.choices(); }) : last_choices_;
  }
  void propose(const std::string& choices, std::uint64_t round) {
    check(run([&](Session& s) { return s.propose(choices, round); }));
  }
  nb::dict proposal() const {
    const Proposal p = run([](Session& s) { return s.proposal(); });
    const bool at_round = p.state == Proposal::State::kAgreed || p.state == Proposal::State::kSwitched;
    nb::dict d;
    d["state"] = name(p.state);
    d["round"] = at_round ? nb::cast(p.round) : nb::none();
    d["why"] = p.why.what();
    d["rank"] = p.why.peer() == Status::kNoPeer ? nb::none() : nb::cast(p.why.peer());
    return d;
  }

  const std::string& transport() const { return transport_; }

  void residual(std::string_view key, const nb::handle given) {
    const auto out = array_argument<FloatsOut>(given, false);
    check(run([&](Session& s) { return s.residual(key, {out.data(), out.size()}); }));
  }

  nb::dict stats() const {
    return to_dict(run([](Session& s) { return s.stats(); }));
  }
  nb::list tensor_stats() const {
    return to_list(run([](Session& s) { return s.tensor_stats(); }));
  }

  nb::list take_trace() {
    const std::shared_ptr<Session> session = get();  // owns the texts of the events
    std::vector<TraceEvent> events;
    {
      const WithoutGil released;
      events = session->take_trace();
    }
    return to_list(events);
  }

 private:
  static AnyArray array_for(const Layout& layout, const nb::handle tensor) {
    auto array = array_of("the bucket", tensor);
    if (array.size() != layout.values || dtype_of("the bucket", array.dtype()) != layout.dtype)
      raise({Code::kInvalid, "the layout and the bucket differ in size or type"});
    return array;
  }
  struct Piece {
    const Layout* layout;
    void* from;
  };
  Ticket sync_from(std::span<const Piece> pieces, const Origin& origin) {
    // Moved out of bucket_, since another thread may call while this one does not hold the GIL.
    std::vector<Tensor> bucket = std::move(bucket_);
    bucket.clear();
    for (const auto& [layout, from] : pieces)
      for (std::size_t i = 0; i < layout->keys.size(); ++i)
        bucket.push_back({layout->keys[i],
                          static_cast<std::uint8_t*>(from) + layout->firsts[i] * bytes_of(layout->dtype),
                          layout->sizes[i], layout->dtype, layout->rows[i], layout->side});
    const Ticket ticket = unwrap(run([&](Session& s) { return s.sync(bucket, origin); }));
    bucket_ = std::move(bucket);
    return ticket;
  }
  std::shared_ptr<Open> get_open() const {
    if (!open_) raise({Code::kInvalid, "this session is closed"});
    if (getpid() != pid_)
      raise({Code::kInvalid,
             "a session cannot be used after fork(): open a session in the process that uses it"});
    return open_;
  }
  TicketArrays& keep(Open& open, Ticket ticket) {
    if (free_nodes_.empty()) return open.kept[ticket];
    TicketArraysMap::node_type node = std::move(free_nodes_.back());
    free_nodes_.pop_back();
    node.key() = ticket;
    return open.kept.insert(std::move(node)).position->second;
  }

  std::shared_ptr<Open> open_;
  pid_t pid_;
  std::string transport_;              // as listed by `tithe transports`
  std::chrono::milliseconds timeout_;  // the session option
  // Memory of earlier rounds, for reuse.
  std::vector<TicketArraysMap::node_type> free_nodes_;
  std::vector<Tensor> bucket_;
  std::vector<Ticket> tickets_;
  std::optional<Result<std::vector<std::uint8_t>>> last_state_;  // after close()
  std::string last_choices_;                                     // after close()
};

}  // namespace tithe::python
