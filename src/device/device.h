// SPDX-License-Identifier: Apache-2.0
#pragma once
// A GPU: device memory, pinned host memory, streams, events, copies and kernels. This module does not depend on
// codecs.
//
//   context   the primary context, which the CUDA runtime and PyTorch use too; no call leaves a context current on the
//             calling thread
//   ordered   copies, fills and launches are asynchronous work of a stream: they run after all earlier work of that
//             stream, and are complete when wait() returns. Until then their memory must stay valid and unchanged
//   owned     memory, streams, events and modules are released by their owner's destructor, after the work that uses
//             them is complete
//   errors    kUnsupported: there is no such GPU; kIo: the driver returned an error, with the call and the error's
//             name. Errors from exhausted memory have the bytes and the cure
//   lost      after an error that corrupts the context, every call returns that error without calling the driver
//   fork      in a child of the process that opened the GPU, calls return kInvalid without calling the driver
//
// Thread-safe.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/driver.h"
#include "tithe/status.h"

namespace tithe::device {

using Address = std::uint64_t;  // a device address; 0: none. Host code must not dereference it

class Context;

enum class Kind : std::uint8_t { kMemory, kPinned, kStream, kEvent, kModule };
void release(const Context& in, Kind kind, std::uint64_t handle);

// Owns a driver object.
template <Kind kKind>
class Held {
 public:
  Held() = default;
  Held(std::shared_ptr<const Context> in, std::uint64_t handle, std::size_t bytes = 0)
      : in_(std::move(in)), handle_(handle), bytes_(bytes) {}
  ~Held() {
    if (in_ != nullptr) release(*in_, kKind, handle_);
  }
  Held(Held&& other) noexcept
      : in_(std::move(other.in_)),
        handle_(std::exchange(other.handle_, 0)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(in_, other.in_);
    std::swap(handle_, other.handle_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::uint64_t handle() const { return handle_; }
  Address at() const requires(kKind == Kind::kMemory) { return handle_; }
  std::uint8_t* data() const requires(kKind == Kind::kPinned) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gave it as such
    return reinterpret_cast<std::uint8_t*>(handle_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<const Context> in_;
  std::uint64_t handle_ = 0;
  std::size_t bytes_ = 0;
};
using Memory = Held<Kind::kMemory>;
using Pinned = Held<Kind::kPinned>;
using Stream = Held<Kind::kStream>;
using Event = Held<Kind::kEvent>;
using Module = Held<Kind::kModule>;

struct Kernel {
  std::uint64_t function = 0;
};

class Device {
 public:
  // Opens the GPU with this ordinal in the driver's numbering.
  static Result<Device> open(const Driver& driver, int ordinal);

  const std::string& name() const;  // "NVIDIA H100"
  int sm() const;                   // 90: compute capability 9.0
  Status lost() const;              // the error that corrupted the context, if any
  // kInvalid: the address is not memory of this GPU; the text names the memory's kind.
  Status owns(Address at) const;

  Result<Memory> memory(std::size_t bytes) const;
  Result<Pinned> pinned(std::size_t bytes) const;
  Result<Stream> stream() const;  // does not synchronise with other streams
  Result<Event> event() const;
  Result<Module> module(const std::string& code) const;  // `code` comes from device/compiler.h
  Result<Kernel> kernel(const Module& of, const char* name) const;

  // Between pinned and device memory.
  Status copy_up(const Stream& on, Address to, const void* from, std::size_t bytes) const;
  Status copy_down(const Stream& on, void* to, Address from, std::size_t bytes) const;
  Status copy_within(const Stream& on, Address to, Address from, std::size_t bytes) const;
  Status fill(const Stream& on, Address at, std::uint8_t byte, std::size_t bytes) const;
  Status fill_16(const Stream& on, Address at, std::uint16_t word, std::size_t words) const;
  Status fill_32(const Stream& on, Address at, std::uint32_t word, std::size_t words) const;
  // `argument`: the kernel's only parameter, copied before the call returns.
  Status launch(const Stream& on, Kernel kernel, std::uint64_t blocks, unsigned threads,
                const void* argument) const;

  // Records the work of a stream up to now. `stream`: Stream::handle(), or a cudaStream_t of the caller.
  Status record(const Event& event, std::uint64_t stream) const;
  // Later work of the stream starts after the work that the event recorded.
  Status wait_for(const Stream& on, const Event& event) const;
  Result<bool> is_done(const Event& event) const;
  Status wait(const Stream& on) const;  // for all work of the stream

 private:
  explicit Device(std::shared_ptr<const Context> in) : in_(std::move(in)) {}
  std::shared_ptr<const Context> in_;
};

}  // namespace tithe::device
