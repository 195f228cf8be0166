// SPDX-License-Identifier: Apache-2.0
// standin: an accelerator of PyTorch's private-use kind that is host memory, for tests on machines without one.
//
// Real where it matters: each stream is a thread that runs its copies in order and late (`standin_delay`), events
// order streams, memory is given back when the streams that were recorded on it are done, and pinned memory is
// memory of its own. So a wait that is missing shows as wrong data, and a buffer that goes too early as NaN.
// Arithmetic is the CPU's, on the calling thread, after the current stream is done.
// Where TITHE_CUDA names the CUDA driver of tests (tests/support/gpu/fake_gpu.h), a device's memory is its own: the
// host cannot touch it, and what knows a tensor by its address and its stream finds both there (`standin_stream`).
// All that touches streams, events, copies and memory is written down (`standin_log`), in the order of the calls.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "standin_driver.h"

namespace {

using namespace standin;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kKind; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    uncheckedSetDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return {kKind, static_cast<c10::DeviceIndex>(current_device)}; }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(index_of(d) < kDevices, "standin: there are ", kDevices, " devices");
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current_device = index_of(d); }
  c10::Stream getStream(c10::Device d) const override { return stream_at(current_place(d)); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream_at({index_of(d), 0}); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool /*high*/) const override {
    return stream_at({index_of(d), 1 + next_pool++ % kPool});
  }
  c10::Stream getNewStream(c10::Device d, int /*priority*/) const override {
    const Place place{index_of(d), next_new++};
    say_log().say("new ", name(place));
    return stream_at(place);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream old = getStream(s.device());
    current_stream[index_of(s.device())] = s.id();
    return old;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex /*device*/,
              c10::EventFlag /*flag*/) const override {
    static std::atomic<int> next{0};
    if (*event == nullptr) {
      auto mark = std::make_shared<StreamEvent>();
      mark->id = next++;
      *event = new std::shared_ptr<StreamEvent>(std::move(mark));
    }
    auto mark = *static_cast<std::shared_ptr<StreamEvent>*>(*event);
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(mark->mutex);
      version = ++mark->recorded;
    }
    say_log().say("record event=", mark->id, ' ', name(place_of(stream)), " thread=", gettid());
    queue_of(place_of(stream)).push([mark, version](const Queue& queue) {
      const std::lock_guard lock(mark->mutex);
      mark->reached = version;
      mark->broken = mark->broken || queue.broken;
      mark->moved.notify_all();
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    auto mark = *static_cast<std::shared_ptr<StreamEvent>*>(event);
    std::uint64_t version = 0;
    {
      const std::lock_guard lock(mark->mutex);
      version = mark->recorded;
    }
    say_log().say("block event=", mark->id, ' ', name(place_of(stream)));
    queue_of(place_of(stream)).push([mark, version](const Queue&) { mark->wait(version); });
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) return true;
    StreamEvent& mark = **static_cast<std::shared_ptr<StreamEvent>*>(event);
    const std::lock_guard lock(mark.mutex);
    return mark.reached >= mark.recorded;
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    auto mark = *static_cast<std::shared_ptr<StreamEvent>*>(event);
    say_log().say("synchronize event=", mark->id, " thread=", gettid());
    mark->wait(mark->recorded);
    TORCH_CHECK(!mark->broken, "standin: a copy failed on the device");
  }
  void destroyEvent(void* event, c10::DeviceIndex /*device*/) const noexcept override {
    delete static_cast<std::shared_ptr<StreamEvent>*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override { return queue_of(place_of(stream)).idle(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    say_log().say("synchronize ", name(place_of(stream)), " thread=", gettid());
    queue_of(place_of(stream)).wait();
  }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (c10::StreamId id = 0; id < next_new; ++id) queue_of({device, id}).wait();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override;
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// ---- memory: never given back to the system, so that a late touch is a NaN and not a crash

struct Block {
  std::size_t bytes;
  Place home;
  bool pinned;
  std::set<Place> also;  // streams that were recorded on it
  int copies = 0;        // pinned: those on their way that touch it
  bool freed = false;
};
std::mutex blocks_mutex;
std::map<const char*, Block>& blocks() {
  static auto* all = new std::map<const char*, Block>;
  return *all;
}
Block* block_of(const void* p) {  // under the mutex
  auto after = blocks().upper_bound(static_cast<const char*>(p));
  if (after == blocks().begin()) return nullptr;
  auto& [begin, block] = *std::prev(after);
  return static_cast<const char*>(p) < begin + block.bytes ? &block : nullptr;
}
void* new_block(std::size_t bytes, Place home, bool pinned) {
  const bool drives = !pinned && Driver::here() != nullptr;
  auto* p = static_cast<char*>(drives ? Driver::here()->take(std::max<std::size_t>(bytes, 1), home.first)
                                      : std::aligned_alloc(64, (bytes + 127) / 64 * 64));
  std::memset(seen(p), 0xFF, bytes);
  const std::lock_guard lock(blocks_mutex);
  blocks()[p] = {std::max<std::size_t>(bytes, 1), home, pinned, {}};
  return p;
}

// A forked child has no device, and none of the threads that may hold a lock of it: memory that it frees stays
// unchanged.
bool forked = false;
[[maybe_unused]] const int fork_is_seen = pthread_atfork(nullptr, nullptr, [] { forked = true; });

void free_device(void* p) {
  if (forked) return;
  std::set<Place> also;
  Place home;
  std::size_t bytes = 0;
  {
    const std::lock_guard lock(blocks_mutex);
    Block& block = *block_of(p);
    also = block.also;
    home = block.home;
    bytes = block.bytes;
  }
  auto left = std::make_shared<std::atomic<std::size_t>>(also.size() + 1);
  const auto poison = [left, p, bytes](const Queue&) {
    if (left->fetch_sub(1) != 1) return;
    const std::lock_guard lock(blocks_mutex);
    block_of(p)->freed = true;
    std::memset(seen(p), 0xFF, bytes);  // as if the next tensor got it
  };
  queue_of(home).push(poison);
  for (const Place place : also) queue_of(place).push(poison);
}

void free_pinned(void* p) {
  if (forked) return;
  const std::lock_guard lock(blocks_mutex);
  Block& block = *block_of(p);
  pinned_bytes -= static_cast<long>(block.bytes);
  say_log().say("unpin bytes=", block.bytes, " in_use=", block.copies > 0 ? 1 : 0);
  block.freed = true;
  if (block.copies == 0) std::memset(p, 0xFF, block.bytes);
}

struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t n) override {
    const c10::Device device(kKind, static_cast<c10::DeviceIndex>(current_device));
    void* p = n == 0 ? nullptr : new_block(n, current_place(device), false);
    return {p, p, raw_deleter(), device};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return [](void* p) {
      if (p != nullptr) free_device(p);
    };
  }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }
};
DeviceMemory device_memory;
REGISTER_ALLOCATOR(kKind, &device_memory)

