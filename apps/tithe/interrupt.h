// SPDX-License-Identifier: Apache-2.0
#pragma once
// Handles Ctrl-C and similar signals: one line on stderr, no incomplete file is left, and the process ends by the
// signal, so a shell gets the exit code 128 + its number.
#include <csignal>

namespace tithe::cli {

void install_interrupt_handler();

// Blocks interrupts of this thread during its lifetime, for short work that must not be interrupted.
class HeldInterrupts {
 public:
  HeldInterrupts();
  ~HeldInterrupts();
  HeldInterrupts(const HeldInterrupts&) = delete;
  HeldInterrupts& operator=(const HeldInterrupts&) = delete;

 private:
  sigset_t before_;
};

// During its lifetime, an interrupt removes the file of this name. At most one at a time.
class RemovedIfInterrupted {
 public:
  explicit RemovedIfInterrupted(const char* path);
  ~RemovedIfInterrupted();
  RemovedIfInterrupted(const RemovedIfInterrupted&) = delete;
  RemovedIfInterrupted& operator=(const RemovedIfInterrupted&) = delete;
};

}  // namespace tithe::cli
