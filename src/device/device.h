// SPDX-License-Identifier: Apache-2.0
#pragma once
// A GPU behind a few calls: memory there and pinned memory here, streams, events, copies, kernels. It knows no codec.
//
//   beside    the context is the one that the CUDA runtime and PyTorch use; no call leaves anything current on a thread
//   ordered   copies, fills and launches are work of a stream: they are done after what the stream was given before,
//             and when wait() has returned. Until then what they read and write must stay as it is
//   held      memory, streams, events and modules go back to the driver with the value that holds them: not before
//             the work that uses them is done
//   told      kUnsupported: there is no such GPU; kIo: the driver refused, with the call and the driver's name for it.
//             Where memory is short the bytes and the cure are named
//   lost      after an error that breaks a context every call answers with that error, and nothing is asked of the
//             driver any more
//   fork      a child of the process that opened a GPU gets kInvalid, and leaves the driver alone
//
// Any thread may call any of it.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "device/driver.h"
#include "tithe/status.h"

namespace tithe::device {

using Address = std::uint64_t;  // on the GPU; 0: none. Nothing here may read or write there

class Context;

enum class Kind : std::uint8_t { kMemory, kPinned, kStream, kEvent, kModule };
void give_back(const Context& in, Kind kind, std::uint64_t handle);

// A thing that the driver gave.
template <Kind kKind>
class Held {
 public:
  Held() = default;
  Held(std::shared_ptr<const Context> in, std::uint64_t handle, std::size_t bytes = 0)
      : in_(std::move(in)), handle_(handle), bytes_(bytes) {}
  ~Held() {
    if (in_ != nullptr) give_back(*in_, kKind, handle_);
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
  // The GPU of this number, as the driver counts them.
  static Result<Device> open(const Driver& driver, int ordinal);

  const std::string& name() const;  // "NVIDIA H100"
  int sm() const;                   // 90: compute capability 9.0
  Status lost() const;              // what broke the context, if anything did
  // kInvalid: there is no memory of this GPU's; the text says what there is instead.
  Status owns(Address at) const;

  Result<Memory> memory(std::size_t bytes) const;
  Result<Pinned> pinned(std::size_t bytes) const;
  Result<Stream> stream() const;  // waits for no other stream by itself
  Result<Event> event() const;
  Result<Module> module(const std::string& code) const;  // what device/compiler.h makes
  Result<Kernel> kernel(const Module& of, const char* name) const;

  // From and to pinned memory.
  Status copy_up(const Stream& on, Address to, const void* from, std::size_t bytes) const;
  Status copy_down(const Stream& on, void* to, Address from, std::size_t bytes) const;
  Status copy_within(const Stream& on, Address to, Address from, std::size_t bytes) const;
  Status fill(const Stream& on, Address at, std::uint8_t byte, std::size_t bytes) const;
  Status fill_16(const Stream& on, Address at, std::uint16_t word, std::size_t words) const;
  Status fill_32(const Stream& on, Address at, std::uint32_t word, std::size_t words) const;
  // `told`: the kernel's one parameter, of which a copy is made now.
  Status launch(const Stream& on, Kernel kernel, std::uint64_t blocks, unsigned threads,
                const void* told) const;

  // Records a stream's work so far. `stream`: Stream::handle(), or a cudaStream_t of the caller.
  Status record(const Event& event, std::uint64_t stream) const;
  // Work that the stream is given from now on is done after the work that the event recorded.
  Status wait_for(const Stream& on, const Event& event) const;
  Result<bool> is_done(const Event& event) const;
  Status wait(const Stream& on) const;  // for all that it was given

 private:
  explicit Device(std::shared_ptr<const Context> in) : in_(std::move(in)) {}
  std::shared_ptr<const Context> in_;
};

}  // namespace tithe::device