struct PinnedMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t n) override {
    const long limit = pinned_limit;
    TORCH_CHECK(limit < 0 || pinned_bytes + static_cast<long>(n) <= limit, "standin: out of pinned memory");
    void* p = new_block(n, {0, 0}, true);
    pinned_bytes += static_cast<long>(std::max<std::size_t>(n, 1));
    say_log().say("pin bytes=", n);
    return {p, p, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return free_pinned; }
  void copy_data(void* to, const void* from, std::size_t n) const override { default_copy_data(to, from, n); }
};
PinnedMemory pinned_memory;

bool is_gone(const void* p) {
  const std::lock_guard lock(blocks_mutex);
  const Block* block = block_of(p);
  return block != nullptr && !block->pinned && block->freed;
}

bool is_pinned(const void* p) {
  const std::lock_guard lock(blocks_mutex);
  const Block* block = block_of(p);
  return block != nullptr && block->pinned;
}

void record_on(const void* p, const Place place) {
  const std::lock_guard lock(blocks_mutex);
  Block* block = block_of(p);
  if (block == nullptr || block->home == place) return;
  block->also.insert(place);
}

void Guard::recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const {
  say_log().say("record_stream ", name(place_of(stream)));
  record_on(data.get(), place_of(stream));
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex /*device*/) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  at::Device getDeviceFromPtr(void* /*data*/) const override { return {kKind, 0}; }
  void resizePrivateUse1Bytes(const c10::Storage& storage,
                              std::size_t bytes) const override {  // keeps no values
    const c10::DeviceGuard guard(storage.device());
    const_cast<c10::Storage&>(storage).set_data_ptr_noswap(device_memory.allocate(bytes));
    storage.set_nbytes(bytes);
  }
};

// ---- operators

