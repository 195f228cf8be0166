// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ctrl-C and its like: one line on stderr, no half-written file left, and the process ends by the signal, so that a
// shell sees 128 + its number.
#include <csignal>

namespace tithe::cli {

void watch_interrupts();

// While it lives, an interrupt of this thread waits: for what must not be cut in the middle, and takes no time.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;

 private:
  sigset_t before_;
};

// While it lives, the file of this name is removed if the process is interrupted. One at a time.
class RemovedIfInterrupted {
 public:
  explicit RemovedIfInterrupted(const char* path);
  ~RemovedIfInterrupted();
  RemovedIfInterrupted(const RemovedIfInterrupted&) = delete;
  RemovedIfInterrupted& operator=(const RemovedIfInterrupted&) = delete;
};

}  // namespace tithe::cli
