// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/device_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "lang/cuda/code_cache.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/run/context.h"
#include "lang/runtime/prelude.h"

namespace tithe::lang {

namespace {

using device::Address;

// The report of an encoder on the GPU: the number of bytes written, and the answers.
constexpr std::size_t kMaxAnswers = 256;
constexpr std::size_t kReportBytes = 8 + 4 * kMaxAnswers;
constexpr std::size_t kMaxPlans = 256;

template <typename T>
T* pointer_of(Address at) {
  return reinterpret_cast<T*>(at);  // NOLINT(performance-no-int-to-ptr): a device's addresses are numbers
}
}  // namespace

// ---- DeviceLane

Result<DeviceLane> DeviceLane::open(const device::Device& on) {
  DeviceLane lane(on);
  Result<device::Stream> stream = on.stream();
  if (!stream.ok()) return stream.status();
  lane.stream_ = std::move(*stream);
  TITHE_TRY(lane.grow(lane.reported_, kReportBytes));
  TITHE_TRY(lane.grow(lane.plan_, sizeof(KernelPlan)));
  TITHE_TRY(lane.grow(lane.back_, std::max(kReportBytes, sizeof(KernelPlan))));
  return lane;
}

// No work of the lane is running here: all calls end drained.
template <typename Held>
Status DeviceLane::grow(Held& memory, std::size_t bytes) const {
  if (memory.handle() != 0 && memory.bytes() >= bytes) return {};
  memory = {};
  Result<Held> more = [&] {
    if constexpr (std::is_same_v<Held, device::Memory>)
      return on_.memory(bytes);
    else
      return on_.pinned(bytes);
  }();
  if (!more.ok()) return more.status();
  memory = std::move(*more);
  return {};
}

Result<Bytes> DeviceLane::room(std::size_t bytes) {
  TITHE_TRY(grow(room_, bytes));
  return Bytes(room_.data(), bytes);
}

// ---- DeviceProgram

std::string device_text(const Combination& of) {
  return "#define TITHE_PLANS\n" + cuda_file(of) + kPreludeCudaValues;
}

std::string device_text(const Codec& codec, const Settings& settings) {
  return std::string("#define TITHE_PLANS\n") + kPreludeCudaTypes + kPreludeCuda + kPreludeCudaBytes +
         codec.kernels(settings) + kPreludeCudaValues;
}

Result<device::Module> DeviceProgram::compiled(const device::Device& on, const device::Compiler& compiler,
                                               const std::string& text) {
  const Result<std::string> code = cached_code(compiler, text, on.sm());
  if (!code.ok()) return code.status();
  return on.module(*code);
}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::make(const device::Device& on,
                                                           const device::Compiler& compiler,
                                                           const Combination& of, const Settings& settings) {
  if (const char* why = no_kernels(of, settings)) return Status(Code::kUnsupported, why);
  if (of.program.items.size() >= kMaxAnswers) return Status(Code::kUnsupported, "it sends too many items");
  Result<device::Module> module = compiled(on, compiler, device_text(of));
  if (!module.ok()) return module.status();
  return std::unique_ptr<DeviceProgram>(new DeviceProgram(&of, nullptr, std::move(*module)));
}

Result<std::unique_ptr<DeviceProgram>> DeviceProgram::make(const device::Device& on,
                                                           const device::Compiler& compiler,
                                                           const Codec& codec, const Settings& settings) {
  Result<device::Module> module = compiled(on, compiler, device_text(codec, settings));
  if (!module.ok()) return module.status();
  return std::unique_ptr<DeviceProgram>(new DeviceProgram(nullptr, &codec, std::move(*module)));
}

DeviceProgram::DeviceProgram(const Combination* of, const Codec* codec, device::Module module)
    : of_(of),
      codec_(codec),
      number_([] {
        static std::atomic<std::uint64_t> made{0};
        return ++made;
      }()),
      module_(std::move(module)) {}

std::size_t DeviceProgram::bound(const Settings& settings, std::size_t n) const {
  return of_ != nullptr ? lang::bound(*of_, settings, n) : codec_->phases[0].bound(settings, n);
}

bool DeviceProgram::decodes() const {
  return of_ == nullptr || of_->program.result != kNone || of_->program.sends_pairs;
}

Status DeviceProgram::check(std::string_view name, const Call& call, std::size_t n, ByteView payload) const {
  return of_ != nullptr ? lang::check(*of_, name, call, n, payload)
                        : codec_->reference().check(call, n, payload);
}

KernelCall DeviceProgram::make_call(const Call& call, std::size_t n) const {
  KernelCall kernel_call = {};
  std::copy(call.settings.value.begin(), call.settings.value.end(), kernel_call.settings);
  kernel_call.n = n;
  kernel_call.key = key_of(call, call.seed);
  kernel_call.shared_key = key_of(call, call.shared_seed);
  kernel_call.agreed_ranks = 1;
  kernel_call.divide = 1;
  if (of_ != nullptr && of_->program.adds()) kernel_call.field_bits = field_bits(*of_, call);
  return kernel_call;
}

// Copies the previous phase's items to the GPU as plain arrays.
Status DeviceProgram::agree(DeviceLane& lane, std::string_view name, const Call& call,
                            KernelCall& kernel_call) {
  const std::size_t count = of_ == nullptr ? 0 : of_->program.before.size();
  if (count == 0) return {};
  const std::size_t bytes = agreed_bytes(*of_, call.settings, kernel_call.n);
  TITHE_TRY(lane.grow(lane.context_, bytes));
  TITHE_TRY(lane.grow(lane.agreed_, bytes));
  CallMemory memory({lane.context_.data(), bytes}, bytes);
  const Agreed agreed(*of_, name, call, kernel_call.n, memory);
  kernel_call.agreed_ranks = agreed.ranks();
  for (std::size_t k = 0; k < count; ++k)
    if (const auto* at = reinterpret_cast<const std::uint8_t*>(agreed.numbers()[k]))
      kernel_call.agreed[k] =
          pointer_of<const std::uint32_t>(lane.agreed_.at() + (at - lane.context_.data()));
  return lane.on().copy_up(lane.stream(), lane.agreed_.at(), lane.context_.data(), bytes);
}

Status DeviceProgram::launch(DeviceLane& lane, const char* kernel, std::uint64_t blocks,
                             const KernelCall& kernel_call) {
  device::Kernel found;
  {
    const std::lock_guard lock(mutex_);
    const auto known = kernels_.find(std::string_view(kernel));
    if (known != kernels_.end()) {
      found = known->second;
    } else {
      const Result<device::Kernel> there = lane.on().kernel(module_, kernel);
      if (!there.ok()) return there.status();
      found = kernels_.emplace(kernel, *there).first->second;
    }
  }
  return lane.on().launch(lane.stream(), found, blocks, kKernelThreads, &kernel_call);
}

// A plan contains addresses within the scratch, so the key includes the scratch address: after the scratch has grown,
// the loop plans again. Addresses of values are not part of the key.
Result<const KernelPlan*> DeviceProgram::plan(DeviceLane& lane, const char* kernel, KernelCall& kernel_call) {
  const auto key_of = [&] {  // everything that the plan depends on
    KernelCall key = kernel_call;
    key.key = key.shared_key = 0;
    key.grad = key.residual = key.base = nullptr;
    key.residual_out = key.out = nullptr;
    key.bytes = nullptr;
    key.answer = nullptr;
    key.divide = 0;
    std::fill(std::begin(key.agreed), std::end(key.agreed), nullptr);
    return fmt::format("{} {} ", number_, kernel) +
           std::string(reinterpret_cast<const char*>(&key), sizeof key);
  };
  kernel_call.plan = pointer_of<void>(lane.plan_.at());
  for (;;) {
    kernel_call.scratch = pointer_of<std::uint8_t>(lane.scratch_.at());
    const std::string key = key_of();
    auto known = lane.plans_.find(key);
    if (known == lane.plans_.end()) {
      KernelPlan made = {};
      TITHE_TRY(launch(lane, kernel, 1, kernel_call));
      TITHE_TRY(lane.on().copy_down(lane.stream(), lane.back_.data(), lane.plan_.at(), sizeof made));
      TITHE_TRY(lane.on().wait(lane.stream()));
      std::memcpy(&made, lane.back_.data(), sizeof made);
      if (made.launches > kMaxLaunches) return Status(Code::kUnsupported, "it launches too many kernels");
      if (lane.plans_.size() >= kMaxPlans) lane.plans_.clear();
      known = lane.plans_.emplace(key, made).first;
    }
    if (lane.scratch_.at() != 0 && known->second.scratch <= lane.scratch_.bytes()) return &known->second;
    TITHE_TRY(lane.on().wait(lane.stream()));
    TITHE_TRY(lane.grow(lane.scratch_, std::max<std::size_t>(known->second.scratch, 1)));
  }
}

// Launches all kernels of a plan with the addresses of this call.
Status DeviceProgram::launch_all(DeviceLane& lane, const char* planner, KernelCall& kernel_call) {
  const Result<const KernelPlan*> of = plan(lane, planner, kernel_call);
  if (!of.ok()) return of.status();
  if ((*of)->launches == 0) return {};
  std::copy(std::begin((*of)->call.within), std::end((*of)->call.within), kernel_call.within);
  for (std::size_t k = 0; k < (*of)->launches; ++k)
    TITHE_TRY(launch(lane, (*of)->launch[k].kernel, (*of)->launch[k].blocks, kernel_call));
  return {};
}

// Launches a kernel of prelude_cuda_values.h.
Status DeviceProgram::launch_each(DeviceLane& lane, const char* kernel, KernelCall& kernel_call) {
  return launch(lane, kernel, std::max<std::size_t>(1, (kernel_call.n + kEachValues - 1) / kEachValues),
                kernel_call);
}

Status DeviceProgram::reserve(DeviceLane& lane, const Settings& settings, std::size_t n) {
  KernelCall kernel_call = this->make_call({.settings = settings}, n);
  TITHE_TRY(lane.grow(lane.payload_, bound(settings, n)));
  kernel_call.payload = pointer_of<std::uint8_t>(lane.payload_.at());
  return plan(lane, "tithe_plan_encode", kernel_call).status();
}

Status DeviceProgram::widen(DeviceLane& lane, Address from, bool bf16, Address to, std::size_t n) {
  KernelCall kernel_call = {};
  kernel_call.n = n;
  kernel_call.payload = pointer_of<std::uint8_t>(from);
  kernel_call.out = pointer_of<float>(to);
  kernel_call.field_bits = bf16 ? 1 : 0;
  return launch_each(lane, "tithe_widen", kernel_call);
}

Status DeviceProgram::narrow(DeviceLane& lane, Address from, Address to, bool bf16, std::size_t n) {
  KernelCall kernel_call = {};
  kernel_call.n = n;
  kernel_call.grad = pointer_of<const float>(from);
  kernel_call.payload = pointer_of<std::uint8_t>(to);
  kernel_call.field_bits = bf16 ? 1 : 0;
  return launch_each(lane, "tithe_narrow", kernel_call);
}

Result<Encoded> DeviceProgram::encode(DeviceLane& lane, std::string_view name, const Call& call,
                                      const Values& in, Bytes out) {
  if (out.size() < bound(call.settings, in.n))
    return Status(Code::kTooSmall, "the buffer is too small for a payload");
  Result<Encoded> done = Encoded{};
  const Status status = encode_on(lane, name, call, in, out, done);
  if (status.ok()) return done;
  static_cast<void>(lane.on().wait(lane.stream()));  // an error of the wait would hide the first error
  return status;
}

Status DeviceProgram::encode_on(DeviceLane& lane, std::string_view name, const Call& call, const Values& in,
                                Bytes out, Result<Encoded>& done) {
  const device::Device& on = lane.on();
  const std::size_t most = bound(call.settings, in.n);
  const std::size_t answers = of_ == nullptr ? 1 : of_->program.items.size() + 1;
  KernelCall kernel_call = this->make_call(call, in.n);
  TITHE_TRY(lane.grow(lane.payload_, most));
  TITHE_TRY(agree(lane, name, call, kernel_call));
  kernel_call.grad = pointer_of<const float>(in.grad);
  kernel_call.residual = pointer_of<const float>(in.residual);
  kernel_call.residual_out = pointer_of<float>(decodes() ? in.left : 0);
  kernel_call.payload = pointer_of<std::uint8_t>(lane.payload_.at());
  kernel_call.bytes = pointer_of<std::uint64_t>(lane.reported_.at());
  kernel_call.answer = pointer_of<std::uint32_t>(lane.reported_.at() + 8);
  TITHE_TRY(on.fill(lane.stream(), lane.reported_.at(), 0, kReportBytes));
  TITHE_TRY(launch_all(lane, "tithe_plan_encode", kernel_call));
  TITHE_TRY(on.copy_down(lane.stream(), lane.back_.data(), lane.reported_.at(), kReportBytes));
  TITHE_TRY(on.wait(lane.stream()));
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> answer(answers);
  std::memcpy(&bytes, lane.back_.data(), sizeof bytes);
  std::memcpy(answer.data(), lane.back_.data() + 8, 4 * answers);
  if (std::any_of(answer.begin() + 1, answer.end(), [](std::uint32_t a) { return a != 0; })) {
    done = ask_interpreter(lane, name, call, in);
    return {};
  }
  if (bytes > most)
    return {Code::kIo, fmt::format("{} wrote {} bytes, at most {} are allowed", on.name(), bytes, most)};
  done = Encoded{.bytes = bytes, .finite = answer[0] == 0};
  if (answer[0] != 0) return {};
  TITHE_TRY(on.copy_down(lane.stream(), out.data(), lane.payload_.at(), bytes));
  return on.wait(lane.stream());
}

Result<Encoded> DeviceProgram::ask_interpreter(DeviceLane& lane, std::string_view name, const Call& call,
                                               const Values& in) const {
  std::vector<float> grad(in.n), residual(in.residual == 0 ? 0 : in.n), left(in.n);
  Result<device::Pinned> pinned = lane.on().pinned(4 * in.n);
  if (!pinned.ok()) return pinned.status();
  const auto bring = [&](Address from, std::vector<float>& to) -> Status {
    TITHE_TRY(lane.on().copy_down(lane.stream(), pinned->data(), from, 4 * to.size()));
    TITHE_TRY(lane.on().wait(lane.stream()));
    if (!to.empty()) std::memcpy(to.data(), pinned->data(), 4 * to.size());
    return {};
  };
  TITHE_TRY(bring(in.grad, grad));
  TITHE_TRY(bring(in.residual, residual));
  std::vector<std::uint8_t> payload(bound(call.settings, in.n));
  const Result<Encoded> encoded =
      lang::encode(*of_, name, call,
                   {grad.data(), in.residual == 0 ? nullptr : residual.data(), left.data(), in.n}, payload);
  if (encoded.ok() && encoded->finite)
    return Status(Code::kIo, fmt::format("{} rejects values that the interpreter accepts", lane.on().name()));
  return encoded;
}

Status DeviceProgram::decode(DeviceLane& lane, std::string_view name, const Call& call,
                             std::span<const ByteView> payloads, const Onto& onto, Address out,
                             std::size_t n) {
  if (payloads.empty() || !decodes()) return {Code::kInvalid, "no payload to decode"};
  const Status status = decode_on(lane, name, call, payloads, onto, out, n);
  if (!status.ok()) static_cast<void>(lane.on().wait(lane.stream()));
  return status;
}

// A program decodes one payload after the other, each added to the previous result. A codec's own kernels take all
// payloads together: they have equal lengths, and may be added before the inverse transform.
Status DeviceProgram::decode_on(DeviceLane& lane, std::string_view name, const Call& call,
                                std::span<const ByteView> payloads, const Onto& onto, Address out,
                                std::size_t n) {
  const device::Device& on = lane.on();
  KernelCall kernel_call = this->make_call(call, n);
  const std::size_t together = of_ == nullptr ? payloads.size() : 1, length = payloads[0].size();
  std::size_t most = 0;
  for (const ByteView payload : payloads) most = std::max(most, payload.size());
  TITHE_TRY(lane.grow(lane.payload_, most * together));
  TITHE_TRY(agree(lane, name, call, kernel_call));
  kernel_call.payload = pointer_of<std::uint8_t>(lane.payload_.at());
  kernel_call.out = pointer_of<float>(out);
  kernel_call.base = pointer_of<const float>(onto.base);
  if (of_ == nullptr) kernel_call.agreed_ranks = static_cast<std::uint32_t>(together);
  for (std::size_t p = 0; p < payloads.size(); ++p) {
    const ByteView payload = payloads[p];
    kernel_call.payload_bytes = payload.size();
    TITHE_TRY(on.copy_up(lane.stream(), lane.payload_.at() + p % together * length, payload.data(),
                         payload.size()));
    if ((p + 1) % together != 0) continue;
    TITHE_TRY(launch_all(lane, "tithe_plan_decode", kernel_call));
    kernel_call.base = pointer_of<const float>(out);
  }
  if (onto.divide == 1.0F && onto.largest == nullptr) return on.wait(lane.stream());
  kernel_call.divide = onto.divide;
  kernel_call.answer = pointer_of<std::uint32_t>(lane.reported_.at());
  TITHE_TRY(on.fill(lane.stream(), lane.reported_.at(), 0, sizeof(float)));
  TITHE_TRY(launch_each(lane, "tithe_finish", kernel_call));
  TITHE_TRY(on.copy_down(lane.stream(), lane.back_.data(), lane.reported_.at(), sizeof(float)));
  TITHE_TRY(on.wait(lane.stream()));
  if (onto.largest != nullptr) std::memcpy(onto.largest, lane.back_.data(), sizeof(float));
  return {};
}

}  // namespace tithe::lang
