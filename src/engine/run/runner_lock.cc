// SPDX-License-Identifier: Apache-2.0
#include "engine/run/runner_lock.h"

namespace tithe::engine {

void RunnerLock::Hold::unlock() {
  const Wakeups wakeups = std::exchange(lock_.pending_, {});
  const bool ended = lock_.tickets_.take_pending();
  const std::uint64_t due = lock_.proxy_.take_pending();
  guard_.unlock();
  if (wakeups.news) lock_.news_.notify_all();
  if (wakeups.poll) lock_.transport_.wake();
  for (std::size_t n = wakeups.lanes; n > 0; --n) lock_.work_.notify_one();
  if (ended) lock_.tickets_.report(lock_.mutex_);
  if (due > 0) lock_.proxy_.run(due);
}

void RunnerLock::Hold::wait_for_steps() {
  ++lock_.idle_;
  sleep(lock_.work_, false);
  --lock_.idle_;
}

void RunnerLock::Hold::sleep(std::condition_variable& until, bool asks) {
  if (lock_.has_pending()) {
    unlock();
    take();
  } else if (asks) {
    until.wait_for(guard_, kInterrupts);  // by the system's clock: the transport's may be virtual
  } else {
    until.wait(guard_);
  }
}

}  // namespace tithe::engine
