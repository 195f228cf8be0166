// SPDX-License-Identifier: Apache-2.0
// Tests of src/device on a driver without a GPU (tests/support/gpu/fake_gpu.h) that delays work, poisons memory and
// checks arguments; on the machine's GPU with TITHE_TEST_GPU=real.
#include "device/device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "device/compiler.h"
#include "support/gpu/gpu_here.h"

namespace tithe::device {
namespace {

using testing::fake_gpu;
using testing::there;

class DeviceSeam : public testing::GpuTest {};

// The smallest text with a kernel: adds `more` to each number.
constexpr const char* kText = R"(
#define TITHE_PLANS
#include <stdint.h>
#include <stddef.h>
#if !defined(__CUDACC__)
#include "grid_on_cpu.h"
#endif
enum { kThreads = 64 };
struct Call { uint32_t* at; uint64_t n; uint32_t more; };
struct Shared { int none; };
#if defined(__CUDACC__)
#define DEV static __device__ inline
#define KERNEL(name, Common, ...) extern "C" __global__ void name(const Call of_call) { __shared__ Common s; \
  const Call* const call = &of_call; const uint64_t at = blockIdx.x; const unsigned thread = threadIdx.x; __VA_ARGS__ }
#define PHASE(f) f(call, s, at, thread); __syncthreads();
#else
#define DEV static inline
typedef Call Argument;
#define FIND_CALLS(argument, place) const uint64_t block = place;
#define ONE_CALL(argument)
#define THIS_CALL(argument) argument
#define KERNEL(name, Common, ...) GRID(name, Common, Shared, kThreads, everywhere, ONE_CALL, __VA_ARGS__)
DEV uint64_t everywhere(uint64_t) { return ~uint64_t(0); }
#endif
DEV void add(const Call* call, Shared&, uint64_t at, unsigned thread) {
  const uint64_t i = at * kThreads + thread;
  if (i < call->n) call->at[i] += call->more;
}
KERNEL(add_to_all, Shared, PHASE(add))
)";
struct AddCall {
  Address at;
  std::uint64_t n;
  std::uint32_t more;
};

// Numbers on the GPU, and pinned ones.
struct Numbers {
  Numbers(const Device& on, std::size_t n)
      : count(n), memory(there(on.memory(4 * n))), pinned(there(on.pinned(4 * n))) {
    for (std::size_t i = 0; i < n; ++i) host()[i] = static_cast<std::uint32_t>(7 * i);
  }
  std::uint32_t* host() const { return reinterpret_cast<std::uint32_t*>(pinned.data()); }
  std::size_t bytes() const { return 4 * count; }
  std::size_t count;
  Memory memory;
  Pinned pinned;
};

TEST_F(DeviceSeam, DescribesTheOpenedDevice) {
  const Device device = open();
  EXPECT_FALSE(device.name().empty());
  EXPECT_GE(device.sm(), 70);
  EXPECT_TRUE(device.lost().ok());
}

TEST_F(DeviceSeam, StreamRunsWorkInOrder) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Module module = there(device.module(there(compiler().code(kText, device.sm()))));
  const Kernel kernel = there(device.kernel(module, "add_to_all"));
  const Numbers of(device, 1000);
  AddCall add_call = {of.memory.at(), of.count, 5};
  ASSERT_TRUE(device.copy_up(stream, of.memory.at(), of.host(), of.bytes()).ok());
  ASSERT_TRUE(device.launch(stream, kernel, 16, 64, &add_call).ok());
  add_call.more = 1000000;  // the arguments were copied at the call
  ASSERT_TRUE(device.wait(stream).ok());
  std::memset(of.host(), 0, of.bytes());
  ASSERT_TRUE(device.copy_down(stream, of.host(), of.memory.at(), of.bytes()).ok());
  ASSERT_TRUE(device.wait(stream).ok());
  for (std::size_t i = 0; i < of.count; ++i) ASSERT_EQ(of.host()[i], 7 * i + 5);
}

TEST_F(DeviceSeam, FillsAndCopiesWithin) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Numbers of(device, 64);
  const Memory other = there(device.memory(of.bytes()));
  ASSERT_TRUE(device.fill(stream, of.memory.at(), 0x11, of.bytes()).ok());
  ASSERT_TRUE(device.copy_within(stream, other.at(), of.memory.at(), of.bytes()).ok());
  ASSERT_TRUE(device.copy_down(stream, of.host(), other.at(), of.bytes()).ok());
  ASSERT_TRUE(device.wait(stream).ok());
  for (std::size_t i = 0; i < of.count; ++i) ASSERT_EQ(of.host()[i], 0x11111111U);
}

