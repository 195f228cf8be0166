// SPDX-License-Identifier: Apache-2.0
#pragma once
// The stand-in's streams and events, what tests set and read, and the log: see standin.cc.
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/StringUtil.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace standin {

constexpr int kDevices = 2;
constexpr c10::StreamId kPool = 4;  // ids 1 .. kPool are the global pool's, later ones are new streams
constexpr auto kKind = c10::DeviceType::PrivateUse1;

// ---- what tests set and read

inline std::atomic<int> delay_us{0}, inner_delay_us{0};
// Copies between pinned memory and a device, to the host and back, that are left until one fails.
struct Left {
  std::atomic<int> to_host{-1}, back{-1};
};
inline Left fail_now;    // it is refused when it is asked for
inline Left fail_later;  // it fails while it runs
inline std::atomic<long> pinned_limit{-1};
inline std::atomic<long> pinned_bytes{0};
inline std::atomic<long> late{0};  // copies that touched memory of a device after it was free

struct Log {
  std::mutex mutex;
  std::string text;
  template <typename... Parts>
  void say(const Parts&... parts) {
    const std::string line = c10::str(parts..., '\n');
    const std::lock_guard lock(mutex);
    text += line;
  }
};
inline Log& say_log() {
  static auto* log = new Log;
  return *log;
}

inline bool counted_down(Left& left, bool back) {
  std::atomic<int>& of = back ? left.back : left.to_host;
  return of.load() >= 0 && of.fetch_sub(1) == 0;
}

// ---- streams and events

struct StreamEvent {  // an event: how often it was asked for on a stream, and how often a stream came to it
  int id;
  std::mutex mutex;
  std::condition_variable moved;
  std::uint64_t recorded = 0, reached = 0;
  bool broken = false;

  void wait(std::uint64_t version) {
    std::unique_lock lock(mutex);
    moved.wait(lock, [&] { return reached >= version; });
  }
};

class Queue {
 public:
  Queue() {
    std::thread([this] { run(); }).detach();
  }
  void push(std::function<void(Queue&)> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    ++pushed_;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    const std::uint64_t until = pushed_;
    changed_.wait(lock, [&] { return done_ >= until; });
    if (broken) throw std::runtime_error("standin: a copy failed on the device");
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return done_ == pushed_;
  }
  std::atomic<bool> broken{false};  // stays so, as a CUDA context does

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !jobs_.empty(); });
      const auto job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job(*this);
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Queue&)>> jobs_;
  std::uint64_t pushed_ = 0, done_ = 0;
};

using Place = std::pair<int, c10::StreamId>;  // device, stream

inline Queue& queue_of(const Place place) {
  static auto* mutex = new std::mutex;
  static auto* queues = new std::map<Place, std::unique_ptr<Queue>>;
  const std::lock_guard lock(*mutex);
  auto& queue = (*queues)[place];
  if (!queue) queue = std::make_unique<Queue>();
  return *queue;
}

inline thread_local int current_device = 0;
inline thread_local std::array<c10::StreamId, kDevices> current_stream{};
inline std::atomic<c10::StreamId> next_new{kPool + 1}, next_pool{0};

inline int index_of(const c10::Device device) { return device.has_index() ? device.index() : current_device; }
inline Place place_of(const c10::Stream stream) { return {index_of(stream.device()), stream.id()}; }
inline Place current_place(const c10::Device device) {
  return {index_of(device), current_stream[index_of(device)]};
}
inline c10::Stream stream_at(const Place p) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kKind, static_cast<c10::DeviceIndex>(p.first)),
                     p.second);
}
inline std::string name(const Place p) { return c10::str("device=", p.first, " stream=", p.second); }

}  // namespace standin
