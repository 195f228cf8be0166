// SPDX-License-Identifier: Apache-2.0
#include "device/device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <mutex>
#include <optional>

namespace tithe::device {

namespace {

// Values from cuda.h.
enum : int {
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotReady = 600,
  kMajor = 75,  // attributes of a device
  kMinor = 76,
  kMemoryType = 2,  // attributes of an address
  kOrdinal = 9,
};
constexpr unsigned kOnDevice = 2;
enum : unsigned { kNonBlocking = 1, kNoTiming = 2, kPortable = 1 };
constexpr int kThreadLocal = 1;  // does not disturb captures of other threads
// After these errors every further call on the context fails.
constexpr std::array kBreaking = {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719};

void* handle_of(std::uint64_t handle) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's handles are pointers
  return reinterpret_cast<void*>(handle);
}

}  // namespace

// The primary context of a GPU.
class Context {
 public:
  Context(const Driver& with, int device) : driver(with), device_(device), process_(::getpid()) {}
  ~Context() {
    if (handle_ != nullptr && process_ == ::getpid()) driver.context_release(device_);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Status begin() {
    char text[256] = {};
    int major = 0, minor = 0;
    TITHE_TRY(named("cuDeviceGetName", driver.device_name(text, sizeof text - 1, device_)));
    TITHE_TRY(named("cuDeviceGetAttribute", driver.device_attribute(&major, kMajor, device_)));
    TITHE_TRY(named("cuDeviceGetAttribute", driver.device_attribute(&minor, kMinor, device_)));
    name = text;
    sm = 10 * major + minor;
    return named("cuDevicePrimaryCtxRetain", driver.context_retain(&handle_, device_));
  }

  // Calls the driver with this context current on the thread during the call.
  template <typename Ask>
  int ask_with(const Ask& ask) const {
    if (const int code = driver.context_push(handle_); code != 0) return code;
    int mode = kThreadLocal;
    const bool exchanged = driver.capture_mode(&mode) == 0;
    const int code = ask();
    if (exchanged) driver.capture_mode(&mode);
    void* popped = nullptr;
    driver.context_pop(&popped);
    return code;
  }
  template <typename Ask>
  Status ask(const char* call, const Ask& ask) const {
    if (process_ != ::getpid())
      return {Code::kInvalid, "this GPU was opened before a fork: open it again in the child process"};
    TITHE_TRY(lost());
    const int code = ask_with(ask);
    Status status = named(call, code);
    if (std::find(kBreaking.begin(), kBreaking.end(), code) != kBreaking.end()) {
      const std::lock_guard lock(lost_mutex_);
      if (!lost_)
        lost_ = Status(Code::kIo, fmt::format("{}: data on {} cannot be read back", status.what(), name));
      return *lost_;
    }
    return status;
  }
  Status lost() const {
    const std::lock_guard lock(lost_mutex_);
    return lost_.value_or(Status{});
  }
  Status named(const char* call, int code) const {
    if (code == 0) return {};
    return {Code::kIo, fmt::format("{}: {}", call, driver.error(code))};
  }
  // Does nothing if the context is lost, the process is exiting, or this is a child process.
  template <typename Ask>
  void drop(const Ask& ask) const {
    if (process_ == ::getpid() && lost().ok()) static_cast<void>(ask_with(ask));
  }

  int device() const { return device_; }

  const Driver driver;
  std::string name;
  int sm = 0;

 private:
  int device_;
  ::pid_t process_;
  void* handle_ = nullptr;
  mutable std::mutex lost_mutex_;
  mutable std::optional<Status> lost_;
};

void release(const Context& in, Kind kind, std::uint64_t handle) {
  const Driver& d = in.driver;
  in.drop([&] {
    switch (kind) {
      case Kind::kMemory:
        return d.memory_free(handle);
      case Kind::kPinned:
        return d.pinned_free(handle_of(handle));
      case Kind::kStream:
        return d.stream_free(handle_of(handle));
      case Kind::kEvent:
        return d.event_free(handle_of(handle));
      case Kind::kModule:
        return d.module_free(handle_of(handle));
    }
    return 0;
  });
}

// Retains the GPU's primary context; the last copy of the Device releases it.
Result<Device> Device::open(const Driver& driver, int ordinal) {
  int count = 0, device = 0;
  if (const int code = driver.device_count(&count); code != 0)
    return Status(Code::kUnsupported, fmt::format("cuDeviceGetCount: {}", driver.error(code)));
  if (ordinal < 0 || ordinal >= count)
    return Status(Code::kUnsupported, fmt::format("there is no GPU {}: the driver has {}", ordinal, count));
  if (const int code = driver.device(&device, ordinal); code != 0)
    return Status(Code::kIo, fmt::format("cuDeviceGet: {}", driver.error(code)));
  const auto context = std::make_shared<Context>(driver, device);
  TITHE_TRY(context->begin());
  return Device(context);
}

const std::string& Device::name() const { return in_->name; }
int Device::sm() const { return in_->sm; }
Status Device::lost() const { return in_->lost(); }

Result<Memory> Device::memory(std::size_t bytes) const {
  Address at = 0;
  std::size_t free = 0, total = 0;
  int code = 0;
  const Status status = in_->ask("cuMemAlloc", [&] {
    code = in_->driver.memory_allocate(&at, std::max<std::size_t>(bytes, 1));
    if (code == kOutOfMemory) in_->driver.memory_info(&free, &total);
    return code;
  });
  if (code == kOutOfMemory)
    return Status(
        Code::kIo,
        fmt::format(
            "{} cannot allocate {} bytes ({} of {} are free): free GPU memory, or run this part on the host",
            name(), bytes, free, total));
  TITHE_TRY(status);
  return Memory(in_, at, bytes);
}

Result<Pinned> Device::pinned(std::size_t bytes) const {
  void* at = nullptr;
  TITHE_TRY(in_->ask("cuMemHostAlloc", [&] {
    return in_->driver.pinned_allocate(&at, std::max<std::size_t>(bytes, 1), kPortable);
  }));
  return Pinned(in_, reinterpret_cast<std::uint64_t>(at), bytes);
}

Result<Stream> Device::stream() const {
  void* made = nullptr;
  TITHE_TRY(in_->ask("cuStreamCreate", [&] { return in_->driver.stream_make(&made, kNonBlocking); }));
  return Stream(in_, reinterpret_cast<std::uint64_t>(made));
}

Result<Event> Device::event() const {
  void* made = nullptr;
  TITHE_TRY(in_->ask("cuEventCreate", [&] { return in_->driver.event_make(&made, kNoTiming); }));
  return Event(in_, reinterpret_cast<std::uint64_t>(made));
}

Result<Module> Device::module(const std::string& code) const {
  void* made = nullptr;
  TITHE_TRY(in_->ask("cuModuleLoadData", [&] { return in_->driver.module_load(&made, code.data()); }));
  return Module(in_, reinterpret_cast<std::uint64_t>(made));
}

Result<Kernel> Device::kernel(const Module& of, const char* name) const {
  void* found = nullptr;
  TITHE_TRY(in_->ask("cuModuleGetFunction",
                     [&] { return in_->driver.module_function(&found, handle_of(of.handle()), name); }));
  return Kernel{reinterpret_cast<std::uint64_t>(found)};
}

Status Device::copy_up(const Stream& on, Address to, const void* from, std::size_t bytes) const {
  if (bytes == 0) return {};
  return in_->ask("cuMemcpyHtoDAsync",
                  [&] { return in_->driver.copy_up(to, from, bytes, handle_of(on.handle())); });
}

Status Device::copy_down(const Stream& on, void* to, Address from, std::size_t bytes) const {
  if (bytes == 0) return {};
  return in_->ask("cuMemcpyDtoHAsync",
                  [&] { return in_->driver.copy_down(to, from, bytes, handle_of(on.handle())); });
}

Status Device::copy_within(const Stream& on, Address to, Address from, std::size_t bytes) const {
  if (bytes == 0) return {};
  return in_->ask("cuMemcpyDtoDAsync",
                  [&] { return in_->driver.copy_within(to, from, bytes, handle_of(on.handle())); });
}

Status Device::fill(const Stream& on, Address at, std::uint8_t byte, std::size_t bytes) const {
  if (bytes == 0) return {};
  return in_->ask("cuMemsetD8Async",
                  [&] { return in_->driver.fill(at, byte, bytes, handle_of(on.handle())); });
}

Status Device::fill_16(const Stream& on, Address at, std::uint16_t word, std::size_t words) const {
  if (words == 0) return {};
  return in_->ask("cuMemsetD16Async",
                  [&] { return in_->driver.fill_16(at, word, words, handle_of(on.handle())); });
}

Status Device::fill_32(const Stream& on, Address at, std::uint32_t word, std::size_t words) const {
  if (words == 0) return {};
  return in_->ask("cuMemsetD32Async",
                  [&] { return in_->driver.fill_32(at, word, words, handle_of(on.handle())); });
}

Status Device::owns(Address at) const {
  unsigned type = 0;
  int where = -1, code = 0;
  const auto about = [&](void* value, int attribute) {
    return in_->ask("cuPointerGetAttribute", [&] {
      code = in_->driver.pointer_attribute(value, attribute, at);
      return code == kInvalidValue ? 0 : code;  // the driver's result for memory unknown to it
    });
  };
  TITHE_TRY(about(&type, kMemoryType));
  if (code != 0 || type != kOnDevice) return {Code::kInvalid, "is in host memory"};
  TITHE_TRY(about(&where, kOrdinal));
  if (code != 0) return {Code::kInvalid, "is in memory that the driver does not manage"};
  return where == in_->device() ? Status{} : Status(Code::kInvalid, fmt::format("is on GPU {}", where));
}

Status Device::launch(const Stream& on, Kernel kernel, std::uint64_t blocks, unsigned threads,
                      const void* argument) const {
  if (blocks > std::numeric_limits<std::int32_t>::max())
    return {Code::kInvalid, fmt::format("a GPU cannot run {} blocks at once", blocks)};
  void* parameters[] = {const_cast<void*>(argument)};
  return in_->ask("cuLaunchKernel", [&] {
    return in_->driver.launch(handle_of(kernel.function), static_cast<unsigned>(blocks), 1, 1, threads, 1, 1,
                              0, handle_of(on.handle()), parameters, nullptr);
  });
}

Status Device::record(const Event& event, std::uint64_t stream) const {
  return in_->ask("cuEventRecord",
                  [&] { return in_->driver.event_record(handle_of(event.handle()), handle_of(stream)); });
}

Status Device::wait_for(const Stream& on, const Event& event) const {
  return in_->ask("cuStreamWaitEvent", [&] {
    return in_->driver.stream_wait_for(handle_of(on.handle()), handle_of(event.handle()), 0);
  });
}

Result<bool> Device::is_done(const Event& event) const {
  bool done = false;
  TITHE_TRY(in_->ask("cuEventQuery", [&] {
    const int code = in_->driver.event_query(handle_of(event.handle()));
    done = code == 0;
    return code == kNotReady ? 0 : code;
  }));
  return done;
}

Status Device::wait(const Stream& on) const {
  return in_->ask("cuStreamSynchronize", [&] { return in_->driver.stream_wait(handle_of(on.handle())); });
}

}  // namespace tithe::device