// Two streams, with an event between them, and without one: the fake must show the difference.
TEST_F(DeviceSeam, WaitsForEventsOfOtherStreams) {
  bool one_was_early = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const bool waits : {true, false}) {
      if (testing::on_real_gpu() && !waits) continue;  // there it may be in time
      if (!testing::on_real_gpu()) fake_gpu().reset(seed);
      const Device device = open();
      const Stream first = there(device.stream()), second = there(device.stream());
      const Event done = there(device.event());
      const Numbers of(device, 100);
      ASSERT_TRUE(device.copy_up(first, of.memory.at(), of.host(), of.bytes()).ok());
      ASSERT_TRUE(device.record(done, first.handle()).ok());
      ASSERT_TRUE(!waits || device.wait_for(second, done).ok());
      const Pinned back = there(device.pinned(of.bytes()));
      ASSERT_TRUE(device.copy_down(second, back.data(), of.memory.at(), of.bytes()).ok());
      ASSERT_TRUE(device.wait(second).ok());
      const bool same = std::memcmp(back.data(), of.host(), of.bytes()) == 0;
      ASSERT_TRUE(same || !waits) << "seed " << seed;
      one_was_early = one_was_early || (!waits && !same);
      ASSERT_TRUE(device.wait(first).ok());
    }
  EXPECT_TRUE(one_was_early || testing::on_real_gpu());
}

TEST_F(DeviceSeam, EventCompletes) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Event done = there(device.event());
  EXPECT_TRUE(there(device.is_done(done)));  // an event without a record
  const Numbers of(device, 10);
  ASSERT_TRUE(device.copy_up(stream, of.memory.at(), of.host(), of.bytes()).ok());
  ASSERT_TRUE(device.record(done, stream.handle()).ok());
  int asked = 0;
  while (!there(device.is_done(done))) ++asked;
  EXPECT_TRUE(asked > 0 || testing::on_real_gpu());
}

TEST_F(DeviceSeam, AnyThreadCanCall) {
  const Device device = open();
  const auto lane = [&](std::uint8_t own) {
    const Stream stream = there(device.stream());
    const Numbers of(device, 500);
    for (int turn = 0; turn < 20; ++turn) {
      ASSERT_TRUE(device.fill(stream, of.memory.at(), own, of.bytes()).ok());
      ASSERT_TRUE(device.copy_down(stream, of.host(), of.memory.at(), of.bytes()).ok());
      ASSERT_TRUE(device.wait(stream).ok());
      ASSERT_EQ(of.pinned.data()[0], own);
      ASSERT_EQ(of.pinned.data()[of.bytes() - 1], own);
    }
  };
  std::thread other([&] { lane(3); });
  lane(4);
  other.join();
}

// ---- Errors

TEST_F(DeviceSeam, MissingLibraryIsReported) {
  const Result<Driver> none = load_driver("/nowhere/libcuda.so.1");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_NE(none.status().what().find("there is no CUDA driver: "), std::string::npos);
  const Result<Compiler> no_compiler = Compiler::load("/nowhere/libnvrtc.so.12");
  ASSERT_FALSE(no_compiler.ok());
  EXPECT_NE(no_compiler.status().what().find("there is no NVRTC: "), std::string::npos);
  // One that is no driver: another library of this machine.
  const Result<Driver> other = load_driver("libc.so.6");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().what(), "the CUDA driver has no cuInit: install a newer driver");
}

TEST_F(DeviceSeam, OldDriverIsReported) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "its version cannot be set";
  fake_gpu().reset(1);
  fake_gpu().set_version(11080);
  const Result<Driver> old = load_driver(TITHE_FAKE_CUDA);
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.status().code(), Code::kUnsupported);
  EXPECT_EQ(old.status().what(), "the CUDA driver has version 11.8; it must be 12.0 or newer");
}

TEST_F(DeviceSeam, MissingGpuIsReported) {
  const Result<Device> none = Device::open(driver(), 99);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
}

TEST_F(DeviceSeam, ShortMemoryNamesTheBytesAndTheCure) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "its memory is not to be filled";
  fake_gpu().set_memory(1000);
  const Device device = open();
  const Memory some = there(device.memory(400));
  const Result<Memory> more = device.memory(601);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().what(),
            "a fake GPU cannot allocate 601 bytes (600 of 1000 are free): free GPU memory, or run this part "
            "on the host");
  EXPECT_TRUE(device.lost().ok());
  EXPECT_TRUE(device.memory(600).ok());
}

TEST_F(DeviceSeam, InvalidSourceIsRefusedWithTheReason) {
  const Result<std::string> none = compiler().code("this is no program", 90);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kUnsupported);
  EXPECT_NE(none.status().what().find("cannot compile for sm_90: NVRTC_ERROR_COMPILATION: "),
            std::string::npos)
      << none.status().what();
  EXPECT_EQ(none.status().what().find('\n'), std::string::npos);
}

