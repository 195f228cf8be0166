// SPDX-License-Identifier: Apache-2.0
#pragma once
// A session together with the arrays of its rounds.
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "arrays.h"
#include "core.h"
#include "tithe/session.h"

namespace tithe::python {

// The memory that a ticket's tensors refer to.
struct TicketArrays {
  std::vector<std::string> keys;
  std::vector<ArrayAnywhere> arrays;
  nb::object owner;  // owner of memory that was passed by its address
};
using TicketArraysMap = std::unordered_map<Ticket, TicketArrays>;

// Lanes may write to a round's arrays until the session is destroyed. So the arrays are released after it, on the
// thread of its last call.
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
