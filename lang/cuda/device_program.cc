// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/device_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "lang/cuda/code_cache.h"
#include "lang/cuda/emit_cuda.h"
#include "lang/run/context.h"
#include "lang/runtime/prelude.h"

namespace tithe::lang {

namespace {

using device::Address;

// The report of an encoder on the GPU: the number of bytes written, and the answers.
constexpr std::size_t kMaxAnswers = 256;
constexpr const char *kPlanEncode = "tithe_plan_encode", *kPlanDecode = "tithe_plan_decode";

}  // namespace

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
    : of_(of), codec_(codec), kernels_(std::move(module)) {}

bool DeviceProgram::has_fixed_size() const {
  if (of_ == nullptr) return codec_->traits.fixed_size;
  const Checked& program = of_->program;
  return !program.varies() && !program.adds() && !program.sends_pairs;
}

std::size_t DeviceProgram::answers() const { return of_ == nullptr ? 1 : of_->program.items.size() + 1; }

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
  const Result<DeviceRoom> room = lane.room(bytes);
  if (!room.ok()) return room.status();
  CallMemory memory({room->host, bytes}, bytes);
  const Agreed agreed(*of_, name, call, kernel_call.n, memory);
  kernel_call.agreed_ranks = agreed.ranks();
  for (std::size_t k = 0; k < count; ++k)
    if (const auto* at = reinterpret_cast<const std::uint8_t*>(agreed.numbers()[k]))
      kernel_call.agreed[k] =
          pointer_of<const std::uint32_t>(room->at + static_cast<Address>(at - room->host));
  return lane.up(*room, bytes);
}

// ---- Encode

Status DeviceProgram::start(DeviceLane& lane, std::string_view name, std::span<Encoding> all) {
  const std::size_t report = 8 + (4 * answers() + 7) / 8 * 8;
  std::size_t bytes = DeviceLane::rounded(all.size() * report);
  for (const Encoding& one : all) bytes += DeviceLane::rounded(bound(one.call.settings, one.in.n));
  const Result<DeviceRoom> room = lane.room(bytes);
  if (!room.ok()) return room.status();
  BatchCalls batch;
  std::size_t at = DeviceLane::rounded(all.size() * report);
  for (std::size_t k = 0; k < all.size(); ++k) {
    Encoding& one = all[k];
    one.report = room->part(k * report);
    one.payload = room->part(at);
    at += DeviceLane::rounded(bound(one.call.settings, one.in.n));
    KernelCall kernel_call = make_call(one.call, one.in.n);
    TITHE_TRY(agree(lane, name, one.call, kernel_call));
    kernel_call.grad = pointer_of<const float>(one.in.grad);
    kernel_call.residual = pointer_of<const float>(one.in.residual);
    kernel_call.residual_out = pointer_of<float>(decodes() ? one.in.left : 0);
    kernel_call.payload = pointer_of<std::uint8_t>(one.payload.at);
    kernel_call.bytes = pointer_of<std::uint64_t>(one.report.at);
    kernel_call.answer = pointer_of<std::uint32_t>(one.report.at + 8);
    batch.calls.push_back(kernel_call);
  }
  TITHE_TRY(lane.on().fill(lane.stream(), room->at, 0, all.size() * report));
  TITHE_TRY(kernels_.launch(lane, kPlanEncode, batch));
  return lane.down(*room, has_fixed_size() ? bytes : all.size() * report);
}

Status DeviceProgram::finish(DeviceLane& lane, std::string_view name, std::span<Encoding> all) {
  std::vector<std::uint32_t> answer(answers());
  for (Encoding& one : all) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, one.report.host, sizeof bytes);
    std::memcpy(answer.data(), one.report.host + 8, 4 * answer.size());
    if (std::any_of(answer.begin() + 1, answer.end(), [](std::uint32_t a) { return a != 0; })) {
      one.done = ask_interpreter(lane, name, one.call, one.in);
      continue;
    }
    const std::size_t most = std::min(one.out.size(), bound(one.call.settings, one.in.n));
    if (bytes > most)
      return {Code::kIo,
              fmt::format("{} wrote {} bytes, at most {} are allowed", lane.on().name(), bytes, most)};
    one.done = Encoded{.bytes = bytes, .finite = answer[0] == 0};
  }
  if (!has_fixed_size()) TITHE_TRY(bring_payloads(lane, all));
  for (const Encoding& one : all)
    if (one.done.ok() && one.done->finite && one.done->bytes > 0)
      std::memcpy(one.out.data(), one.payload.host, one.done->bytes);
  return {};
}