TEST_F(DeviceSeam, CompiledCodeIsCached) {
  const std::string text = std::string(kText) + "// kept\n";
  const std::string first = there(compiler().code(text, 90));
  EXPECT_EQ(there(compiler().code(text, 90)), first);
  EXPECT_NE(there(compiler().code(text, 80)), first);
}

// Each call fails once: the Status names it, nothing leaks, and later calls succeed.
TEST_F(DeviceSeam, FailedCallIsNamed) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "failures cannot be injected into a real driver";
  const Device device = open();
  const Stream stream = there(device.stream());
  const Event event = there(device.event());
  const std::string code = there(compiler().code(kText, device.sm()));
  const Module module = there(device.module(code));
  const Kernel kernel = there(device.kernel(module, "add_to_all"));
  const Numbers of(device, 10);
  const AddCall add_call = {of.memory.at(), of.count, 5};
  ASSERT_TRUE(device.fill(stream, of.memory.at(), 0, of.bytes()).ok());
  const std::pair<const char*, std::function<Status()>> calls[] = {
      {"cuMemAlloc", [&] { return device.memory(8).status(); }},
      {"cuMemHostAlloc", [&] { return device.pinned(8).status(); }},
      {"cuStreamCreate", [&] { return device.stream().status(); }},
      {"cuEventCreate", [&] { return device.event().status(); }},
      {"cuModuleLoadData", [&] { return device.module(code).status(); }},
      {"cuModuleGetFunction", [&] { return device.kernel(module, "add_to_all").status(); }},
      {"cuMemcpyHtoDAsync", [&] { return device.copy_up(stream, of.memory.at(), of.host(), 4); }},
      {"cuMemcpyDtoHAsync", [&] { return device.copy_down(stream, of.host(), of.memory.at(), 4); }},
      {"cuMemcpyDtoDAsync",
       [&] { return device.copy_within(stream, of.memory.at() + 8, of.memory.at(), 4); }},
      {"cuMemsetD8Async", [&] { return device.fill(stream, of.memory.at(), 1, 4); }},
      {"cuLaunchKernel", [&] { return device.launch(stream, kernel, 1, 64, &add_call); }},
      {"cuEventRecord", [&] { return device.record(event, stream.handle()); }},
      {"cuStreamWaitEvent", [&] { return device.wait_for(stream, event); }},
      {"cuEventQuery", [&] { return device.is_done(event).status(); }},
      {"cuStreamSynchronize", [&] { return device.wait(stream); }},
  };
  for (const auto& [name, call] : calls) {
    fake_gpu().fail(name, 1, 1, false);
    const Status failed = call();
    EXPECT_EQ(failed.what(), std::string(name) + ": CUDA_ERROR_INVALID_VALUE");
    EXPECT_EQ(failed.code(), Code::kIo);
    const Status then = call();
    EXPECT_TRUE(then.ok()) << name << ": " << then.what();
  }
  EXPECT_TRUE(device.lost().ok());
  ASSERT_TRUE(device.wait(stream).ok());
}

TEST_F(DeviceSeam, BrokenContextReturnsItsFirstError) {
  if (testing::on_real_gpu()) GTEST_SKIP() << "a context is not broken on purpose";
  expects_problem_ = true;  // objects of a corrupted context are not released
  const Device device = open();
  const Stream stream = there(device.stream());
  const Module module = there(device.module(there(compiler().code(kText, device.sm()))));
  const Kernel kernel = there(device.kernel(module, "add_to_all"));
  const Numbers of(device, 10);
  const AddCall add_call = {of.memory.at(), of.count, 5};
  fake_gpu().fail("kernel", 1, 719, false);
  ASSERT_TRUE(device.launch(stream, kernel, 1, 64, &add_call).ok());  // the error is not detected yet
  const Status broken = device.wait(stream);
  EXPECT_EQ(broken.what(),
            "cuStreamSynchronize: CUDA_ERROR_LAUNCH_FAILED: data on a fake GPU cannot be read back");
  const std::uint64_t calls = fake_gpu().calls();
  EXPECT_EQ(device.memory(1).status().what(), broken.what());
  EXPECT_EQ(device.wait(stream).what(), broken.what());
  EXPECT_EQ(device.lost().what(), broken.what());
  EXPECT_EQ(fake_gpu().calls(), calls);
}

