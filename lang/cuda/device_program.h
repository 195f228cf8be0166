// SPDX-License-Identifier: Apache-2.0
#pragma once
// The kernels of a codec on a GPU, compiled at run time and launched through device/device.h. They are generated from
// a phase of a program, or are the codec's own (Codec::kernels).
//
//   equal     bytes, residuals, values and Status equal the interpreter's, or the reference's for a codec's own kernels
//   verified  on_device() returns a program only after verifying this on the GPU with seeded values
//             (lang/run/verify.h); otherwise `how` has the reason why the host runs it
//   batched   a batch encodes or decodes several tensors, with one launch per kernel of the codec. Each tensor has its
//             own settings, residual, payload and answer, as if it were alone
//   planned   a planning kernel in the generated text (prelude_cuda_bytes.h) lists the kernels to launch for a tensor;
//             its result does not depend on addresses, and is cached per size and settings
//   unchecked kernels do not check their input: the host has checked payloads and contexts
//   drained   when encode() or decode() returns, with or without an error, no work of it is running or queued on the
//             GPU. start() queues work: the caller waits, with or without an error
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/compiler.h"
#include "device/device.h"
#include "lang/cuda/device_batch.h"
#include "lang/run/interpreter.h"

namespace tithe::lang {

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

  // A tensor of a batch that encodes. Call: as for Impl::encode.
  struct Encoding {
    Call call;
    Values in;
    Bytes out;
    Result<Encoded> done = Encoded{};  // of finish()
    DeviceRoom report = {}, payload = {};
  };
  // Queues the work of a batch of the lane: kernels, then copies of the answers, and of the payloads if these have a
  // fixed size. The tensors' memory must stay valid until the lane's wait() has returned.
  Status start(DeviceLane& lane, std::string_view name, std::span<Encoding> all);
  // After wait(): sets `done` and fills `out`. Waits once more if payloads vary in size.
  Status finish(DeviceLane& lane, std::string_view name, std::span<Encoding> all);
  // A tensor of a batch that decodes. Call: as for Impl::decode, with at least one payload.
  struct Decoding {
    Call call;
    std::vector<ByteView> payloads;
    Onto onto;
    device::Address out = 0;
    std::size_t n = 0;
    const std::uint8_t* report = nullptr;
  };
  Status start(DeviceLane& lane, std::string_view name, std::span<Decoding> all);
  static void finish(std::span<const Decoding> all);

  // A copy of fp32 values, or a conversion between them and values of 16 bits, with the bits of
  // engine/program/convert.h.
  struct Conversion {
    enum Type : std::uint8_t { kFp16, kBf16, kFp32 } type;
    device::Address narrow, wide;
    std::size_t n;
  };
  // Queues one launch.
  Status convert(DeviceLane& lane, std::span<const Conversion> all, bool widens);
  static std::size_t conversion_bytes(std::size_t count) { return DeviceKernels::each_bytes(count); }

  // The memory of a batch that encodes tensors of these sizes, or decodes `payloads` payloads of each.
  Result<DeviceKernels::Memory> memory(DeviceLane& lane, const Settings& settings,
                                       std::span<const std::size_t> sizes, std::size_t payloads);

  // A batch of one tensor.
  Result<Encoded> encode(DeviceLane& lane, std::string_view name, const Call& call, const Values& in,
                         Bytes out);
  Status decode(DeviceLane& lane, std::string_view name, const Call& call, std::span<const ByteView> payloads,
                const Onto& onto, device::Address out, std::size_t n);

 private:
  DeviceProgram(const Combination* of, const Codec* codec, device::Module module);
  static Result<device::Module> compiled(const device::Device& on, const device::Compiler& compiler,
                                         const std::string& text);
  KernelCall make_call(const Call& call, std::size_t n) const;
  Status agree(DeviceLane& lane, std::string_view name, const Call& call, KernelCall& kernel_call);
  bool has_fixed_size() const;
  std::size_t answers() const;
  // Queues a batch in which all tensors have the same number of payloads.
  Status start_alike(DeviceLane& lane, std::string_view name, std::span<Decoding* const> all);
  // Copies finite payloads of varying sizes to the host.
  Status bring_payloads(DeviceLane& lane, std::span<Encoding> all) const;
  // Encodes on the host with the interpreter, to get its Status for these values.
  Result<Encoded> ask_interpreter(const DeviceLane& lane, std::string_view name, const Call& call,
                                  const Values& in) const;

  const Combination* const of_;  // the program's phase; nullptr: the codec has its own kernels
  const Codec* const codec_;     // nullptr: a program's kernels
  DeviceKernels kernels_;
};

// The source text of the kernels.
std::string device_text(const Combination& of);
std::string device_text(const Codec& codec, const Settings& settings);

struct OnDevice {
  std::unique_ptr<DeviceProgram> program;  // nullptr: the host runs the codec
  // One line: "on a GPU, NVIDIA H100, verified against the interpreter", "on the host: there is no CUDA driver".
  std::string how;
};

OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Combination& of, const Settings& settings);
OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Codec& codec, const Settings& settings);

}  // namespace tithe::lang