at::Tensor as_host(const at::Tensor& t) {  // the same memory, without a hold on it: as a device sees it
  return at::from_blob(seen(t.data_ptr()), t.sizes(), t.strides(),
                       at::TensorOptions().dtype(t.scalar_type()));
}

const char* way(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_cpu()) return "h2d";
  return to.is_cpu() ? "d2h" : "d2d";
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (to.numel() == 0) return to;
  const Place place = current_place(from.is_cpu() ? to.device() : from.device());
  const void* host = from.is_cpu() ? from.data_ptr() : to.is_cpu() ? to.data_ptr() : nullptr;
  const bool pinned = host != nullptr && is_pinned(host);
  const bool waits = host != nullptr && !(non_blocking && pinned);
  say_log().say("copy ", way(from, to), ' ', name(place), " bytes=", to.nbytes(), " dtype=", to.scalar_type(),
                " thread=", gettid(), waits ? " waits" : "");
  TORCH_CHECK(!(pinned && counted_down(fail_now, from.is_cpu())), "standin: a copy was refused");
  const bool fails = pinned && counted_down(fail_later, from.is_cpu());
  at::Tensor source = from;
  if (from.sizes() != to.sizes()) source = from.expand(to.sizes());
  if (pinned) {
    const std::lock_guard lock(blocks_mutex);
    ++block_of(host)->copies;
  }
  const std::chrono::microseconds delay(waits ? 0 : pinned ? delay_us.load() : inner_delay_us.load());
  queue_of(place).push([s = as_host(source), d = as_host(to), at_source = source.data_ptr(),
                        at_target = to.data_ptr(), pinned, host, fails, delay](Queue& queue) {
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (is_gone(at_source) || is_gone(at_target)) ++late;
    queue.broken = queue.broken || fails;
    if (!queue.broken) {
      const c10::impl::ExcludeDispatchKeyGuard no_grad(
          c10::autograd_dispatch_keyset | c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView));
      d.copy_(s);
    }
    if (!pinned) return;
    const std::lock_guard lock(blocks_mutex);
    Block& block = *block_of(host);
    if (--block.copies == 0 && block.freed) std::memset(const_cast<void*>(host), 0xFF, block.bytes);
  });
  if (waits || (host == nullptr && from.device() != to.device())) queue_of(place).wait();
  return to;
}

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> /*layout*/, std::optional<c10::Device> device,
                 std::optional<bool> /*pin*/, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kKind)));
  return at::detail::empty_generic(size, &device_memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::kFloat), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> /*layout*/, std::optional<c10::Device> device,
                         std::optional<bool> /*pin*/) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kKind)));
  return at::detail::empty_strided_generic(size, stride, &device_memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::kFloat));
}

const at::Tensor& resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<at::MemoryFormat> /*format*/) {
  auto* impl = self.unsafeGetTensorImpl();
  const std::size_t bytes =
      at::detail::computeStorageNbytesContiguous(size, self.itemsize(), self.storage_offset());
  if (bytes > self.storage().nbytes()) {
    const c10::DeviceGuard guard(self.device());
    self.storage().set_data_ptr_noswap(device_memory.allocate(bytes));
    self.storage().set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resize(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

void record_stream(at::Tensor& self, at::Stream stream) {
  say_log().say("record_stream ", name(place_of(stream)));
  record_on(self.storage().data(), place_of(stream));
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("record_stream", record_stream);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

// ---- for Python, by ctypes

extern "C" {
void standin_delay(int us, int inner_us) {
  delay_us = us;
  inner_delay_us = inner_us;
}
void standin_fail_now(int copies, bool back) { (back ? fail_now.back : fail_now.to_host) = copies; }
void standin_fail_later(int copies, bool back) { (back ? fail_later.back : fail_later.to_host) = copies; }
void standin_pinned_limit(long bytes) { pinned_limit = bytes; }
long standin_pinned_bytes() { return pinned_bytes; }
long standin_late() { return late; }
// As a CUDA driver knows the calling thread's stream; 0 where there is none.
unsigned long long standin_stream(int device) {
  return Driver::here() == nullptr ? 0 : handle_of({device, current_stream[device]});
}
// The log since the last call; good until the next one.
const char* standin_log() {
  static auto* given = new std::string;
  Log& log = say_log();
  const std::lock_guard lock(log.mutex);
  *given = std::exchange(log.text, {});
  return given->c_str();
}
}
