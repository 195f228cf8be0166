// SPDX-License-Identifier: Apache-2.0
// The fake driver's functions (fake_gpu.h), one at a time.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "support/gpu/fake_gpu.h"
#include "support/gpu/fake_memory.h"
#include "support/gpu/fake_streams.h"

namespace tithe::fake {
namespace {

// As cuda.h numbers them.
enum : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinary = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kLaunchFailed = 719,
};

struct Failure {
  std::string function;
  unsigned countdown = 0;
  int error = 0;
  bool for_good = false;
};

struct Piece {  // of pinned memory
  std::size_t bytes;
};

struct Gpu {
  explicit Gpu(std::uint64_t seed) : streams(seed) {}
  GpuMemory memory;
  Streams streams;
  std::map<std::uint64_t, Piece> pinned;
  std::map<std::uint64_t, std::shared_ptr<Work>> events;  // and what each recorded
  std::map<std::uint64_t, void*> modules;                 // and their objects
  std::map<std::uint64_t, std::pair<std::uint64_t, const OnCpu*>> functions;
  std::map<std::uint64_t, bool> made_streams;
  std::vector<Failure> failures;
  std::uint64_t next_handle = 0x1000, calls = 0, retained = 0;
  std::size_t has = std::size_t{1} << 30;
  int version = 12090, broken = kOk;
  bool running = false;
};

std::mutex mutex;
std::unique_ptr<Gpu> gpu = std::make_unique<Gpu>(1);
std::string problem_text;
thread_local std::vector<void*> current;
int context_object;

int complain(const std::string& what, int error = kInvalidValue) {
  if (problem_text.empty()) problem_text = what;
  return error;
}

// A planned failure of this call, or of this kind of work.
int planned(const char* function, bool work = false) {
  for (Failure& failure : gpu->failures) {
    if (failure.function != function && (work || failure.function != "*")) continue;
    if (failure.countdown > 1) {
      --failure.countdown;
    } else if (failure.countdown == 1 || failure.for_good) {
      failure.countdown = 0;
      return failure.error;
    }
  }
  return kOk;
}

int begin(const char* function, bool needs_context = true) {
  ++gpu->calls;
  if (gpu->broken != kOk && needs_context) return gpu->broken;
  if (const int error = planned(function); error != kOk) return error;
  if (needs_context && (current.empty() || current.back() != &context_object || gpu->retained == 0))
    return complain(std::string(function) + " without a context", kInvalidContext);
  return kOk;
}

#define BEGIN(function, ...)         \
  const std::lock_guard lock(mutex); \
  if (const int error = begin(function __VA_OPT__(, ) __VA_ARGS__); error != kOk) return error

std::uint64_t handle_of(const void* p) { return reinterpret_cast<std::uint64_t>(p); }
void* pointer_of(std::uint64_t handle) { return reinterpret_cast<void*>(handle); }
std::uint64_t new_handle() { return gpu->next_handle += 8; }

bool is_stream(void* stream) { return stream == nullptr || gpu->made_streams.contains(handle_of(stream)); }
bool is_pinned(const void* at, std::size_t bytes) {
  const auto after = gpu->pinned.upper_bound(handle_of(at));
  if (after == gpu->pinned.begin()) return false;
  const auto& [begin, piece] = *std::prev(after);
  const std::size_t from = handle_of(at) - begin;
  return from <= piece.bytes && bytes <= piece.bytes - from;
}
std::uint8_t poison() {
  constexpr std::uint8_t kPoisons[] = {0xcd, 0xff, 0x7f, 0x81};
  return kPoisons[gpu->streams.draw(4)];
}
bool is_in_use(std::uint64_t at, std::size_t bytes) {
  return gpu->streams.any([&](const Work& work) {
    for (const std::uint64_t touched : work.touches)
      if (touched >= at && touched < at + std::max<std::size_t>(bytes, 1)) return true;
    return false;
  });
}

int add(void* stream, std::function<int()> run, std::vector<std::uint64_t> touches = {},
        std::uint64_t module = 0, std::shared_ptr<Work> after = nullptr) {
  auto work = std::make_shared<Work>();
  work->stream = handle_of(stream);
  work->run = std::move(run);
  work->touches = std::move(touches);
  work->module = module;
  work->after = std::move(after);
  gpu->streams.add(std::move(work));
  return kOk;
}

// Work that ends with an error breaks the context.
int after_work(int error) {
  if (error != kOk) gpu->broken = error;
  return error;
}

int drop(bool was_there, const char* what) {
  return was_there ? kOk : complain(std::string(what) + " that is none", kInvalidHandle);
}

}  // namespace
}  // namespace tithe::fake

