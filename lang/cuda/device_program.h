// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a codec on a GPU, compiled at run time and launched through device/device.h. They are generated from
// a phase of a program, or are the codec's own (Codec::kernels).
//
//   equal     bytes, residuals, values and Status equal the interpreter's, or the reference's for a codec's own kernels
//   verified  on_device() returns a program only after verifying this on the GPU with seeded values
//             (lang/run/verify.h); otherwise `how` has the reason why the host runs it
//   planned   a planning kernel in the generated text (prelude_cuda_bytes.h) lists the kernels to launch; its result is
//             cached per shape of a call
//   unchecked kernels do not check their input: the host has checked payloads and contexts
//   drained   when a call returns, with or without an error, no work of it is running or queued on the GPU
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "device/compiler.h"
#include "device/device.h"
#include "lang/cuda/kernel_call.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

// The GPU resources of a thread: a stream, and memory that grows on demand. Several programs share a lane, one call
// at a time. A program may be destroyed before the lane: plans are keyed by its number, which is never reused.
class DeviceLane {
 public:
  static Result<DeviceLane> open(const device::Device& on);
  const device::Device& on() const { return on_; }
  const device::Stream& stream() const { return stream_; }
  // Pinned memory; its contents are kept until a larger size is requested.
  Result<Bytes> room(std::size_t bytes);

 private:
  friend class DeviceProgram;
  explicit DeviceLane(device::Device on) : on_(std::move(on)) {}
  template <typename Held>
  Status grow(Held& memory, std::size_t bytes) const;

  device::Device on_;
  device::Stream stream_;
  device::Memory scratch_, payload_, reported_, agreed_, plan_;
  device::Pinned back_, context_;  // read-back of all but payloads; the previous phase's items
  device::Pinned room_;
  std::map<std::string, KernelPlan> plans_;  // key: program number, kernel, and the call's shape
};

class DeviceProgram {
 public:
  // fp32 on the GPU. An address of 0 means no residual; `residual` and `left` may be equal.
  struct Values {
    device::Address grad, residual, left;
    std::size_t n;
  };
  struct Onto {
    device::Address base;  // see Merge
    float divide;
    // Receives the largest magnitude of the result; NaN or infinity if the result contains one.
    float* largest = nullptr;
  };

  // `of` must outlive the program. kUnsupported: no kernels can be made, with the reason.
  static Result<std::unique_ptr<DeviceProgram>> make(const device::Device& on,
                                                     const device::Compiler& compiler, const Combination& of,
                                                     const Settings& settings);
  // The codec's own kernels, for these settings only.
  static Result<std::unique_ptr<DeviceProgram>> make(const device::Device& on,
                                                     const device::Compiler& compiler, const Codec& codec,
                                                     const Settings& settings);

  std::size_t bound(const Settings& settings, std::size_t n) const;
  bool decodes() const;
  // Checks a payload on the host.
  Status check(std::string_view name, const Call& call, std::size_t n, ByteView payload) const;

  // Allocates the lane memory for an encode of n values in advance.
  Status reserve(DeviceLane& lane, const Settings& settings, std::size_t n);
  // Like Impl::encode. `out` is pinned.
  Result<Encoded> encode(DeviceLane& lane, std::string_view name, const Call& call, const Values& in,
                         Bytes out);
  // Like Impl::decode, with at least one payload. Payloads are pinned.
  Status decode(DeviceLane& lane, std::string_view name, const Call& call, std::span<const ByteView> payloads,
                const Onto& onto, device::Address out, std::size_t n);
  // Converts values of 16 bits to fp32 and back, with the bits of engine/program/convert.h. Asynchronous: the caller
  // waits.
  Status widen(DeviceLane& lane, device::Address from, bool bf16, device::Address to, std::size_t n);
  Status narrow(DeviceLane& lane, device::Address from, device::Address to, bool bf16, std::size_t n);

 private:
  DeviceProgram(const Combination* of, const Codec* codec, device::Module module);
  static Result<device::Module> compiled(const device::Device& on, const device::Compiler& compiler,
                                         const std::string& text);
  KernelCall make_call(const Call& call, std::size_t n) const;
  Status agree(DeviceLane& lane, std::string_view name, const Call& call, KernelCall& kernel_call);
  // Returns the launch plan, and grows the lane's scratch to the plan's size.
  Result<const KernelPlan*> plan(DeviceLane& lane, const char* kernel, KernelCall& kernel_call);
  Status launch(DeviceLane& lane, const char* kernel, std::uint64_t blocks, const KernelCall& kernel_call);
  Status launch_all(DeviceLane& lane, const char* planner, KernelCall& kernel_call);
  Status launch_each(DeviceLane& lane, const char* kernel, KernelCall& kernel_call);
  Status encode_on(DeviceLane& lane, std::string_view name, const Call& call, const Values& in, Bytes out,
                   Result<Encoded>& done);
  Status decode_on(DeviceLane& lane, std::string_view name, const Call& call,
                   std::span<const ByteView> payloads, const Onto& onto, device::Address out, std::size_t n);
  // Encodes on the host with the interpreter, to get its Status for these values.
  Result<Encoded> ask_interpreter(DeviceLane& lane, std::string_view name, const Call& call,
                                  const Values& in) const;

  const Combination* const of_;  // the program's phase; nullptr: the codec has its own kernels
  const Codec* const codec_;     // nullptr: a program's kernels
  const std::uint64_t number_;   // unique in the process: an address may be reused
  device::Module module_;
  std::mutex mutex_;  // guards kernels_
  std::map<std::string, device::Kernel, std::less<>> kernels_;
};

// The source text of the kernels.
std::string device_text(const Combination& of);
std::string device_text(const Codec& codec, const Settings& settings);

struct OnDevice {
  std::unique_ptr<DeviceProgram> program;  // nullptr: the host runs the codec
  // One line: "on a GPU, NVIDIA H100, held to the interpreter", "on the host: there is no CUDA driver".
  std::string how;
};

OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Combination& of, const Settings& settings);
OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
