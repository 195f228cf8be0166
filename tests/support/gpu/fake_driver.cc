// SPDX-License-Identifier: Apache-2.0
// The fake driver's functions (fake_gpu.h), except for memory and streams, which are in fake_work.cc.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "support/gpu/fake_state.h"

using namespace tithe::fake;

namespace {

// Replaces GPU addresses in the words by addresses of the same memory that a kernel may access. Returns an error if
// one is not of live memory.
int translate(std::vector<std::uint64_t>& words, std::vector<std::uint64_t>& touches) {
  for (std::uint64_t& word : words) {
    if (is_pinned(pointer_of(word), 1)) return complain("a kernel's argument is an address of the host's");
    const std::uint64_t at = gpu->memory.given(word);
    if (!gpu->memory.is_within(at)) continue;
    if (!gpu->memory.is_alive(at, 0))
      return complain("a kernel's argument is an address without live memory");
    touches.push_back(at);
    word = handle_of(gpu->memory.behind(at));
  }
  return kOk;
}

// Runs a kernel; one with a table runs on a copy with translated addresses: the table is complete only now.
int run_kernel(const OnCpu& kernel, std::vector<std::uint64_t> words, std::uint64_t blocks, unsigned order) {
  if (kernel.call_bytes == 0) {
    kernel.run(words.data(), blocks, order);
    return kOk;
  }
  Batch batch = {};
  std::memcpy(&batch, words.data(), sizeof batch);
  const std::uint64_t calls = std::uint64_t{batch.tensors - 1} * batch.row + batch.rounds;
  std::vector<std::uint64_t> table(calls * kernel.call_bytes / 8), none;
  std::memcpy(table.data(), pointer_of(batch.calls), 8 * table.size());
  if (const int error = translate(table, none); error != kOk) return error;
  batch.calls = handle_of(table.data());
  const auto* ends = static_cast<const std::uint64_t*>(pointer_of(batch.ends));
  if (ends[batch.tensors - 1] != blocks)
    return complain("a launch of more or fewer blocks than its table has");
  kernel.run(&batch, blocks, order);
  return kOk;
}

}  // namespace

extern "C" {

int cuInit(unsigned flags) {
  BEGIN("cuInit", false);
  return flags == 0 ? kOk : complain("cuInit with flags");
}
int cuDriverGetVersion(int* version) {
  BEGIN("cuDriverGetVersion", false);
  *version = gpu->version;
  return kOk;
}
int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case kInvalidValue:
      *name = "CUDA_ERROR_INVALID_VALUE";
      return kOk;
    case kOutOfMemory:
      *name = "CUDA_ERROR_OUT_OF_MEMORY";
      return kOk;
    case kInvalidImage:
      *name = "CUDA_ERROR_INVALID_IMAGE";
      return kOk;
    case kInvalidContext:
      *name = "CUDA_ERROR_INVALID_CONTEXT";
      return kOk;
    case kNoBinary:
      *name = "CUDA_ERROR_NO_BINARY_FOR_GPU";
      return kOk;
    case kInvalidHandle:
      *name = "CUDA_ERROR_INVALID_HANDLE";
      return kOk;
    case kNotFound:
      *name = "CUDA_ERROR_NOT_FOUND";
      return kOk;
    case kLaunchFailed:
      *name = "CUDA_ERROR_LAUNCH_FAILED";
      return kOk;
    default:
      *name = nullptr;
      return kInvalidValue;
  }
}
int cuDeviceGetCount(int* count) {
  BEGIN("cuDeviceGetCount", false);
  *count = gpu->devices;
  return kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  BEGIN("cuDeviceGet", false);
  *device = ordinal;
  return ordinal >= 0 && ordinal < gpu->devices ? kOk : complain("cuDeviceGet of a device that is none");
}
int cuDeviceGetName(char* name, int bytes, int device) {
  BEGIN("cuDeviceGetName", false);
  std::strncpy(name, "a fake GPU", static_cast<std::size_t>(bytes));
  return device < gpu->devices ? kOk : kInvalidValue;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  BEGIN("cuDeviceGetAttribute", false);
  if (device < 0 || device >= gpu->devices) return kInvalidValue;
  if (attribute == 75) *value = kFakeSm / 10;
  if (attribute == 76) *value = kFakeSm % 10;
  return attribute == 75 || attribute == 76 ? kOk : complain("an attribute that the fake does not know");
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN("cuDevicePrimaryCtxRetain", false);
  if (device < 0 || device >= gpu->devices) return kInvalidValue;
  ++gpu->retained;
  *context = &context_objects[device];
  return kOk;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  BEGIN("cuDevicePrimaryCtxRelease", false);
  if (gpu->retained == 0) return complain("a context that nobody holds is released", kInvalidContext);
  --gpu->retained;
  return kOk;
}
int cuCtxPushCurrent_v2(void* context) {
  BEGIN("cuCtxPushCurrent", false);
  if (!is_context(context)) return complain("no context", kInvalidContext);
  current.push_back(context);
  return kOk;
}
int cuCtxPopCurrent_v2(void** context) {  // never fails: callers could not handle it
  const std::lock_guard lock(mutex);
  if (current.empty()) return complain("no context is current", kInvalidContext);
  *context = current.back();
  current.pop_back();
  return kOk;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  const std::lock_guard lock(mutex);
  thread_local int own = 0;
  std::swap(own, *mode);
  return kOk;
}
int cuModuleLoadData(void** module, const void* code) {
  BEGIN("cuModuleLoadData");
  CodeHead head = {};
  std::memcpy(&head, code, sizeof head.magic);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0)
    return complain("code that is none", kInvalidImage);
  std::memcpy(&head, code, sizeof head);
  if (head.sm != kFakeSm) return complain("code for another GPU", kNoBinary);
  const int file = ::memfd_create("fake_code", MFD_CLOEXEC);
  const auto* object = static_cast<const char*>(code) + sizeof head;
  void* loaded = nullptr;
  if (file >= 0 && ::write(file, object, head.bytes) == static_cast<::ssize_t>(head.bytes))
    loaded = ::dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  // The file stays open: the loader identifies a loaded library by the descriptor's path, and would confuse two
  // libraries if the descriptor were reused.
  if (loaded == nullptr) return complain(std::string("code cannot be loaded: ") + ::dlerror(), kInvalidImage);
  const std::uint64_t made = new_handle();
  gpu->modules[made] = loaded;
  *module = pointer_of(made);
  return kOk;
}
int cuModuleUnload(void* module) {
  BEGIN("cuModuleUnload");
  if (gpu->streams.any([&](const Work& work) { return work.module == handle_of(module); }))
    complain("a module is unloaded before its work is done");
  std::erase_if(gpu->functions, [&](const auto& f) { return f.second.first == handle_of(module); });
  return drop(gpu->modules.erase(handle_of(module)) == 1, "a module");
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  BEGIN("cuModuleGetFunction");
  const auto found = gpu->modules.find(handle_of(module));
  if (found == gpu->modules.end()) return complain("a module that is none", kInvalidHandle);
  void* const entry = ::dlsym(found->second, (std::string(name) + "_on_cpu").c_str());
  if (entry == nullptr) return kNotFound;
  const std::uint64_t made = new_handle();
  gpu->functions[made] = {found->first, reinterpret_cast<const OnCpu* (*)()>(entry)()};
  *function = pointer_of(made);
  return kOk;
}
int cuLaunchKernel(void* function, unsigned blocks, unsigned y, unsigned z, unsigned threads,
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** arguments,
                   void** extra) {
  BEGIN("cuLaunchKernel");
  const auto found = gpu->functions.find(handle_of(function));
  if (found == gpu->functions.end()) return complain("a function that is none", kInvalidHandle);
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (blocks == 0 || y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || shared != 0 || extra != nullptr)
    return complain("a launch of a shape that is none");
  const auto [module, kernel] = found->second;
  if (threads != kernel->threads)
    return complain("a launch with another number of threads than the text has");
  std::vector<std::uint64_t> words(kernel->argument_bytes / 8 + 1), touches;
  std::memcpy(words.data(), arguments[0], kernel->argument_bytes);
  if (const int error = translate(words, touches); error != kOk) return error;
  const auto order = static_cast<unsigned>(gpu->streams.draw(5));
  return add(
      stream,
      [kernel = kernel, words = std::move(words), blocks, order] {
        if (const int error = planned("kernel", true); error != kOk) return error;
        return run_kernel(*kernel, words, blocks, order);
      },
      std::move(touches), module);
}

