// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a codec on a GPU, compiled at run time and launched behind device/device.h: those generated from a
// phase of a program, or the codec's own (Codec::kernels).
//
//   same      bytes, residuals, values and verdicts equal the interpreter's, or the reference's for own kernels
//   held      on_device() gives a program only after a check of that, on this GPU, on seeded values;
//             else its line says why the host runs it
//   planned   what is launched is asked of a kernel of the text's own (prelude_cuda_bytes.h), once for each shape of a
//             call, and remembered
//   trusting  kernels trust what they get: payloads and contexts have passed their check on the host
//   drained   when a call returns, whatever it returns, the GPU does nothing of it any more
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

// A thread's lane: a stream, and memory that grows with what is asked of it. Programs share it, one call at a time; a
// program that is gone may not have been used with it.
class DeviceLane {
 public:
  static Result<DeviceLane> open(const device::Device& on);
  const device::Device& on() const { return on_; }
  const device::Stream& stream() const { return stream_; }
  // Pinned memory, as it was left until more is asked for.
  Result<Bytes> room(std::size_t bytes);

 private:
  friend class DeviceProgram;
  explicit DeviceLane(device::Device on) : on_(std::move(on)) {}
  template <typename Held>
  Status grow(Held& memory, std::size_t bytes) const;

  device::Device on_;
  device::Stream stream_;
  device::Memory scratch_, payload_, told_, agreed_, plan_;
  device::Pinned back_, context_;  // what comes down but for payloads; what phases agreed on
  device::Pinned room_;
  std::map<std::string, KernelPlan> plans_;  // by the program's number, the kernel and what a plan depends on
};

class DeviceProgram {
 public:
  // fp32 on the GPU. No residual, or nowhere to leave it: 0; the two may be the same.
  struct Values {
    device::Address grad, residual, left;
    std::size_t n;
  };
  struct Onto {
    device::Address base;  // as Merge has it
    float divide;
    float* largest =
        nullptr;  // gets the largest magnitude of the result; a NaN or an infinity where there is one
  };

  // `of` lives as long as what is made. kUnsupported: why there is none.
  static Result<std::unique_ptr<DeviceProgram>> make(const device::Device& on,
                                                     const device::Compiler& compiler, const Combination& of,
                                                     const Settings& settings);
  // The codec's own kernels, in these settings alone.
  static Result<std::unique_ptr<DeviceProgram>> make(const device::Device& on,
                                                     const device::Compiler& compiler, const Codec& codec,
                                                     const Settings& settings);

  std::size_t bound(const Settings& settings, std::size_t n) const;
  bool decodes() const;
  // Whether a payload may be decoded; looked at on the host.
  Status check(std::string_view name, const Call& call, std::size_t n, ByteView payload) const;

  // All that an encode of n values takes of the lane, before there is any.
  Status reserve(DeviceLane& lane, const Settings& settings, std::size_t n);
  // As Impl::encode does it. `out` is pinned.
  Result<Encoded> encode(DeviceLane& lane, std::string_view name, const Call& call, const Values& in,
                         Bytes out);
  // As Impl::decode does it, of at least one payload. These are pinned.
  Status decode(DeviceLane& lane, std::string_view name, const Call& call, std::span<const ByteView> payloads,
                const Onto& onto, device::Address out, std::size_t n);
  // Values of 16 bits as fp32, and back, as engine/program/convert.h does it. They begin: who goes on waits.
  Status widen(DeviceLane& lane, device::Address from, bool bf16, device::Address to, std::size_t n);
  Status narrow(DeviceLane& lane, device::Address from, device::Address to, bool bf16, std::size_t n);

 private:
  DeviceProgram(const Combination* of, const Codec* codec, device::Module module);
  static Result<device::Module> compiled(const device::Device& on, const device::Compiler& compiler,
                                         const std::string& text);
  KernelCall told(const Call& call, std::size_t n) const;
  Status agree(DeviceLane& lane, std::string_view name, const Call& call, KernelCall& told);
  // The plan of what to launch; the lane's scratch is large enough for it.
  Result<const KernelPlan*> plan(DeviceLane& lane, const char* kernel, KernelCall& told);
  Status launch(DeviceLane& lane, const char* kernel, std::uint64_t blocks, const KernelCall& told);
  Status launch_all(DeviceLane& lane, const char* planner, KernelCall& told);
  Status launch_each(DeviceLane& lane, const char* kernel, KernelCall& told);
  Status encode_on(DeviceLane& lane, std::string_view name, const Call& call, const Values& in, Bytes out,
                   Result<Encoded>& done);
  Status decode_on(DeviceLane& lane, std::string_view name, const Call& call,
                   std::span<const ByteView> payloads, const Onto& onto, device::Address out, std::size_t n);
  // The interpreter's answer to values that are on the GPU.
  Result<Encoded> ask_interpreter(DeviceLane& lane, std::string_view name, const Call& call,
                                  const Values& in) const;

  const Combination* const of_;  // the phase of a program; nullptr: the codec has kernels of its own
  const Codec* const codec_;     // nullptr: a program's
  const std::uint64_t number_;   // of all programs of the process: an address may be another one's later
  device::Module module_;
  std::mutex mutex_;  // of what was found in the module
  std::map<std::string, device::Kernel, std::less<>> kernels_;
};

// The text that is compiled.
std::string device_text(const Combination& of);
std::string device_text(const Codec& codec, const Settings& settings);

struct OnDevice {
  std::unique_ptr<DeviceProgram> program;  // none: the host runs it
  std::string
      how;  // one line: "on a GPU, NVIDIA H100, held to the interpreter", "on the host: there is no CUDA driver"
};

OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Combination& of, const Settings& settings);
OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
