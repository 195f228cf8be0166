// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sessions of all ranks in one process, each rank on a thread of its own.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tithe/connect.h"
#include "tithe/session.h"

namespace tithe::testing {

inline std::size_t at(Rank rank) { return static_cast<std::size_t>(rank); }
inline bool has(std::string_view text, std::string_view piece) {
  return text.find(piece) != std::string_view::npos;
}

using Change = std::function<void(Rank, SessionOptions&)>;  // a change to the options of one rank

class Ranks {
 public:
  Ranks(std::vector<std::unique_ptr<Transport>> transports, const SessionOptions& options,
        const Change& change = {})
      : sessions_(transports.size()), failed_(transports.size()) {
    each_index([&](std::size_t r) {
      SessionOptions mine = options;
      if (change) change(static_cast<Rank>(r), mine);
      auto opened = Session::open(std::move(transports[r]), mine);
      if (opened.ok())
        sessions_[r] = std::move(*opened);
      else
        failed_[r] = opened.status();
    });
  }

  // Destroys each session in its own thread, like processes: a real transport sends a farewell and waits for the
  // answer.
  ~Ranks() {
    each_index([&](std::size_t r) { sessions_[r].reset(); });
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int world() const { return static_cast<int>(sessions_.size()); }
  Session& operator[](Rank r) { return *sessions_[static_cast<std::size_t>(r)]; }
  const Status& open_status(Rank r) const { return failed_[static_cast<std::size_t>(r)]; }
  void close(Rank r) { sessions_[static_cast<std::size_t>(r)].reset(); }

  // body(rank) on all ranks at once.
  void each(const std::function<void(Rank)>& body) {
    each_index([&](std::size_t r) { body(static_cast<Rank>(r)); });
  }

 private:
  void each_index(const std::function<void(std::size_t)>& body) {
    std::vector<std::thread> threads;
    for (std::size_t r = 1; r < sessions_.size(); ++r) threads.emplace_back([&, r] { body(r); });
    body(0);
    for (std::thread& t : threads) t.join();
  }
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<Status> failed_;
};

inline std::string text(const Status& s) {
  return s.ok() ? "ok" : std::string(name(s.code())) + ": " + s.what();
}

// A session's state without the job number, which differs between two jobs, and without the checksum
// (docs/reference/format_state.md, "State").
inline std::vector<std::uint8_t> of_any_job(Session& session) {
  std::vector<std::uint8_t> state = *session.state();
  state.resize(state.size() - 8);
  std::fill_n(state.begin() + 24, 8, std::uint8_t{0});
  return state;
}

}  // namespace tithe::testing
