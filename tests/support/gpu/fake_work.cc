// SPDX-License-Identifier: Apache-2.0
// The fake driver's memory, copies, streams and events (fake_gpu.h).
#include <cstdlib>
#include <cstring>

#include "support/gpu/fake_state.h"

using namespace tithe::fake;

namespace {

template <typename Word>
int fill_with(std::uint64_t at, Word word, std::size_t words, void* stream) {
  if (!is_stream(stream)) return complain("a stream that is none", kInvalidHandle);
  if (at % sizeof word != 0 || !gpu->memory.is_alive(at, sizeof word * words))
    return complain("a fill where nothing is alive, or between words");
  return add(stream,
             [=] {
               for (std::size_t k = 0; k < words; ++k)
                 std::memcpy(gpu->memory.behind(at) + sizeof word * k, &word, sizeof word);
               return int{kOk};
             },
             {at});
}

}  // namespace

extern "C" {

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
  *at = gpu->memory.take(bytes, poison(), current_device());
  return *at == 0 ? kOutOfMemory : kOk;
}
int cuMemFree_v2(std::uint64_t at) {
  BEGIN("cuMemFree");
  leave_alone(at, gpu->memory.bytes_of(at));
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
  leave_alone(handle_of(at), found->second.bytes);
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
int cuMemsetD16Async(std::uint64_t at, unsigned short word, std::size_t words, void* stream) {
  BEGIN("cuMemsetD16Async");
  return fill_with(at, word, words, stream);
}
int cuMemsetD32Async(std::uint64_t at, unsigned word, std::size_t words, void* stream) {
  BEGIN("cuMemsetD32Async");
  return fill_with(at, word, words, stream);
}
int cuPointerGetAttribute(void* value, int attribute, std::uint64_t at) {
  BEGIN("cuPointerGetAttribute");
  const bool there = gpu->memory.is_alive(at, 1);
  if (!there && !is_pinned(pointer_of(at), 1)) return kInvalidValue;
  const int answer = attribute == 2 ? (there ? 2 : 1) : gpu->memory.owner_of(at);
  if (attribute != 2 && attribute != 9) return complain("an attribute that the fake does not know");
  std::memcpy(value, &answer, sizeof answer);
  return kOk;
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
  std::function<int()> reached;
  if (is_outside(stream))
    reached = [mark = outside->record(handle_of(stream))] {
      outside->reach(mark);
      return int{kOk};
    };
  add(stream, std::move(reached));
  found->second = gpu->streams.last_of(handle_of(stream));
  return kOk;
}
int cuEventQuery(void* event) {  // repeated queries eventually run the work
  BEGIN("cuEventQuery");
  const auto found = gpu->events.find(handle_of(event));
  if (found == gpu->events.end()) return complain("an event that is none", kInvalidHandle);
  if (found->second == nullptr || found->second->done) return kOk;
  if (const int error = after_work(gpu->streams.step(found->second)); error != kOk) return error;
  return kNotReady;
}

}  // extern "C"
