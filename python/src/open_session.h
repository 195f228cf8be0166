// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session with the arrays of its rounds.
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "arrays.h"
#include "core.h"
#include "tithe/session.h"

namespace tithe::python {

struct TicketArrays {  // what a ticket's tensors point to
  std::vector<std::string> keys;
  std::vector<ArrayAnywhere> arrays;
  nb::object owner;  // of memory that was given by its address
};
using TicketArraysMap = std::unordered_map<Ticket, TicketArrays>;

// Lanes write to a round's arrays until the session has gone, so these go after it, on the thread of its last call.
struct Open {
  explicit Open(std::unique_ptr<Session> s) : session(std::move(s)) {}
  ~Open() {
    session.reset();
    const nb::gil_scoped_acquire gil;
    kept.clear();
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  std::unique_ptr<Session> session;
  TicketArraysMap kept;
};

}  // namespace tithe::python