const Control* fake_gpu() {
  static const Control kControl = {
      .reset =
          [](std::uint64_t seed) {
            const std::lock_guard lock(mutex);
            for (const auto& [at, piece] : gpu->pinned) std::free(pointer_of(at));
            gpu = std::make_unique<Gpu>(seed);
            problem_text.clear();
          },
      .fail =
          [](const char* function, unsigned nth, int error, bool for_good) {
            const std::lock_guard lock(mutex);
            gpu->failures.push_back({function, nth, error, for_good});
          },
      .set_version =
          [](int version) {
            const std::lock_guard lock(mutex);
            gpu->version = version;
          },
      .set_devices =
          [](int count) {
            const std::lock_guard lock(mutex);
            gpu->devices = count;
          },
      .set_memory =
          [](std::uint64_t bytes) {
            const std::lock_guard lock(mutex);
            gpu->has = bytes;
          },
      .alive = []() -> std::uint64_t {
        const std::lock_guard lock(mutex);
        return gpu->memory.pieces() + gpu->pinned.size() + gpu->events.size() + gpu->made_streams.size() +
               gpu->modules.size();
      },
      .calls = []() -> std::uint64_t {
        const std::lock_guard lock(mutex);
        return gpu->calls;
      },
      .problem = []() -> const char* {
        const std::lock_guard lock(mutex);
        return problem_text.c_str();
      },
      .join =
          [](const Outside* streams) {
            const std::lock_guard lock(mutex);
            outside = streams;
          },
      .behind = [](std::uint64_t at) -> std::uint8_t* {
        return gpu->memory.is_within(at) ? gpu->memory.behind(at) : nullptr;
      },
      .broken =
          [] {
            const std::lock_guard lock(mutex);
            return gpu->broken != kOk;
          },
      .forgive =
          [] {
            const std::lock_guard lock(mutex);
            gpu->failures.clear();
          },
      .calls_of = [](const char* function) -> std::uint64_t {
        const std::lock_guard lock(mutex);
        const auto found = gpu->calls_of.find(function);
        return found == gpu->calls_of.end() ? 0 : found->second;
      },
  };
  return &kControl;
}

}  // extern "C"
