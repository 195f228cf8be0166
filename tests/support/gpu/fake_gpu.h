// SPDX-License-Identifier: Apache-2.0
#pragma once
// A CUDA driver without a GPU, for tests: a library with the functions of src/device/driver.def, written from NVIDIA's
// manual of the driver API. The shipped code loads it as it would load the driver.
//
//   late      work of a stream is done when somebody waits for it or asks, and not before; in any order that streams
//             and events allow, drawn from a seed, and other streams' work now and then with it
//   poison    fresh and freed memory, and the target of a copy down from when it is asked for until it is done. A copy
//             up reads when it is done
//   apart     the GPU's addresses cannot be touched by the host: who does, dies. Kernels are told other addresses of
//             the same memory: behind each piece of it nobody may read, and an address is never given twice
//   checked   every argument against what is alive; what is wrong is refused, and kept in problem()
//   failing   any call can fail the n-th time, once or for good; work too, which breaks the context
//
// It agrees with its author, not with NVIDIA: its suite is to be run on a real driver first.
#include <cstdint>

namespace tithe::fake {

// Streams that somebody else runs, who has taken memory here (tests/python/standin.cc). They only record events.
struct Outside {
  std::uint64_t first, end;                       // their handles
  std::uint64_t (*record)(std::uint64_t stream);  // a mark in the stream
  void (*reach)(std::uint64_t mark);              // returns when the stream has come to it
};

// The tests' handle on the fake: the library's function `fake_gpu` returns it.
struct Control {
  void (*reset)(std::uint64_t seed);  // as new: nothing is alive, nothing is broken, no failure is planned
  // The n-th call of a function from now on, the first being 1; "*": of any. Work: "kernel", "copy".
  void (*fail)(const char* function, unsigned nth, int error, bool for_good);
  void (*set_version)(int version);         // 12090
  void (*set_devices)(int count);           // 1 or 2; they share memory and streams
  void (*set_memory)(std::uint64_t bytes);  // that the GPU has
  std::uint64_t (*alive)();                 // pieces of memory, streams, events, modules
  std::uint64_t (*calls)();                 // since reset
  const char* (*problem)();                 // what was done wrong first; "": nothing
  void (*join)(const Outside* streams);     // for as long as the process lives
  std::uint8_t* (*behind)(
      std::uint64_t at);  // where this process may touch what lies at one of the GPU's addresses
  bool (*broken)();       // the context
  void (*forgive)();      // no failure is planned any more; what is broken stays so
};

// A kernel, in what the fake's compiler makes of a text: its function NAME_on_cpu returns this
// (tests/support/grid_on_cpu.h has the same).
struct OnCpu {
  void (*run)(const void* told, std::uint64_t blocks, unsigned order);
  std::uint64_t told_bytes;
  std::uint64_t threads;
};

// The head in front of an object in the code that the fake's compiler makes.
struct CodeHead {
  char magic[8];
  std::uint64_t bytes, sm;
};
inline constexpr char kMagic[8] = {'f', 'a', 'k', 'e', 'c', 'o', 'd', 'e'};
inline constexpr int kFakeSm = 90;

}  // namespace tithe::fake
