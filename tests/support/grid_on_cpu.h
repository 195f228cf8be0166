// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs the kernels of emit_cuda.h on a CPU: the blocks of the grid one after the other, the phases of a block one
// after the other, and in a phase one thread after the other up to the barrier. Shared memory is filled with garbage
// before each block. The order of blocks and threads is a parameter, so that a data race in a phase (two threads
// write one number, or one reads a number that another writes) shows as a different result.
//
// Not modelled: lock-step execution, memory order between blocks, occupancy, and the cost of accesses.
#include <stdint.h>
#include <string.h>

// The k-th of `count`, in one of these orders: 0 upwards, 1 downwards, others scattered.
static inline uint64_t turn_of(uint64_t k, uint64_t count, unsigned order) {
  if (order == 0) return k;
  if (order == 1) return count - 1 - k;
  for (uint64_t step = 2 * order + 1;; step += 2) {  // prime to count, so that each has its turn
    uint64_t a = count, b = step;
    while (b != 0) {
      const uint64_t rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) return k * (step % count) % count;
  }
}

// Groups of threads share a block (lang/runtime/prelude_cuda_bytes.h); each group has its own shared memory, and each
// thread its own registers.
#define GRID(name, Common, Own, of, count, CALLS, ...)                         \
  static void name(const Argument* argument, uint64_t place, unsigned order) { \
    enum : unsigned { kOf = of, kGroups = kThreads / (of) };                   \
    FIND_CALLS(*argument, place)                                               \
    CALLS(*argument) {                                                         \
      const Call* const call = &THIS_CALL(*argument);                          \
      Common all_shared[kGroups];                                              \
      Own all_own[kThreads];                                                   \
      memset(all_shared, 0xcd, sizeof all_shared);                             \
      memset(all_own, 0xcd, sizeof all_own);                                   \
      const uint64_t at = block * kGroups, places = count(call->n);            \
      __VA_ARGS__                                                              \
    }                                                                          \
  }                                                                            \
  ON_CPU(name)
#define ALL_THREADS(is_there, run)                                            \
  for (unsigned t = 0; t < kThreads; ++t) {                                   \
    const unsigned turn = static_cast<unsigned>(turn_of(t, kThreads, order)); \
    const uint64_t group = at + turn / kOf;                                   \
    if (is_there) run;                                                        \
  }
#define PHASE(f) ALL_THREADS(group < places, f(call, all_shared[turn / kOf], group, turn % kOf))
#define STEP(f, placed, count, step)                                        \
  ALL_THREADS(group < places && placed(call, group, step) < count(call->n), \
              f(call, all_shared[turn / kOf], placed(call, group, step), turn % kOf))
#define TILE_PHASE(f)                                                                                   \
  ALL_THREADS(group < places,                                                                           \
              (tile_of(call, group).values == kTile ? f<true> : f<false>)(call, all_shared[turn / kOf], \
                                                                          all_own[turn],                \
                                                                          tile_of(call, group), turn % kOf))
#if defined(TITHE_PLANS)  // kernels are found by name, and launched by the fake driver (gpu/fake_gpu.h)
struct OnCpu {
  void (*run)(const void* arguments, uint64_t blocks, unsigned order);
  uint64_t argument_bytes, threads, call_bytes;
};
#define ON_CPU(name)                                                                         \
  extern "C" __attribute__((visibility("default"))) const void* name##_on_cpu() {            \
    static const OnCpu kOnCpu = {                                                            \
        [](const void* arguments, uint64_t blocks, unsigned order) {                         \
          for (uint64_t b = 0; b < blocks; ++b)                                              \
            name(static_cast<const Argument*>(arguments), turn_of(b, blocks, order), order); \
        },                                                                                   \
        sizeof(Argument), kThreads, sizeof(Argument) == sizeof(Call) ? 0 : sizeof(Call)};    \
    return &kOnCpu;                                                                          \
  }
#else
#define ON_CPU(name)
typedef unsigned Stream;  // the order
#define LAUNCH(kernel, blocks) \
  for (uint64_t b = 0; b < (blocks); ++b) kernel(call, turn_of(b, (blocks), stream), stream)
#define API extern "C" __attribute__((visibility("default")))
#define HOST static
#endif