TEST_F(DeviceSeam, ForkedChildDoesNotCallTheDriver) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const ::pid_t child = ::fork();
  if (child == 0) {
    const Status status = device.wait(stream);
    ::_exit(status.code() == Code::kInvalid ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// ---- Properties of the fake. On a real driver these operations are not allowed

class FakeGpu : public DeviceSeam {
 protected:
  void SetUp() override {
    if (testing::on_real_gpu()) GTEST_SKIP() << "the fake's own";
    DeviceSeam::SetUp();
    expects_problem_ = true;
  }
};

TEST_F(FakeGpu, HostAccessToGpuMemoryEndsTheProcess) {
  const Device device = open();
  const Memory memory = there(device.memory(16));
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(memory.at()) = 1, "");
}

TEST_F(FakeGpu, WorkIsDelayedUntilWaitedFor) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Numbers of(device, 4);
  const std::uint32_t before = of.host()[1];
  ASSERT_TRUE(device.copy_up(stream, of.memory.at(), of.host(), of.bytes()).ok());
  of.host()[1] = 1234;  // too early: the copy up has not read it
  const Pinned back = there(device.pinned(of.bytes()));
  std::memset(back.data(), 0, of.bytes());
  ASSERT_TRUE(device.copy_down(stream, back.data(), of.memory.at(), of.bytes()).ok());
  EXPECT_NE(std::memcmp(back.data(), of.host(), of.bytes()), 0);
  EXPECT_NE(back.data()[0], 0) << "the target of a copy is poison until it is done";
  ASSERT_TRUE(device.wait(stream).ok());
  std::uint32_t got = 0;
  std::memcpy(&got, back.data() + 4, 4);
  EXPECT_EQ(got, 1234U);
  EXPECT_NE(got, before);
}

TEST_F(FakeGpu, ArgumentsAreChecked) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Numbers of(device, 4);
  std::uint32_t not_pinned = 0;
  EXPECT_FALSE(device.copy_up(stream, of.memory.at(), of.host(), of.bytes() + 1).ok());
  EXPECT_FALSE(device.copy_up(stream, of.memory.at() + 1, of.host(), of.bytes()).ok());
  EXPECT_FALSE(device.copy_down(stream, &not_pinned, of.memory.at(), 4).ok());
  EXPECT_FALSE(device.fill(stream, 0, 0, 4).ok());
  const Module module = there(device.module(there(compiler().code(kText, device.sm()))));
  const Kernel kernel = there(device.kernel(module, "add_to_all"));
  AddCall add_call = {of.memory.at(), of.count, 5};
  EXPECT_FALSE(device.launch(stream, kernel, 0, 64, &add_call).ok());
  EXPECT_FALSE(device.launch(stream, kernel, 1, 128, &add_call).ok());
  add_call.at = reinterpret_cast<Address>(of.host());
  EXPECT_FALSE(device.launch(stream, kernel, 1, 64, &add_call).ok());
  add_call.at = of.memory.at() + 4096;
  EXPECT_FALSE(device.launch(stream, kernel, 1, 64, &add_call).ok());
  EXPECT_FALSE(device.module("not code").ok());
  EXPECT_FALSE(device.kernel(module, "no_such_kernel").ok());
  EXPECT_STREQ(fake_gpu().problem(), "a copy up to where nothing is alive");
}

TEST_F(FakeGpu, EarlyFreeIsDetected) {
  const Device device = open();
  const Stream stream = there(device.stream());
  {
    const Memory memory = there(device.memory(16));
    ASSERT_TRUE(device.fill(stream, memory.at(), 0, 16).ok());
  }
  EXPECT_STREQ(fake_gpu().problem(), "memory is given back while work is pending in it");
}

// A kernel that writes past its numbers, by one or by a page.
TEST_F(FakeGpu, WritesPastTheEndAreDetected) {
  const Device device = open();
  const Stream stream = there(device.stream());
  const Module module = there(device.module(there(compiler().code(kText, device.sm()))));
  const Kernel kernel = there(device.kernel(module, "add_to_all"));
  {
    const Numbers of(device, 10);
    const AddCall add_call = {of.memory.at(), of.count + 1, 5};
    ASSERT_TRUE(device.launch(stream, kernel, 1, 64, &add_call).ok());
    ASSERT_TRUE(device.wait(stream).ok());
  }
  EXPECT_STREQ(fake_gpu().problem(), "something was written behind a piece of memory");
  const auto write_a_page_further = [] {
    const Device own = open();  // a child's
    const Stream its = there(own.stream());
    const Module code = there(own.module(there(compiler().code(kText, own.sm()))));
    const Numbers of(own, 10);
    const AddCall add_call = {of.memory.at(), 2048, 5};
    static_cast<void>(own.launch(its, there(own.kernel(code, "add_to_all")), 32, 64, &add_call));
    static_cast<void>(own.wait(its));
  };
  EXPECT_DEATH(write_a_page_further(), "");
}

}  // namespace
}  // namespace tithe::device
