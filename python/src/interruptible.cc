// SPDX-License-Identifier: Apache-2.0
#include "interruptible.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <thread>

namespace tithe::python {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // how often the main thread looks for signals

// Python's main thread is the process's, but where an interpreter is embedded; there a call waits as it is.
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

bool Desk::ask(const std::function<void()>& errand) {
  if (same_thread_) {
    const nb::gil_scoped_acquire acquire;
    try {
      errand();
    } catch (nb::python_error& e) {
      in_errand_.emplace(std::move(e));
    }
    return true;
  }
  std::unique_lock lock(mutex_);
  errand_ = &errand;
  changed_.notify_all();
  changed_.wait(lock, [&] { return errand_ == nullptr || left_; });
  return !left_;
}

void run_patiently(const std::shared_ptr<Desk>& desk, std::function<void()> work,
                   const std::function<void()>& give_up) {
  if (!on_main_thread()) {
    desk->same_thread_ = true;
    {
      const WithoutGil released;
      work();
    }
    if (desk->in_errand_) throw nb::python_error(std::move(*desk->in_errand_));
    return;
  }
  std::thread worker([desk, work = std::move(work)]() mutable {
    try {
      work();
    } catch (...) {
      desk->thrown_ = std::current_exception();
    }
    work = nullptr;  // what it owns goes before the caller hears of the end
    const std::lock_guard lock(desk->mutex_);
    desk->done_ = true;
    desk->changed_.notify_all();
  });
  for (bool done = false; !done;) {
    const std::function<void()>* errand = nullptr;
    {
      const WithoutGil released;
      std::unique_lock lock(desk->mutex_);
      desk->changed_.wait_for(lock, kLook, [&] { return desk->done_ || desk->errand_ != nullptr; });
      done = desk->done_;
      errand = desk->errand_;
    }
    if (errand != nullptr) {
      try {
        (*errand)();
      } catch (nb::python_error& e) {
        desk->in_errand_.emplace(std::move(e));
      }
      const std::lock_guard lock(desk->mutex_);
      desk->errand_ = nullptr;
      desk->changed_.notify_all();
    }
    if (PyErr_CheckSignals() == 0) continue;
    const nb::python_error raised;  // takes what the handler raised
    if (give_up) {
      const WithoutGil released;
      give_up();
      worker.join();
    } else {
      const std::lock_guard lock(desk->mutex_);
      desk->left_ = true;
      desk->changed_.notify_all();
      worker.detach();
    }
    throw nb::python_error(raised);
  }
  worker.join();
  if (desk->thrown_) std::rethrow_exception(desk->thrown_);
  if (desk->in_errand_) throw nb::python_error(std::move(*desk->in_errand_));
}

}  // namespace tithe::python
