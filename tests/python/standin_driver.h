// SPDX-License-Identifier: Apache-2.0
#pragma once
// The tests' CUDA driver (tests/support/gpu/fake_gpu.h) under the stand-in, where TITHE_CUDA names it: its memory, and
// the stand-in's streams as it knows them.
#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "standin_streams.h"
#include "support/gpu/fake_gpu.h"

namespace standin {

constexpr std::uint64_t kHandles = 0x5eed0000, kOfDevice = 0x1000;
inline std::uint64_t handle_of(const Place place) {
  return kHandles + static_cast<std::uint64_t>(place.first) * kOfDevice +
         static_cast<std::uint64_t>(place.second);
}
inline std::mutex marks_mutex;
inline std::vector<std::shared_ptr<StreamEvent>>& marks() {
  static auto* all = new std::vector<std::shared_ptr<StreamEvent>>;
  return *all;
}
inline std::uint64_t mark_stream(std::uint64_t stream) {
  auto mark = std::make_shared<StreamEvent>();
  mark->recorded = 1;
  const std::uint64_t place = stream - kHandles;
  queue_of({static_cast<int>(place / kOfDevice), static_cast<c10::StreamId>(place % kOfDevice)})
      .push([mark](const Queue&) {
        const std::lock_guard lock(mark->mutex);
        mark->reached = 1;
        mark->moved.notify_all();
      });
  const std::lock_guard lock(marks_mutex);
  marks().push_back(std::move(mark));
  return marks().size() - 1;
}
inline void reach_mark(std::uint64_t number) {
  std::shared_ptr<StreamEvent> mark;
  {
    const std::lock_guard lock(marks_mutex);
    mark = marks()[number];
  }
  mark->wait(1);
}

class Driver {
 public:
  static Driver* here() {  // null: there is none
    static Driver* const driver = std::getenv("TITHE_CUDA") == nullptr ? nullptr : new Driver;
    return driver;
  }
  void* take(std::size_t bytes, int device) {
    std::uint64_t at = 0;
    void* popped = nullptr;
    TORCH_CHECK(push_(contexts_[device]) == 0 && take_(&at, bytes) == 0 && pop_(&popped) == 0,
                "standin: the driver has no memory");
    return reinterpret_cast<void*>(at);
  }
  const tithe::fake::Control& control() const { return *control_; }

 private:
  Driver() {
    control_ = of<const tithe::fake::Control* (*)()>("fake_gpu")();
    control_->set_devices(kDevices);
    static const tithe::fake::Outside kStreams = {kHandles, kHandles + kDevices * kOfDevice, mark_stream,
                                                  reach_mark};
    control_->join(&kStreams);
    const auto retain = of<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
    for (int d = 0; d < kDevices; ++d) TORCH_CHECK(retain(&contexts_[d], d) == 0);
  }
  template <typename F>
  F of(const char* name) {
    return reinterpret_cast<F>(dlsym(library_, name));
  }
  void* library_ = dlopen(std::getenv("TITHE_CUDA"), RTLD_NOW | RTLD_LOCAL);
  const tithe::fake::Control* control_ = nullptr;
  void* contexts_[kDevices] = {};
  int (*push_)(void*) = of<int (*)(void*)>("cuCtxPushCurrent_v2");
  int (*pop_)(void**) = of<int (*)(void**)>("cuCtxPopCurrent_v2");
  int (*take_)(std::uint64_t*, std::size_t) = of<int (*)(std::uint64_t*, std::size_t)>("cuMemAlloc_v2");
};

// Where the device sees memory that is its own, or pinned.
inline void* seen(void* p) {
  if (Driver* driver = Driver::here())
    if (std::uint8_t* at = driver->control().behind(reinterpret_cast<std::uint64_t>(p))) return at;
  return p;
}

}  // namespace standin
