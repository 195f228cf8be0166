// SPDX-License-Identifier: Apache-2.0
#pragma once
// grid_on_cpu.h for ThreadSanitizer: each GPU thread is a fiber with its own stack. A barrier is a release by all
// threads of a block, then an acquire; blocks of a launch are not ordered. A data race on a number within a phase is
// reported at its line. TITHE_NO_BARRIERS removes the barriers.
#include <sanitizer/tsan_interface.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <functional>
#include <vector>

// Threads of one block, phase after phase.
class Fibers {
 public:
  // The fibers of the next block of a launch.
  static Fibers& next(unsigned count) {
    if (used == all.size()) all.push_back(new Fibers(count));
    return *all[used++];
  }
  // The host has waited for all blocks of a launch.
  static void wait() {
    for (unsigned k = 0; k < used; ++k) __tsan_acquire(all[k]->before_);
    used = 0;
  }

  // `work` and its copies of host data are never freed, so the host does not write memory that fibers read.
  void phase(const std::function<void(unsigned)>* work) {
    work_ = work;
    behind_ = barrier();
    for (unsigned t = 0; t < ids_.size(); ++t) run(t);
    before_ = behind_;
  }

 private:
  explicit Fibers(unsigned count) : own_(__tsan_get_current_fiber()), stacks_(fresh(count * kStack)) {
    for (unsigned k = 0; k < count; ++k) ids_.push_back(__tsan_create_fiber(0));
  }
  static constexpr size_t kStack = 16 << 10;
  static char* fresh(size_t bytes) {
    return static_cast<char*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  static void* barrier() {  // a distinct address for each barrier
    static char* next = fresh(size_t{1} << 30);
    return next += 8;
  }
  // The host's earlier writes are visible to the fiber; the fiber's writes are visible to the host only after wait().
  __attribute__((no_sanitize("thread"))) void run(unsigned t) {
    __tsan_release(stacks_);
    ::getcontext(&there_);
    there_.uc_stack.ss_sp = stacks_ + t * kStack;
    there_.uc_stack.ss_size = kStack;
    there_.uc_link = &back_;
    at_work = this;
    turn_ = t;
    ::makecontext(&there_, enter, 0);
    __tsan_switch_to_fiber(ids_[t], __tsan_switch_to_fiber_no_sync);
    ::swapcontext(&back_, &there_);
  }
  __attribute__((no_sanitize("thread"))) static void enter() {
    Fibers* const of = at_work;
    __tsan_acquire(of->stacks_);
#if !defined(TITHE_NO_BARRIERS)
    if (of->before_ != nullptr) __tsan_acquire(of->before_);
#endif
    (*of->work_)(of->turn_);
    __tsan_release(of->behind_);
    __tsan_switch_to_fiber(of->own_, __tsan_switch_to_fiber_no_sync);
  }

  static inline Fibers* at_work = nullptr;
  static inline std::vector<Fibers*> all;
  static inline unsigned used = 0;
  void* const own_;
  char* const stacks_;
  std::vector<void*> ids_;
  const std::function<void(unsigned)>* work_ = nullptr;
  unsigned turn_ = 0;
  void *before_ = nullptr, *behind_ = nullptr;
  ucontext_t there_, back_;
};

// Shared memory is not reused: each block has its own.
#define GRID(name, Common, Own, of, count, CALLS, ...)                                 \
  static void name(const Call* call, uint64_t block) {                                 \
    enum : unsigned { kOf = of, kGroups = kThreads / (of) };                           \
    Common* const all_shared = static_cast<Common*>(malloc(kGroups * sizeof(Common))); \
    memset(static_cast<void*>(all_shared), 0xcd, kGroups * sizeof(Common));            \
    Own* const all_own = static_cast<Own*>(malloc(kThreads * sizeof(Own)));            \
    memset(static_cast<void*>(all_own), 0xcd, kThreads * sizeof(Own));                 \
    const uint64_t at = block * kGroups, places = count(call->n);                      \
    Fibers& fibers = Fibers::next(kThreads);                                           \
    __VA_ARGS__                                                                        \
  }
#define ALL_THREADS(is_there, run)                                    \
  fibers.phase(new std::function<void(unsigned)>([=](unsigned turn) { \
    static_cast<void>(all_own);                                       \
    const uint64_t group = at + turn / kOf;                           \
    if (is_there) run;                                                \
  }));
#define PHASE(f) ALL_THREADS(group < places, f(call, all_shared[turn / kOf], group, turn % kOf))
#define STEP(f, placed, count, step)                                        \
  ALL_THREADS(group < places && placed(call, group, step) < count(call->n), \
              f(call, all_shared[turn / kOf], placed(call, group, step), turn % kOf))
#define TILE_PHASE(f)                                                                                   \
  ALL_THREADS(group < places,                                                                           \
              (tile_of(call, group).values == kTile ? f<true> : f<false>)(call, all_shared[turn / kOf], \
                                                                          all_own[turn],                \
                                                                          tile_of(call, group), turn % kOf))
typedef unsigned Stream;
#define LAUNCH(kernel, blocks)                             \
  for (uint64_t b = 0; b < (blocks); ++b) kernel(call, b); \
  Fibers::wait()
#define API extern "C"
#define HOST static
