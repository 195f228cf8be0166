// SPDX-License-Identifier: Apache-2.0
// The main thread alternates between waiting for the work and PyErr_CheckSignals(). Python code that the work needs,
// such as the caller's exchange function, is passed to the main thread through MainThreadCalls.
#include "interruptible.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <thread>

namespace tithe::python {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // interval at which the main thread checks for signals

// Python's main thread is that of the process unless the interpreter is embedded; then a call blocks directly.
bool on_main_thread() { return syscall(SYS_gettid) == getpid(); }

bool interpreter_ends() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

WithoutGil::~WithoutGil() {
  while (interpreter_ends() && !on_main_thread()) pause();
  PyEval_RestoreThread(state_);
}

bool MainThreadCalls::ask(const std::function<void()>& call) {
  if (same_thread_) {
    const nb::gil_scoped_acquire acquire;
    try {
      call();
    } catch (nb::python_error& e) {
      call_error_.emplace(std::move(e));
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  call_ = &call;
  changed_.notify_all();
  changed_.wait(lock, [&] { return call_ == nullptr || left_; });
  return !left_;
}

void run_interruptible(const std::shared_ptr<MainThreadCalls>& calls, std::function<void()> work,
                       const std::function<void()>& give_up) {
  if (!on_main_thread()) {
    calls->same_thread_ = true;
    {
      const WithoutGil released;
      work();
    }
    if (calls->call_error_) throw nb::python_error(std::move(*calls->call_error_));
    return;
  }
  std::thread worker([calls, work = std::move(work)]() mutable {
    try {
      work();
    } catch (...) {
      calls->thrown_ = std::current_exception();
    }
    work = nullptr;  // releases its data before the caller is notified
    const std::lock_guard lock(calls->mutex_);
    calls->done_ = true;
    calls->changed_.notify_all();
  });
  for (bool done = false; !done;) {
    const std::function<void()>* call = nullptr;
    {
      const WithoutGil released;
      std::unique_lock lock(calls->mutex_);
      calls->changed_.wait_for(lock, kLook, [&] { return calls->done_ || calls->call_ != nullptr; });
      done = calls->done_;
      call = calls->call_;
    }
    if (call != nullptr) {
      try {
        (*call)();
      } catch (nb::python_error& e) {
        calls->call_error_.emplace(std::move(e));
      }
      const std::lock_guard lock(calls->mutex_);
      calls->call_ = nullptr;
      calls->changed_.notify_all();
    }
    if (PyErr_CheckSignals() == 0) continue;
    const nb::python_error raised;  // takes over the handler's exception
    if (give_up) {
      const WithoutGil released;
      give_up();
      worker.join();
    } else {
      const std::lock_guard lock(calls->mutex_);
      calls->left_ = true;
      calls->changed_.notify_all();
      worker.detach();
    }
    throw nb::python_error(raised);
  }
  worker.join();
  if (calls->thrown_) std::rethrow_exception(calls->thrown_);
  if (calls->call_error_) throw nb::python_error(std::move(*calls->call_error_));
}

}  // namespace tithe::python
