// SPDX-License-Identifier: Apache-2.0
// Ctrl-C for a wait on a thread other than Python's main thread, while the main thread waits in C++ for that thread, as
// in PyTorch's backward pass on an accelerator. Python would run the handler only after the wait. Between hold and
// release, a SIGINT is therefore recorded here, and the waiting thread checks for it.
#include <atomic>
#include <csignal>
#include <mutex>

#include "core.h"

namespace tithe::python {
namespace {

std::mutex mutex;
int holders = 0;             // guarded by the mutex
struct sigaction before {};  // the previous handler, while there are holders
std::atomic<bool> held{false}, received{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");

void note(int number, siginfo_t* info, void* context) {
  if (held)
    received = true;
  else if ((before.sa_flags & SA_SIGINFO) != 0)  // it arrived during the last release
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

// True for one of the holders if a SIGINT has arrived.
bool release() {
  const std::lock_guard lock(mutex);
  if (--holders == 0) {
    held = false;
    struct sigaction now {};
    sigaction(SIGINT, nullptr, &now);
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == note) sigaction(SIGINT, &before, nullptr);
  }
  return received.exchange(false);
}

}  // namespace

void bind_interrupt(nb::module_& m) {
  m.def("hold_interrupt", &hold, "Holds back SIGINT from Python until release_interrupt().");
  m.def(
      "held_interrupt", [] { return received.load(); },
      "Whether a SIGINT has arrived since hold_interrupt().");
  m.def("release_interrupt", &release,
        "Releases one hold. Returns whether a SIGINT arrived; later ones reach Python.");
}

}  // namespace tithe::python
