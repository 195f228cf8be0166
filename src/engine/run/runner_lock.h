// SPDX-License-Identifier: Apache-2.0
#pragma once
// The runner's mutex, and the wake-ups that follow its release: a thread that wakes earlier would wait for the mutex.
// Owns the mutex, the conditions on which threads sleep, and the pending wake-ups. All functions require the mutex,
// unless their comment states otherwise.
//
// No notification is lost: a thread checks its condition under the mutex before it sleeps, and every change of the
// condition is followed by a notification. Threads check again whenever they wake, so a superfluous notification
// costs only time.
//
// No wake-up of a poll is lost. The communication lane checks all queues and calls begin_poll() under one lock of the
// mutex, so the check sees all earlier work. For later work, Transport::wake() also ends a poll that has not begun yet.
// One wake-up suffices for a poll: the first wake_poll() clears polling_, and its thread calls wake() as soon as it
// unlocks. A thread that comes in between finds polling_ cleared and relies on that call. A late wake() ends the next
// poll; the lane checks the queues and polls again.
#include <algorithm>
#include <condition_variable>

#include "engine/run/ended_tickets.h"
#include "engine/run/proxy_timer.h"

namespace tithe::engine {

inline constexpr std::chrono::milliseconds kInterrupts{100};  // the period of calls of `interrupted`

class RunnerLock {
 public:
  // The constructor locks the mutex. Each unlock executes the pending wake-ups.
  class Hold {
   public:
    explicit Hold(RunnerLock& lock) : lock_(lock), guard_(lock.mutex_) {}
    ~Hold() {
      if (guard_.owns_lock()) unlock();
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    void unlock();
    void take() {  // with or without the mutex
      if (!guard_.owns_lock()) guard_.lock();
    }
    // Sleeps until wake_callers(), or for a shorter time. asks: wakes in time for the next call of `interrupted`.
    void wait_for_news(bool asks = false) { sleep(lock_.news_, asks); }
    // A compute lane sleeps until wake_lanes() or wake_all_lanes(), or for a shorter time.
    void wait_for_steps();

   private:
    void sleep(std::condition_variable& until, bool asks);
    RunnerLock& lock_;
    std::unique_lock<std::mutex> guard_;
  };

  RunnerLock(Transport& transport, EndedTickets& tickets, ProxyTimer& proxy)
      : transport_(transport), tickets_(tickets), proxy_(proxy) {}

  std::mutex& mutex() { return mutex_; }  // for readers: no wake-ups follow

  void wake_callers() { pending_.news = true; }
  // Wakes one sleeping compute lane for each of `steps` ready steps.
  void wake_lanes(std::size_t steps) { pending_.lanes = std::min(pending_.lanes + steps, idle_); }
  void wake_all_lanes() { work_.notify_all(); }  // with or without the mutex
  // Wakes the communication lane if it polls, or is about to.
  void wake_poll() {
    if (std::exchange(polling_, false)) pending_.poll = true;
  }
  void begin_poll() { polling_ = true; }
  void end_poll() { polling_ = false; }

 private:
  struct Wakeups {
    bool news = false;  // waiting callers
    bool poll = false;  // the communication lane
    std::size_t lanes = 0;
  };
  bool has_pending() const {
    return pending_.news || pending_.poll || pending_.lanes > 0 || tickets_.pending() || proxy_.pending();
  }
  Transport& transport_;
  EndedTickets& tickets_;
  ProxyTimer& proxy_;
  std::mutex mutex_;
  std::condition_variable work_, news_;
  Wakeups pending_;
  std::size_t idle_ = 0;  // sleeping compute lanes
  bool polling_ = false;  // the poll has not been woken yet
};

}  // namespace tithe::engine
