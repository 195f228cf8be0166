// SPDX-License-Identifier: Apache-2.0
// Boards and rejoin(): include/tithe/rejoin.h. A Python board is called on the thread of the caller.
#include "tithe/rejoin.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <memory>

#include "core.h"
#include "interruptible.h"

namespace tithe::python {
namespace {

// A board, and the current caller's MainThreadCalls for a Python board.
struct PyBoard {
  Board board;
  std::shared_ptr<std::shared_ptr<MainThreadCalls>> calls =
      std::make_shared<std::shared_ptr<MainThreadCalls>>();
};

Board::Text text_of(const nb::handle h) {
  const ByteView view = view_of(h, "a board must return bytes");
  return {view.begin(), view.end()};
}

const Status kLeft(Code::kCancelled, "the rejoin was cancelled");

// Runs a call of a Python board on the right thread: that of the waiting rejoin, or else this one.
bool say(const std::shared_ptr<std::shared_ptr<MainThreadCalls>>& calls, const std::function<void()>& call) {
  if (*calls) return (*calls)->ask(call);
  call();
  return true;
}

// `given` is kept alive by the Python object that is created from the result.
PyBoard board_of(const nb::handle given) {
  PyBoard out;
  out.board.put_first = [given, calls = out.calls](const std::string& key,
                                                   ByteView value) -> Result<Board::Text> {
    Result<Board::Text> stored = kLeft;
    const bool done = say(calls, [&] { stored = text_of(given.attr("put_first")(key, to_bytes(value))); });
    return done ? stored : kLeft;
  };
  out.board.get = [given, calls = out.calls](const std::string& key) -> Result<std::optional<Board::Text>> {
    Result<std::optional<Board::Text>> there = kLeft;
    const bool done = say(calls, [&] {
      const nb::object text = given.attr("get")(key);
      there = text.is_none() ? std::optional<Board::Text>() : text_of(text);
    });
    return done ? there : kLeft;
  };
  return out;
}

// Runs a call that uses a board. Ctrl-C withdraws it.
template <typename T>
T ask(const PyBoard& board, const std::function<Result<T>(const std::shared_ptr<std::atomic<bool>>&)>& call) {
  const auto calls = std::make_shared<MainThreadCalls>();
  *board.calls = calls;
  const auto withdrawn = std::make_shared<std::atomic<bool>>(false);
  const auto result = std::make_shared<Result<T>>(kLeft);
  try {
    run_interruptible(
        calls, [result, call, withdrawn] { *result = call(withdrawn); }, nullptr);
  } catch (...) {
    *withdrawn = true;
    board.calls->reset();
    throw;
  }
  board.calls->reset();
  return unwrap(std::move(*result));
}

nb::dict rejoin_over(const PyBoard& board, const std::string& me, std::uint64_t epoch,
                     const std::vector<std::string>& before, const std::vector<std::string>& missed,
                     int min_world, int max_world, double window, double timeout,
                     const std::vector<std::string>& taken, const MemberMonitor* monitor) {
  const auto window_ms = to_milliseconds("window", window);
  const auto timeout_ms = to_milliseconds("timeout", timeout);
  const std::function<std::vector<std::string>()> lost = monitor != nullptr ? monitor->lost : nullptr;
  const auto result = ask<RejoinResult>(board, [=, board = board.board](const auto& withdrawn) {
    return rejoin({.board = board,
                   .me = me,
                   .epoch = epoch,
                   .before = before,
                   .missed = missed,
                   .lost = lost,
                   .taken = taken,
                   .min_world = min_world,
                   .max_world = max_world,
                   .window = window_ms,
                   .timeout = timeout_ms,
                   .interrupted = [withdrawn] { return withdrawn->load(); }});
  });
  nb::dict d;
  d["epoch"] = result.epoch;
  d["members"] = result.members;
  d["rank"] = result.rank;
  d["joined"] = result.joined;
  d["all_gather"] = nb::cpp_function([board, gather = result.all_gather](const nb::bytes& mine) {
    const Board::Text copy = text_of(mine);
    const auto all =
        ask<std::vector<Board::Text>>(board, [gather, copy](const auto&) { return gather(copy); });
    nb::list out;
    for (const Board::Text& text : all) out.append(to_bytes(text));
    return out;
  });
  return d;
}

}  // namespace

MemberMonitor member_monitor(const std::shared_ptr<Session>& session, std::vector<std::string> members) {
  if (members.size() != static_cast<std::size_t>(session->world()))
    raise({Code::kInvalid, "member_monitor: give a name for each rank"});
  return {[weak = std::weak_ptr(session), members = std::move(members)] {
    std::vector<std::string> out;
    if (const auto open = weak.lock())
      for (const Rank r : open->missed())
        if (static_cast<std::size_t>(r) < members.size())  // the session may have reformed since
          out.push_back(members[static_cast<std::size_t>(r)]);
    return out;
  }};
}

void bind_rejoin(nb::module_& m) {
  nb::class_<PyBoard>(m, "Board", "A board that keeps the first value of each key: include/tithe/rejoin.h.")
      .def(
          "put_first",
          [](const PyBoard& b, const std::string& key, const nb::bytes& value) {
            return to_bytes(unwrap(b.board.put_first(key, view_of(value))));
          },
          nb::arg("key"), nb::arg("value"), "Stores `value` if the key is new. Returns the key's value.")
      .def(
          "get",
          [](const PyBoard& b, const std::string& key) -> nb::object {
            const auto there = unwrap(b.board.get(key));
            if (!there) return nb::none();
            return to_bytes(*there);
          },
          nb::arg("key"), "The key's value, or None.");
  nb::class_<MemberMonitor>(m, "MemberMonitor", "Reports the members that a session has lost.")
      .def("lost", [](const MemberMonitor& w) { return w.lost(); });
  m.def(
      "board_in", [](const std::string& folder) { return PyBoard{.board = board_in(folder)}; },
      nb::arg("folder"));
  m.def(
      "board_of", [](const nb::object& board) { return board_of(board); }, nb::arg("board"),
      nb::keep_alive<0, 1>(), "A board from an object with put_first and get.");
  m.def(
      "new_ranks_waiting",
      [](const PyBoard& b, std::uint64_t next_epoch, const std::vector<std::string>& members, int max_world) {
        return unwrap(new_ranks_waiting(b.board, next_epoch, members, max_world));
      },
      nb::arg("board"), nb::arg("next_epoch"), nb::arg("members"), nb::arg("max_world"));
  m.def("rejoin", &rejoin_over, nb::arg("board"), nb::arg("me"), nb::arg("epoch"), nb::arg("before"),
        nb::arg("missed"), nb::arg("min_world"), nb::arg("max_world"), nb::arg("window"), nb::arg("timeout"),
        nb::arg("taken") = std::vector<std::string>(), nb::arg("monitor").none() = nb::none());
}

}  // namespace tithe::python
