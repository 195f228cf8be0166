// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ctrl-C and its like: one line on stderr, no half-written file left, and the process ends by the signal, so that a
// shell sees 128 + its number.

namespace tithe::cli {

void watch_interrupts();

// While it lives, the file of this name is removed if the process is interrupted. One at a time.
class RemovedIfInterrupted {
 public:
  explicit RemovedIfInterrupted(const char* path);
  ~RemovedIfInterrupted();
  RemovedIfInterrupted(const RemovedIfInterrupted&) = delete;
  RemovedIfInterrupted& operator=(const RemovedIfInterrupted&) = delete;
};

}  // namespace tithe::cli
