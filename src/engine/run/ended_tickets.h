// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reports to the caller that tickets have ended. Owns the ended tickets that are not reported yet.
//
//   once      each ticket is reported once: when its last step has run, or when the session is over
//   steady    after expect(), the rounds of the layouts allocate nothing
//
// All functions require the runner's mutex, except report(), which runs on the thread that has just unlocked it.
#include <functional>
#include <mutex>

#include "base/fifo.h"
#include "tithe/status.h"

namespace tithe::engine {

// Called without the mutex, once for every ticket (SessionOptions::ended).
using Ended = std::function<void(std::uint64_t ticket, const Status& how)>;

class EndedTickets {
 public:
  explicit EndedTickets(Ended callback) : callback_(std::move(callback)) {}

  // Reserves memory for the tickets of `layouts` layouts.
  void expect(std::size_t layouts) {
    if (callback_) waiting_.reserve(2 * layouts);
  }
  // `ticket` is reset to 0. A ticket of 0 has been reported already.
  void add(std::uint64_t& ticket, const Status& how) {
    const std::uint64_t number = std::exchange(ticket, 0);
    if (number == 0 || !callback_) return;
    waiting_.push({number, how});
    pending_ = true;
  }
  bool pending() const { return pending_; }
  // True once after add(): the calling thread must unlock the mutex and call report().
  bool take_pending() { return std::exchange(pending_, false); }
  // Reports all tickets, in order. The mutex is locked while a ticket is removed, so each is reported by one thread.
  void report(std::mutex& mutex) {
    std::unique_lock lock(mutex);
    while (!waiting_.empty()) {
      const Ticket ticket = waiting_.pop();
      lock.unlock();
      callback_(ticket.number, ticket.how);
      lock.lock();
    }
  }

 private:
  struct Ticket {
    std::uint64_t number = 0;
    Status how = {};
  };
  const Ended callback_;
  Fifo<Ticket> waiting_;
  bool pending_ = false;
};

}  // namespace tithe::engine