using namespace tithe::fake;

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
  *count = 1;
  return kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  BEGIN("cuDeviceGet", false);
  *device = ordinal;
  return ordinal == 0 ? kOk : complain("cuDeviceGet of a device that is none");
}
int cuDeviceGetName(char* name, int bytes, int device) {
  BEGIN("cuDeviceGetName", false);
  std::strncpy(name, "a fake GPU", static_cast<std::size_t>(bytes));
  return device == 0 ? kOk : kInvalidValue;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  BEGIN("cuDeviceGetAttribute", false);
  if (device != 0) return kInvalidValue;
  if (attribute == 75) *value = kFakeSm / 10;
  if (attribute == 76) *value = kFakeSm % 10;
  return attribute == 75 || attribute == 76 ? kOk : complain("an attribute that the fake does not know");
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  BEGIN("cuDevicePrimaryCtxRetain", false);
  if (device != 0) return kInvalidValue;
  ++gpu->retained;
  *context = &context_object;
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
  if (context != &context_object) return complain("no context", kInvalidContext);
  current.push_back(context);
  return kOk;
}
int cuCtxPopCurrent_v2(void** context) {  // no failure is planned for it: nobody could do anything about one
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
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  BEGIN("cuMemGetInfo");
  *total = gpu->has;
  *free = gpu->has - gpu->memory.used();
  return kOk;
}
int cuMemAlloc_v2(std::uint64_t* at, std::size_t bytes) {
  BEGIN("cuMemAlloc");
  if (bytes == 0) return complain("cuMemAlloc of no bytes");
  if (bytes > gpu->has - gpu->memory.used()) return kOutOfMemory;
  *at = gpu->memory.take(bytes, poison());
  return *at == 0 ? kOutOfMemory : kOk;
}
int cuMemFree_v2(std::uint64_t at) {
  BEGIN("cuMemFree");
  if (is_in_use(at, gpu->memory.bytes_of(at))) complain("memory is given back while work is pending in it");
  std::string trouble;
  if (!gpu->memory.give_back(at, trouble)) return complain("cuMemFree of what is not alive");
  if (!trouble.empty()) complain(trouble);
  return kOk;
}
int cuMemHostAlloc(void** at, std::size_t bytes, unsigned flags) {
  BEGIN("cuMemHostAlloc");
  if (bytes == 0 || flags > 7) return complain("cuMemHostAlloc of no bytes, or with flags that are none");
  *at = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  std::memset(*at, poison(), bytes);
  gpu->pinned[handle_of(*at)] = {bytes};
  return kOk;
}
int cuMemFreeHost(void* at) {
  BEGIN("cuMemFreeHost");
  const auto found = gpu->pinned.find(handle_of(at));
  if (found == gpu->pinned.end()) return complain("cuMemFreeHost of what is not alive");
  if (is_in_use(handle_of(at), found->second.bytes))
    complain("memory is given back while work is pending in it");
  std::free(at);
  gpu->pinned.erase(found);
  return kOk;
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  BEGIN("cuMemcpyHtoDAsync");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (!gpu->memory.is_alive(to, bytes)) return complain("a copy up to where nothing is alive");
  if (!is_pinned(from, bytes)) return complain("a copy up from memory that is not pinned");
  return add(stream,
             [=] {
               std::memcpy(gpu->memory.behind(to), from, bytes);
               return planned("copy", true);
             },
             {to, handle_of(from)});
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void* stream) {
  BEGIN("cuMemcpyDtoHAsync");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (!gpu->memory.is_alive(from, bytes)) return complain("a copy down from where nothing is alive");
  if (!is_pinned(to, bytes)) return complain("a copy down to memory that is not pinned");
  std::memset(to, poison(), bytes);
  return add(stream,
             [=] {
               std::memcpy(to, gpu->memory.behind(from), bytes);
               return planned("copy", true);
             },
             {from, handle_of(to)});
}
int cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  BEGIN("cuMemcpyDtoDAsync");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (!gpu->memory.is_alive(from, bytes) || !gpu->memory.is_alive(to, bytes))
    return complain("a copy between places where nothing is alive");
  return add(stream,
             [=] {
               std::memmove(gpu->memory.behind(to), gpu->memory.behind(from), bytes);
               return planned("copy", true);
             },
             {from, to});
}
int cuMemsetD8Async(std::uint64_t at, unsigned char byte, std::size_t bytes, void* stream) {
  BEGIN("cuMemsetD8Async");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (!gpu->memory.is_alive(at, bytes)) return complain("a fill where nothing is alive");
  return add(stream,
             [=] {
               std::memset(gpu->memory.behind(at), byte, bytes);
               return kOk;
             },
             {at});
}
int cuStreamCreate(void** stream, unsigned flags) {
  BEGIN("cuStreamCreate");
  if (flags > 1) return complain("cuStreamCreate with flags that are none");
  const std::uint64_t made = new_handle();
  gpu->made_streams[made] = true;
  *stream = pointer_of(made);
  return kOk;
}
int cuStreamDestroy_v2(void* stream) {
  BEGIN("cuStreamDestroy");
  if (gpu->streams.last_of(handle_of(stream)) != nullptr)
    complain("a stream is destroyed before its work is done");
  return drop(gpu->made_streams.erase(handle_of(stream)) == 1, "a stream");
}
int cuStreamSynchronize(void* stream) {
  BEGIN("cuStreamSynchronize");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  return after_work(gpu->streams.run_until(gpu->streams.last_of(handle_of(stream))));
}
int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  BEGIN("cuStreamWaitEvent");
  if (!is_stream(stream) || flags != 0) return complain("a stream that is none", kInvalidHandle);
  const auto found = gpu->events.find(handle_of(event));
  if (found == gpu->events.end()) return complain("an event that is none", kInvalidHandle);
  return add(stream, {}, {}, 0, found->second);
}
int cuEventCreate(void** event, unsigned flags) {
  BEGIN("cuEventCreate");
  if (flags > 7) return complain("cuEventCreate with flags that are none");
  const std::uint64_t made = new_handle();
  gpu->events[made] = nullptr;
  *event = pointer_of(made);
  return kOk;
}
int cuEventDestroy_v2(void* event) {
  BEGIN("cuEventDestroy");
  return drop(gpu->events.erase(handle_of(event)) == 1, "an event");
}
int cuEventRecord(void* event, void* stream) {
  BEGIN("cuEventRecord");
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  const auto found = gpu->events.find(handle_of(event));
  if (found == gpu->events.end()) return complain("an event that is none", kInvalidHandle);
  add(stream, {});
  found->second = gpu->streams.last_of(handle_of(stream));
  return kOk;
}
int cuEventQuery(void* event) {  // who asks often enough sees the work done
  BEGIN("cuEventQuery");
  const auto found = gpu->events.find(handle_of(event));
  if (found == gpu->events.end()) return complain("an event that is none", kInvalidHandle);
  if (found->second == nullptr || found->second->done) return kOk;
  if (const int error = after_work(gpu->streams.step(found->second)); error != kOk) return error;
  return kNotReady;
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
  // It stays open: the loader knows what it has loaded by the descriptor's name, and would take another one for it.
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
                   unsigned threads_y, unsigned threads_z, unsigned shared, void* stream, void** told,
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
  std::vector<std::uint64_t> words(kernel->told_bytes / 8 + 1), touches;
  std::memcpy(words.data(), told[0], kernel->told_bytes);
  for (const std::uint64_t word : words) {
    if (gpu->memory.is_within(word)) touches.push_back(word);
    if (gpu->memory.is_within(word) && !gpu->memory.is_alive(word, 0))
      return complain("a kernel is told an address where nothing is alive");
    if (is_pinned(pointer_of(word), 1)) return complain("a kernel is told an address of the host's");
  }
  const auto order = static_cast<unsigned>(gpu->streams.draw(5));
  return add(
      stream,
      [kernel = kernel, words = std::move(words), blocks, order] {
        if (const int error = planned("kernel", true); error != kOk) return error;
        gpu->memory.open(true);
        kernel->run(words.data(), blocks, order);
        gpu->memory.open(false);
        return int{kOk};
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
  };
  return &kControl;
}

}  // extern "C"