// One copy for several payloads, unless much unused memory lies between them.
Status DeviceProgram::bring_payloads(DeviceLane& lane, std::span<Encoding> all) const {
  constexpr std::size_t kMaxGap = 16384;
  DeviceRoom from;
  std::size_t bytes = 0;
  for (const Encoding& one : all) {
    if (!one.done.ok() || !one.done->finite) continue;
    const std::size_t skipped = one.payload.at - from.at;
    if (bytes > 0 && skipped > bytes + kMaxGap) {
      TITHE_TRY(lane.down(from, bytes));
      bytes = 0;
    }
    if (bytes == 0) from = one.payload;
    bytes = one.payload.at - from.at + one.done->bytes;
  }
  TITHE_TRY(lane.down(from, bytes));
  return lane.wait();
}

Result<Encoded> DeviceProgram::encode(DeviceLane& lane, std::string_view name, const Call& call,
                                      const Values& in, Bytes out) {
  if (out.size() < bound(call.settings, in.n))
    return Status(Code::kTooSmall, "the buffer is too small for a payload");
  lane.begin();
  Encoding one{.call = call, .in = in, .out = out};
  TITHE_TRY(lane.drained(start(lane, name, {&one, 1})));
  const Status finished = finish(lane, name, {&one, 1});
  return finished.ok() ? one.done : lane.drained(finished);
}

Result<Encoded> DeviceProgram::ask_interpreter(const DeviceLane& lane, std::string_view name,
                                               const Call& call, const Values& in) const {
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

// ---- Decode

// A program decodes one payload after the other, each added to the previous result. A codec's own kernels take all
// payloads together: they have equal lengths, and may be added before the inverse transform.
Status DeviceProgram::start_alike(DeviceLane& lane, std::string_view name, std::span<Decoding* const> all) {
  const std::size_t count = all[0]->payloads.size();
  const auto length = [&](ByteView payload) {
    return of_ == nullptr ? payload.size() : DeviceLane::rounded(payload.size());
  };
  std::size_t bytes = 0;
  bool finishes = false;
  for (const Decoding* one : all) {
    for (const ByteView payload : one->payloads) bytes += length(payload);
    bytes = DeviceLane::rounded(bytes);
    finishes = finishes || one->onto.divide != 1.0F || one->onto.largest != nullptr;
  }
  const Result<DeviceRoom> room = lane.room(bytes), reports = lane.room(8 * all.size());
  if (!room.ok()) return room.status();
  if (!reports.ok()) return reports.status();
  BatchCalls batch{.row = of_ == nullptr ? 1 : count};
  std::size_t at = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    Decoding& one = *all[k];
    KernelCall kernel_call = make_call(one.call, one.n);
    TITHE_TRY(agree(lane, name, one.call, kernel_call));
    kernel_call.out = pointer_of<float>(one.out);
    kernel_call.base = pointer_of<const float>(one.onto.base);
    if (of_ == nullptr) kernel_call.agreed_ranks = static_cast<std::uint32_t>(count);
    for (std::size_t p = 0; p < count; ++p) {
      const ByteView payload = one.payloads[p];
      if (!payload.empty()) std::memcpy(room->host + at, payload.data(), payload.size());
      kernel_call.payload_bytes = payload.size();
      kernel_call.payload = pointer_of<std::uint8_t>(room->at + at);
      at += length(payload);
      if (p > 0 && of_ == nullptr) continue;
      if (p > 0) kernel_call.base = pointer_of<const float>(one.out);
      batch.calls.push_back(kernel_call);
    }
    at = DeviceLane::rounded(at);
    one.report = reports->host + 8 * k;
    KernelCall& last = batch.calls.back();
    last.divide = one.onto.divide;
    last.answer = pointer_of<std::uint32_t>(reports->at + 8 * k);
    batch.bounds.push_back(bound(one.call.settings, one.n));
  }
  TITHE_TRY(lane.up(*room, bytes));
  if (finishes) TITHE_TRY(lane.on().fill(lane.stream(), reports->at, 0, 8 * all.size()));
  TITHE_TRY(kernels_.launch(lane, kPlanDecode, batch, finishes));
  return finishes ? lane.down(*reports, 8 * all.size()) : Status{};
}

