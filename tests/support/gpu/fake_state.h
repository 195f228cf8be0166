// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fake driver's one GPU, and the checks that its functions share.
#include <cstdlib>
#include <mutex>
#include <string>

#include "support/gpu/fake_gpu.h"
#include "support/gpu/fake_memory.h"
#include "support/gpu/fake_streams.h"

namespace tithe::fake {

// As cuda.h numbers them.
enum : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinary = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
};

struct Failure {
  std::string function;
  unsigned countdown = 0;
  int error = 0;
  bool for_good = false;
};

struct Piece {  // of pinned memory
  std::size_t bytes;
};

struct Gpu {
  explicit Gpu(std::uint64_t seed) : streams(seed) {}
  GpuMemory memory;
  Streams streams;
  std::map<std::uint64_t, Piece> pinned;
  std::map<std::uint64_t, std::shared_ptr<Work>> events;  // with the work that each recorded
  std::map<std::uint64_t, void*> modules;                 // and their objects
  std::map<std::uint64_t, std::pair<std::uint64_t, const OnCpu*>> functions;
  std::map<std::uint64_t, bool> made_streams;
  std::vector<Failure> failures;
  std::map<std::string, std::uint64_t, std::less<>> calls_of;  // by function
  std::uint64_t next_handle = 0x1000, calls = 0, retained = 0;
  std::size_t has = std::size_t{1} << 30;
  int version = 12090, broken = kOk, devices = 1;
  bool running = false;
};

inline std::mutex mutex;
inline std::unique_ptr<Gpu> gpu = std::make_unique<Gpu>(1);
inline std::string problem_text;
inline const Outside* outside = nullptr;
inline thread_local std::vector<void*> current;
inline constexpr int kMaxDevices = 2;
inline int context_objects[kMaxDevices];  // one context for each GPU
inline bool is_context(const void* context) {
  return context >= &context_objects[0] && context < &context_objects[kMaxDevices];
}
inline int current_device() {
  return static_cast<int>(static_cast<int*>(current.back()) - &context_objects[0]);
}

inline int complain(const std::string& what, int error = kInvalidValue) {
  if (problem_text.empty()) problem_text = what;
  return error;
}

// A planned failure of this call, or of this kind of work.
inline int planned(const char* function, bool work = false) {
  for (Failure& failure : gpu->failures) {
    if (failure.function != function && (work || failure.function != "*")) continue;
    if (failure.countdown > 1) {
      --failure.countdown;
    } else if (failure.countdown == 1 || failure.for_good) {
      failure.countdown = 0;
      return failure.error;
    }
  }
  return kOk;
}

inline int begin(const char* function, bool needs_context = true) {
  ++gpu->calls;
  ++gpu->calls_of[function];
  if (gpu->broken != kOk && needs_context) return gpu->broken;
  if (const int error = planned(function); error != kOk) return error;
  if (needs_context && (current.empty() || !is_context(current.back()) || gpu->retained == 0))
    return complain(std::string(function) + " without a context", kInvalidContext);
  return kOk;
}

#define BEGIN(function, ...)         \
  const std::lock_guard lock(mutex); \
  if (const int error = begin(function __VA_OPT__(, ) __VA_ARGS__); error != kOk) return error

inline std::uint64_t handle_of(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
inline void* pointer_of(std::uint64_t handle) { return reinterpret_cast<void*>(handle); }
inline std::uint64_t new_handle() { return gpu->next_handle += 8; }

inline bool is_outside(void* stream) {
  return outside != nullptr && handle_of(stream) >= outside->first && handle_of(stream) < outside->end;
}
inline bool is_stream(void* stream) {
  return stream == nullptr || is_outside(stream) || gpu->made_streams.contains(handle_of(stream));
}
inline bool is_pinned(const void* at, std::size_t bytes) {
  const auto after = gpu->pinned.upper_bound(handle_of(at));
  if (after == gpu->pinned.begin()) return false;
  const auto& [begin, piece] = *std::prev(after);
  const std::size_t from = handle_of(at) - begin;
  return from <= piece.bytes && bytes <= piece.bytes - from;
}
inline std::uint8_t poison() {
  constexpr std::uint8_t kPoisons[] = {0xcd, 0xff, 0x7f, 0x81};
  return kPoisons[gpu->streams.draw(4)];
}
// Drops pending work on freed memory, and reports it.
inline void leave_alone(std::uint64_t at, std::size_t bytes) {
  const auto touches = [&](const Work& work) {
    for (const std::uint64_t touched : work.touches)
      if (touched >= at && touched < at + std::max<std::size_t>(bytes, 1)) return true;
    return false;
  };
  if (!gpu->streams.any(touches)) return;
  complain("memory is given back while work is pending in it");
  gpu->streams.forget(touches);
}

inline int add(void* stream, std::function<int()> run, std::vector<std::uint64_t> touches = {},
               std::uint64_t module = 0, std::shared_ptr<Work> after = nullptr) {
  auto work = std::make_shared<Work>();
  work->stream = handle_of(stream);
  work->run = std::move(run);
  work->touches = std::move(touches);
  work->module = module;
  work->after = std::move(after);
  gpu->streams.add(std::move(work));
  return kOk;
}

// Work that ends with an error breaks the context.
inline int after_work(int error) {
  if (error != kOk) gpu->broken = error;
  return error;
}

inline int drop(bool was_there, const char* what) {
  return was_there ? kOk : complain(std::string(what) + " that is none", kInvalidHandle);
}

}  // namespace tithe::fake
