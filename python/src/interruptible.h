// SPDX-License-Identifier: Apache-2.0
#pragma once
// Calls that may wait, and Ctrl-C. Python notes a signal when it comes and runs its handler when the main thread is
// back in Python: a call that waits in C++ would put that off until it ends. On the main thread such a call therefore
// runs on a thread of its own, while the main thread looks for signals.
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "core.h"

namespace tithe::python {

// As nb::gil_scoped_release, but for a thread that comes back after the interpreter has begun to end: Python 3.11 ends
// such a thread on the spot, and unwinding it through C++ ends the program. It rests here instead, as from Python 3.14.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// Where a call's own thread leaves what only the calling thread may do: Python code of the caller's.
class MainThreadCalls {
 public:
  // From the call's thread. False: the caller has gone, nothing was done. What `call` throws, the caller will see.
  bool ask(const std::function<void()>& call);

 private:
  friend void run_interruptible(const std::shared_ptr<MainThreadCalls>&, std::function<void()>,
                                const std::function<void()>&);
  bool same_thread_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* call_ = nullptr;
  bool done_ = false, left_ = false;
  std::exception_ptr thrown_;                   // by the work
  std::optional<nb::python_error> call_error_;  // by what Python was asked
};

// Runs `work` without the GIL. When a signal's handler raises: `give_up` must bring it to an end soon; without one it
// is left alone to end when it will, so it must own what it uses.
void run_interruptible(const std::shared_ptr<MainThreadCalls>& calls, std::function<void()> work,
                       const std::function<void()>& give_up);

}  // namespace tithe::python
