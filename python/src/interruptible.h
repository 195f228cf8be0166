// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes blocking calls interruptible by Ctrl-C. Python records a signal when it arrives, and runs its handler when the
// main thread executes Python code again; a call that blocks in C++ would delay it until the call returns. Therefore a
// call from the main thread runs on a thread of its own, while the main thread checks for signals.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "core.h"

namespace tithe::python {

// Like nb::gil_scoped_release, but safe for a thread that returns while the interpreter is shutting down. Python 3.11
// exits such a thread at once, and unwinding it through C++ aborts the program. Here the thread blocks instead, as
// since Python 3.14.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Runs Python code of the caller on the calling thread, on request of the call's own thread.
class MainThreadCalls {
 public:
  // Called from the call's thread. False: the caller is no longer waiting, and nothing was done. The caller gets
  // exceptions of `call`.
  bool ask(const std::function<void()>& call);

 private:
  friend void run_interruptible(const std::shared_ptr<MainThreadCalls>&, std::function<void()>,
                                const std::function<void()>&);
  bool same_thread_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* call_ = nullptr;
  bool done_ = false, left_ = false;
  std::exception_ptr thrown_;                   // thrown by the work
  std::optional<nb::python_error> call_error_;  // raised by the requested Python code
};

// Runs `work` without the GIL. If a signal handler raises, `give_up` must make `work` return soon. Without a `give_up`
// callback the work is detached, so it must own its data.
void run_interruptible(const std::shared_ptr<MainThreadCalls>& calls, std::function<void()> work,
                       const std::function<void()>& give_up);

}  // namespace tithe::python
