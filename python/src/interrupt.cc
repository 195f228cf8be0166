// SPDX-License-Identifier: Apache-2.0
// Ctrl-C for a wait on a thread that is not Python's main one, where the main one waits in C++ for that thread: so does
// PyTorch's backward on an accelerator. Python notes a signal and runs its handler when the main thread is back, which
// would be when the wait is over. Between hold and release a SIGINT is therefore kept here, and who waits takes it.
#include <atomic>
#include <csignal>
#include <mutex>

#include "core.h"

namespace tithe::python {
namespace {

std::mutex mutex;
int holders = 0;             // under the mutex
struct sigaction before {};  // the handler of all others, while there are holders
std::atomic<bool> held{false}, came{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void note(int number, siginfo_t* info, void* context) {
  if (held)
    came = true;
  else if ((before.sa_flags & SA_SIGINFO) != 0)  // it came while the last one released
    before.sa_sigaction(number, info, context);
  else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
    before.sa_handler(number);
}

void hold() {
  const std::lock_guard lock(mutex);
  if (holders++ > 0) return;
  held = true;
  struct sigaction mine {};
  mine.sa_sigaction = note;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGINT, &mine, &before);
}

// True to one of the holders if a SIGINT has come.
bool release() {
  const std::lock_guard lock(mutex);
  if (--holders == 0) {
    held = false;
    struct sigaction now {};
    sigaction(SIGINT, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == note) sigaction(SIGINT, &before, nullptr);
  }
  return came.exchange(false);
}

}  // namespace

void bind_interrupt(nb::module_& m) {
  m.def("hold_interrupt", &hold, "Until the release a SIGINT does not reach Python.");
  m.def(
      "held_interrupt", [] { return came.load(); }, "Whether one has come.");
  m.def("release_interrupt", &release,
        "The same, for one of those who hold it; from now on they reach Python.");
}

}  // namespace tithe::python
