// SPDX-License-Identifier: Apache-2.0
// Compares the kernels of a DeviceProgram with the interpreter, or with the codec's reference, before their first use:
// seeded values go to the GPU and back, and payloads, residuals and decoded values must have the same bits.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "lang/cuda/device_program.h"
#include "lang/run/verify.h"

namespace tithe::lang {

namespace {

// Runs host data through the GPU.
class ByDevice {
 public:
  ByDevice(DeviceProgram& program, DeviceLane& lane) : program_(program), lane_(lane) {}

  Result<Encoded> encode(std::string_view name, const Call& call, const EncodeInput& in, Bytes out) {
    const std::size_t bytes = 4 * in.n;
    TITHE_TRY(take(bytes));
    TITHE_TRY(up(grad_, in.grad, bytes));
    if (in.residual != nullptr) TITHE_TRY(up(residual_, in.residual, bytes));
    const Result<Encoded> done = program_.encode(
        lane_, name, call, {grad_.at(), in.residual == nullptr ? 0 : residual_.at(), left_.at(), in.n}, out);
    if (!done.ok() || !done->finite) return done;
    if (in.residual_out != nullptr && program_.decodes()) TITHE_TRY(down(in.residual_out, left_, bytes));
    return done;
  }

  Status decode(std::string_view name, const Call& call, std::span<const ByteView> payloads,
                const Merge& merge, std::span<float> out) {
    TITHE_TRY(take(4 * out.size()));
    for (const ByteView payload : payloads) TITHE_TRY(program_.check(name, call, out.size(), payload));
    if (merge.base != nullptr) TITHE_TRY(up(grad_, merge.base, 4 * out.size()));
    TITHE_TRY(program_.decode(lane_, name, call, payloads,
                              {merge.base == nullptr ? 0 : grad_.at(), merge.divide}, left_.at(),
                              out.size()));
    return down(out.data(), left_, 4 * out.size());
  }

 private:
  Status take(std::size_t bytes) {
    for (device::Memory* memory : {&grad_, &residual_, &left_}) {
      Result<device::Memory> there = lane_.on().memory(bytes);
      if (!there.ok()) return there.status();
      *memory = std::move(*there);
    }
    Result<device::Pinned> there = lane_.on().pinned(bytes);
    if (!there.ok()) return there.status();
    values_ = std::move(*there);
    return {};
  }
  Status up(const device::Memory& to, const float* from, std::size_t bytes) {
    if (bytes != 0) std::memcpy(values_.data(), from, bytes);
    TITHE_TRY(lane_.on().copy_up(lane_.stream(), to.at(), values_.data(), bytes));
    return lane_.on().wait(lane_.stream());
  }
  Status down(float* to, const device::Memory& from, std::size_t bytes) {
    TITHE_TRY(lane_.on().copy_down(lane_.stream(), values_.data(), from.at(), bytes));
    TITHE_TRY(lane_.on().wait(lane_.stream()));
    if (bytes != 0) std::memcpy(to, values_.data(), bytes);
    return {};
  }

  DeviceProgram& program_;
  DeviceLane& lane_;
  device::Memory grad_, residual_, left_;
  device::Pinned values_;
};

// make() compiles the kernels. same(runs) compares them with the interpreter or the codec's reference; `reference`
// names it in the result.
template <typename Make, typename Same>
OnDevice verified(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                  const char* reference, const Make& make, const Same& same) {
  const auto host = [](const std::string& why) {
    return OnDevice{nullptr, fmt::format("on the host: {}", why)};
  };
  if (!on.ok()) return host(on.status().what());
  if (!compiler.ok()) return host(compiler.status().what());
  Result<std::unique_ptr<DeviceProgram>> made = make();
  if (!made.ok()) return host(made.status().what());
  Result<DeviceLane> lane = DeviceLane::open(*on);
  if (!lane.ok()) return host(lane.status().what());
  ByDevice by(**made, *lane);
  Status trouble;  // the first driver error; a refusal of values also occurs in the reference
  const auto remember = [&](const Status& status) {
    if (status.code() == Code::kIo && trouble.ok()) trouble = status;
  };
  const VerifiedFunctions runs = {
      [&](std::string_view name, const Call& call, const EncodeInput& in, Bytes out) {
        Result<Encoded> done = by.encode(name, call, in, out);
        remember(done.status());
        return done;
      },
      [&](std::string_view name, const Call& call, std::span<const ByteView> payloads, const Merge& merge,
          std::span<float> out) {
        Status status = by.decode(name, call, payloads, merge, out);
        remember(status);
        return status;
      }};
  const bool equal = same(runs);
  if (!trouble.ok()) return host(trouble.what());
  if (!equal) return host(fmt::format("the results of {} differ from the {}'s", on->name(), reference));
  return {std::move(*made), fmt::format("on a GPU, {}, verified against the {}", on->name(), reference)};
}

}  // namespace

OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Combination& of, const Settings& settings) {
  return verified(
      on, compiler, "interpreter", [&] { return DeviceProgram::make(*on, *compiler, of, settings); },
      [&](const VerifiedFunctions& runs) { return matches_interpreter(runs, of, settings, kAllKinds); });
}

OnDevice on_device(const Result<device::Device>& on, const Result<device::Compiler>& compiler,
                   const Codec& codec, const Settings& settings) {
  return verified(
      on, compiler, "reference", [&] { return DeviceProgram::make(*on, *compiler, codec, settings); },
      [&](const VerifiedFunctions& runs) { return matches_reference(runs, codec, settings); });
}

}  // namespace tithe::lang
