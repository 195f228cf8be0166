// SPDX-License-Identifier: Apache-2.0
#pragma once
// A CUDA driver without a GPU, for tests: a library with the functions of src/device/driver.def, written from
// NVIDIA's manual of the driver API. The product code loads it like the real driver.
//
//   late      a stream's work runs only when a caller waits for it or queries it; in an order that streams and events
//             allow, drawn from a seed, sometimes together with work of other streams
//   poison    fresh and freed memory is poisoned, and so is the target of a download from the call until the work is
//             done. An upload reads its source when the work runs
//   apart     host code cannot access GPU addresses: access crashes. Kernels get other addresses of the same memory. No
//             memory is accessible behind a block, and addresses are never reused
//   checked   every argument is checked against the live objects; an invalid one is refused and recorded in problem()
//   failing   any call can be made to fail the n-th time, once or permanently; so can work, which corrupts the context
//
// The fake matches its author's reading of the manual, so its own suite must also be run on a real driver.
#include <cstdint>

namespace tithe::fake {

// Streams run by another party that has allocated memory here (tests/python/standin.cc). They only record events.
struct Outside {
  std::uint64_t first, end;                       // their handles
  std::uint64_t (*record)(std::uint64_t stream);  // a mark in the stream
  void (*reach)(std::uint64_t mark);              // returns when the stream has reached the mark
};

// The tests' handle on the fake: the library's function `fake_gpu` returns it.
struct Control {
  void (*reset)(std::uint64_t seed);  // no live objects, no errors, no planned failures
  // The n-th call of a function from now on, the first being 1; "*": of any. Work: "kernel", "copy".
  void (*fail)(const char* function, unsigned nth, int error, bool for_good);
  void (*set_version)(int version);                 // 12090
  void (*set_devices)(int count);                   // 1 or 2; they share memory and streams
  void (*set_memory)(std::uint64_t bytes);          // that the GPU has
  std::uint64_t (*alive)();                         // pieces of memory, streams, events, modules
  std::uint64_t (*calls)();                         // since reset
  const char* (*problem)();                         // the first invalid call; "": none
  void (*join)(const Outside* streams);             // until the process exits
  std::uint8_t* (*behind)(std::uint64_t at);        // the host address of the memory at this GPU address
  bool (*broken)();                                 // the context
  void (*forgive)();                                // clears planned failures; a corrupted context stays so
  std::uint64_t (*calls_of)(const char* function);  // since reset; cuLaunchKernel, ...
};

// A kernel in an object made by the fake compiler: the object's function NAME_on_cpu returns this
// (tests/support/grid_on_cpu.h has the same struct).
struct OnCpu {
  void (*run)(const void* arguments, std::uint64_t blocks, unsigned order);
  std::uint64_t argument_bytes;
  std::uint64_t threads;
  std::uint64_t call_bytes;  // in the table of a batch; 0: the argument is not a batch
};

// The argument of a batch: a table in GPU memory (lang/runtime/prelude_cuda_bytes.h has the same struct).
struct Batch {
  std::uint64_t calls, ends;
  std::uint32_t tensors, row, rounds, unused;
};

// The header of an object in the fake compiler's output.
struct CodeHead {
  char magic[8];
  std::uint64_t bytes, sm;
};
inline constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'c', 'o', 'd', 'e'};
inline constexpr int kFakeSm = 90;

}  // namespace tithe::fake
