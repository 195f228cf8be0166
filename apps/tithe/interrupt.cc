// SPDX-License-Identifier: Apache-2.0
// The signal handler uses only async-signal-safe calls and lock-free atomics. SA_RESETHAND restores the default action,
// so that raise() ends the process by the signal.
#include "interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

#include "progress.h"

namespace tithe::cli {
namespace {

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};

std::atomic<const char*> unfinished{nullptr};
static_assert(std::atomic<const char*>::is_always_lock_free);  // read by a signal handler

void end_by(int signal) {
  if (const char* path = unfinished.load()) unlink(path);
  clear_progress();
  constexpr char kText[] = "tithe: interrupted\n";
  static_cast<void>(!write(STDERR_FILENO, kText, sizeof kText - 1));
  raise(signal);  // pending until this handler returns, then handled by the default
}

}  // namespace

HeldInterrupts::HeldInterrupts() {
  sigset_t interrupts;
  sigemptyset(&interrupts);
  for (const int signal : kInterrupts) sigaddset(&interrupts, signal);
  pthread_sigmask(SIG_BLOCK, &interrupts, &before_);
}
HeldInterrupts::~HeldInterrupts() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = end_by;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : kInterrupts) {
    struct sigaction before {};
    // An ignored signal stays ignored: nohup, and shells that start a background job.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
  }
}

RemovedIfInterrupted::RemovedIfInterrupted(const char* path) { unfinished = path; }
RemovedIfInterrupted::~RemovedIfInterrupted() { unfinished = nullptr; }

}  // namespace tithe::cli