Status DeviceProgram::start(DeviceLane& lane, std::string_view name, std::span<Decoding> all) {
  std::map<std::size_t, std::vector<Decoding*>> by_payloads;
  for (Decoding& one : all) {
    if (one.payloads.empty() || !decodes()) return {Code::kInvalid, "no payload to decode"};
    by_payloads[one.payloads.size()].push_back(&one);
  }
  for (const auto& [count, some] : by_payloads) TITHE_TRY(start_alike(lane, name, some));
  return {};
}

void DeviceProgram::finish(std::span<const Decoding> all) {
  for (const Decoding& one : all)
    if (one.onto.largest != nullptr) std::memcpy(one.onto.largest, one.report, sizeof(float));
}

Status DeviceProgram::decode(DeviceLane& lane, std::string_view name, const Call& call,
                             std::span<const ByteView> payloads, const Onto& onto, Address out,
                             std::size_t n) {
  lane.begin();
  Decoding one{
      .call = call, .payloads = {payloads.begin(), payloads.end()}, .onto = onto, .out = out, .n = n};
  TITHE_TRY(lane.drained(start(lane, name, {&one, 1})));
  finish({&one, 1});
  return {};
}

// ---- Conversions, and memory

Status DeviceProgram::convert(DeviceLane& lane, std::span<const Conversion> all, bool widens) {
  BatchCalls batch;
  for (const Conversion& one : all) {
    KernelCall kernel_call = {};
    kernel_call.n = one.n;
    kernel_call.payload = pointer_of<std::uint8_t>(one.narrow);
    kernel_call.grad = kernel_call.out = pointer_of<float>(one.wide);
    kernel_call.field_bits = one.type;
    batch.calls.push_back(kernel_call);
  }
  return all.empty() ? Status{} : kernels_.launch_each(lane, widens ? "tithe_widen" : "tithe_narrow", batch);
}

Result<DeviceKernels::Memory> DeviceProgram::memory(DeviceLane& lane, const Settings& settings,
                                                    std::span<const std::size_t> sizes,
                                                    std::size_t payloads) {
  BatchCalls encode, decode{.row = of_ == nullptr ? 1 : payloads};
  std::size_t sent = DeviceLane::rounded((16 + 4 * answers()) * sizes.size()), received = 0;
  for (const std::size_t n : sizes) {
    const std::size_t most = bound(settings, n);
    sent += DeviceLane::rounded(most);
    received += DeviceLane::rounded(most) * payloads;
    encode.calls.push_back(make_call({.settings = settings}, n));
    decode.calls.insert(decode.calls.end(), decode.row, encode.calls.back());
    if (of_ == nullptr) decode.calls.back().agreed_ranks = static_cast<std::uint32_t>(payloads);
    decode.bounds.push_back(most);
  }
  Result<DeviceKernels::Memory> memory = kernels_.memory(lane, kPlanEncode, encode);
  if (!memory.ok() || !decodes()) return memory;
  const Result<DeviceKernels::Memory> other = kernels_.memory(lane, kPlanDecode, decode);
  if (!other.ok()) return other;
  received += DeviceLane::rounded(8 * sizes.size());
  memory->room = std::max(memory->room + sent, other->room + received);
  memory->scratch = std::max(memory->scratch, other->scratch);
  return memory;
}

}  // namespace tithe::lang
