// SPDX-License-Identifier: Apache-2.0
// Programs through the device seam, on a driver without a GPU (tests/support/gpu/fake_gpu.h): bytes, residuals and
// values are the interpreter's. TITHE_TEST_GPU=real takes a real one.
#include "lang/cuda/device_program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>
#include <thread>

#include "conformance/codec_case.h"
#include "lang/loader.h"
#include "support/codec_run.h"
#include "support/gpu/cubin.h"
#include "support/gpu/gpu_values.h"
#include "support/kernel_programs.h"

namespace tithe::lang {
namespace {

using harness::Data;
using harness::Floats;
using harness::Payload;
using testing::fake_gpu;
using testing::Made;
using testing::OnGpu;
using testing::Program;
using testing::there;

// A program and its lane, with the calls that tests make.
struct Running {
  Running(const device::Device& on, const device::Compiler& compiler, const Program& of)
      : made(of),
        phase(of.phase),
        combination(&made.program->of(made.settings, phase)),
        lane(there(DeviceLane::open(on))),
        program(there(DeviceProgram::make(on, compiler, *combination, made.settings))) {}

  Call call() const {
    return {.settings = made.settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  }

  Made made;
  std::size_t phase;
  const Combination* combination;
  DeviceLane lane;
  std::unique_ptr<DeviceProgram> program;
};

class Programs : public testing::GpuTest, public ::testing::WithParamInterface<Program> {};
class FirstPhases : public Programs {};

// The verification that also runs on a user's GPU.
TEST_P(Programs, MatchTheInterpreter) {
  const device::Device device = open();
  const Made made(GetParam());
  const OnDevice got =
      on_device(device, compiler(), made.program->of(made.settings, GetParam().phase), made.settings);
  EXPECT_EQ(got.how, fmt::format("on a GPU, {}, verified against the interpreter", device.name()));
  EXPECT_NE(got.program, nullptr);
}

// First phases, of all sizes and kinds of values: feedback none and residual, apart and in place; several payloads.
TEST_P(FirstPhases, WriteTheBytesOfTheInterpreter) {
  const device::Device device = open();
  Running r(device, compiler(), GetParam());
  const Codec& codec = r.made.codec();
  const Impl& impl = codec.reference();
  Call call = r.call();
  const bool decodes = codec.phases.size() == 1;
  unsigned turn = 0;
  for (const std::size_t n : conformance::kSizes)
    for (const Data data : conformance::data_for(n)) {
      const bool feedback = ++turn % 3 != 0, in_place = turn % 3 == 1 && decodes;
      SCOPED_TRACE(::testing::Message() << n << " values, " << harness::name(data)
                                        << (in_place   ? ", a residual in place"
                                            : feedback ? ", a residual"
                                                       : ""));
      const Floats grad = harness::values(data, n, 1), residual = harness::values(data, n, 2);
      const float* before = feedback ? residual.data() : nullptr;
      const ScratchForTest scratch(codec, call.settings, n);
      call.scratch = scratch;
      const std::size_t bound = codec.phases[0].bound(call.settings, n);
      Payload want(bound);
      Floats left(n), out(n);
      const Result<Encoded> done =
          impl.encode(call, {grad.data(), before, decodes ? left.data() : nullptr, n}, want);
      ASSERT_TRUE(done.ok()) << done.status().what();
      want.resize(done->bytes);

      const OnGpu values(r.lane, grad), kept(r.lane, residual), to(r.lane, Floats(n, 99.0F));
      const device::Pinned payload = there(device.pinned(bound));
      const device::Address leave = !decodes ? 0 : in_place ? kept.memory.at() : to.memory.at();
      const Result<Encoded> got = r.program->encode(
          r.lane, "test", call, {values.memory.at(), feedback ? kept.memory.at() : 0, leave, n},
          {payload.data(), bound});
      ASSERT_TRUE(got.ok()) << got.status().what();
      ASSERT_EQ(got->finite, done->finite);
      if (!done->finite) continue;
      ASSERT_EQ(harness::first_difference(Payload(payload.data(), payload.data() + got->bytes), want), "");
      if (!decodes) continue;
      ASSERT_EQ(harness::first_difference(in_place ? kept.read() : to.read(), left), "");

      const std::vector<ByteView> views(turn % 4 + 1, ByteView(want));
      const Merge merge = {.base = before, .divide = turn % 2 == 0 ? 1.0F : 3.0F};
      ASSERT_TRUE(impl.decode(call, views, merge, out).ok());
      const OnGpu base(r.lane, residual), result(r.lane, Floats(n, 99.0F));
      const std::vector<ByteView> pinned(views.size(), ByteView(payload.data(), got->bytes));
      const Status decoded =
          r.program->decode(r.lane, "test", call, pinned, {feedback ? base.memory.at() : 0, merge.divide},
                            result.memory.at(), n);
      ASSERT_TRUE(decoded.ok()) << decoded.what();
      ASSERT_EQ(harness::first_difference(result.read(), out), "");
    }
  // A non-finite value is reported as by the interpreter.
  for (const std::size_t at : {0, 33, 1999}) {
    Floats wrong(2000, 0.5F);
    wrong[at] = at == 33 ? NAN : INFINITY;
    const ScratchForTest scratch(codec, call.settings, wrong.size());
    call.scratch = scratch;
    const std::size_t bound = codec.phases[0].bound(call.settings, wrong.size());
    Payload want(bound);
    const Result<Encoded> done = impl.encode(call, {wrong.data(), nullptr, nullptr, wrong.size()}, want);
    const OnGpu values(r.lane, wrong);
    const device::Pinned payload = there(device.pinned(bound));
    const Result<Encoded> got = r.program->encode(
        r.lane, "test", call, {values.memory.at(), 0, 0, wrong.size()}, {payload.data(), bound});
    ASSERT_EQ(got.ok(), done.ok());
    ASSERT_EQ(got.status().code(), done.status().code());
    ASSERT_TRUE(!got.ok() || got->finite == done->finite);
  }
}

// NVIDIA's compiler, if installed, accepts the text, no operation is compiled with other rounding, and a thread's
// numbers are in registers. Programs
// alternate between sm_80 and sm_90, with `make test-full` both: the text does not depend on it.
class ProgramsForGpus : public ::testing::TestWithParam<Program> {};
TEST_P(ProgramsForGpus, AreAcceptedByNvrtc) {
  const Result<device::Compiler>& compiler = testing::nvrtc_here();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  const Made made(GetParam());
  const std::string text = device_text(made.program->of(made.settings, GetParam().phase));
  static int turn = 0;
  const int first = turn++ % 2 == 0 ? 80 : 90;
  for (const int sm : harness::full_products() ? std::vector{80, 90} : std::vector{first}) {
    const Result<std::string> ptx = compiler->ptx(text, sm);
    ASSERT_TRUE(ptx.ok()) << ptx.status().what();
    EXPECT_NE(ptx->find(".entry tithe_plan_encode"), std::string::npos);
    for (const char* rounds : {"fma.rn", "mad.rn", ".ftz", ".approx"})
      EXPECT_EQ(ptx->find(rounds), std::string::npos) << rounds;
    const Result<std::string> code = compiler->code(text, sm);
    ASSERT_TRUE(code.ok()) << code.status().what();
    testing::expect_registers_only(*code);
  }
}

// Each program with the settings that it has first; with all settings in `make test-full`.
std::vector<Program> programs() {
  std::vector<Program> some;
  std::set<std::pair<std::string, std::size_t>> known;
  for (const Program& program : testing::with_kernels())
    if (known.emplace(program.file, program.phase).second || harness::full_products())
      some.push_back(program);
  return some;
}
std::vector<Program> first_phases() {
  std::vector<Program> some = programs();
  std::erase_if(some, [](const Program& program) { return program.phase > 0; });
  return some;
}
std::string name_of(const ::testing::TestParamInfo<Program>& of) {
  std::string file = of.param.file;
  std::replace(file.begin(), file.end(), '/', '_');
  return fmt::format("{}_{}_{}", of.index, file, of.param.phase);
}
INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(programs()), name_of);
INSTANTIATE_TEST_SUITE_P(All, FirstPhases, ::testing::ValuesIn(first_phases()), name_of);
INSTANTIATE_TEST_SUITE_P(All, ProgramsForGpus, ::testing::ValuesIn(programs()), name_of);

// ---- Errors

class DeviceProgramSuite : public testing::GpuTest {
 protected:
  void SetUp() override {
    if (testing::on_real_gpu()) GTEST_SKIP() << "failures cannot be injected into a real driver";
    GpuTest::SetUp();
  }
  static constexpr Program kOnebit = {"onebit", ""};
};

TEST_F(DeviceProgramSuite, CodeOfAnotherCompilerFallsBackToTheHost) {
  const device::Device device = open();
  const Made made(kOnebit);
  // A compiler that replaces a subtraction by an addition.
  ::setenv("FAKE_NVRTC_SPOILS", "sub(x[k], sent[k])=add(x[k], sent[k])", 1);
  ::setenv("TITHE_CACHE", "/proc/none", 1);
  const Result<device::Compiler> spoils = device::Compiler::load(TITHE_FAKE_NVRTC);
  const OnDevice got = on_device(device, spoils, made.program->of(made.settings), made.settings);
  ::unsetenv("FAKE_NVRTC_SPOILS");
  ::unsetenv("TITHE_CACHE");
  EXPECT_EQ(got.program, nullptr);
  EXPECT_EQ(got.how, "on the host: the results of a fake GPU differ from the interpreter's");
}

TEST_F(DeviceProgramSuite, MissingPartsAreNamedInOneLine) {
  const Made made(kOnebit);
  const Combination& of = made.program->of(made.settings);
  const device::Device device = open();
  const Result<device::Device> none = Status(Code::kUnsupported, "there is no CUDA driver: not here");
  EXPECT_EQ(on_device(none, compiler(), of, made.settings).how,
            "on the host: there is no CUDA driver: not here");
  const std::string how =
      on_device(device, device::Compiler::load("/nowhere/libnvrtc.so.12"), of, made.settings).how;
  EXPECT_EQ(how.rfind("on the host: there is no NVRTC: ", 0), 0U) << how;
  const Made other(Program{"scalecom", ""});
  EXPECT_EQ(on_device(device, compiler(), other.program->of(other.settings, 0), other.settings).how,
            "on the host: tithe generates no kernels for a list that is agreed on in phases");
}

// A driver that fails at one call: encode and decode report it, release everything, and work afterwards.
TEST_F(DeviceProgramSuite, FailuresAreReportedAndFallBackToTheHost) {
  const Floats grad = harness::values(Data::kHeavy, 5000, 1);
  const std::size_t n = grad.size();
  std::optional<Payload> first;
  unsigned failed = 0;
  for (unsigned nth = 1;; ++nth) {
    fake_gpu().reset(nth);
    const device::Device device = open();
    Running r(device, compiler(), kOnebit);
    const std::size_t bound = r.made.codec().phases[0].bound(r.made.settings, n);
    const OnGpu values(r.lane, grad), left(r.lane, n), out(r.lane, n);
    const device::Pinned payload = there(device.pinned(bound));
    const auto both = [&]() -> Status {
      const Result<Encoded> done = r.program->encode(
          r.lane, "test", r.call(), {values.memory.at(), 0, left.memory.at(), n}, {payload.data(), bound});
      if (!done.ok()) return done.status();
      const ByteView own[] = {{payload.data(), done->bytes}};
      TITHE_TRY(r.program->decode(r.lane, "test", r.call(), own, {0, 3}, out.memory.at(), n));
      const Payload bytes(payload.data(), payload.data() + done->bytes);
      if (!first) first = bytes;
      EXPECT_EQ(*first, bytes);
      return {};
    };
    fake_gpu().fail("*", nth, 1, false);
    const std::uint64_t calls = fake_gpu().calls();
    const Status status = both();
    if (fake_gpu().calls() - calls < nth) break;  // it needs no more calls than that
    EXPECT_EQ(status.code(), Code::kIo);
    EXPECT_NE(status.what().find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << status.what();
    failed += status.ok() ? 0U : 1U;
    const Status again = both();
    EXPECT_TRUE(again.ok()) << again.what();
    EXPECT_STREQ(fake_gpu().problem(), "");
  }
  EXPECT_GT(failed, 30U);
  fake_gpu().reset(1);
}

TEST_F(DeviceProgramSuite, FailedSelfCheckFallsBackToTheHost) {
  const Made made(kOnebit);
  const Combination& of = made.program->of(made.settings);
  for (const char* call :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuMemAlloc", "cuMemHostAlloc", "cuLaunchKernel",
        "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuStreamSynchronize", "cuStreamCreate"}) {
    fake_gpu().reset(1);
    const device::Device device = open();
    fake_gpu().fail(call, 1, 1, true);
    const OnDevice got = on_device(device, compiler(), of, made.settings);
    EXPECT_EQ(got.program, nullptr);
    EXPECT_EQ(got.how, fmt::format("on the host: {}: CUDA_ERROR_INVALID_VALUE", call));
  }
}

TEST_F(DeviceProgramSuite, ShortMemoryFallsBackToTheHost) {
  const Made made(kOnebit);
  const device::Device device = open();
  fake_gpu().set_memory(10000);
  const OnDevice got = on_device(device, compiler(), made.program->of(made.settings), made.settings);
  EXPECT_EQ(got.program, nullptr);
  EXPECT_NE(got.how.find(" cannot allocate "), std::string::npos) << got.how;
}

// Lanes of several threads share a program.
TEST_F(DeviceProgramSuite, LanesShareIt) {
  const Floats grad = harness::values(Data::kHeavy, 5000, 1);
  const device::Device device = open();
  Running r(device, compiler(), kOnebit);
  const std::size_t n = grad.size(), bound = r.made.codec().phases[0].bound(r.made.settings, n);
  std::vector<Payload> got(3);
  std::vector<std::thread> threads;
  for (Payload& to : got)
    threads.emplace_back([&] {
      DeviceLane lane = there(DeviceLane::open(device));
      const OnGpu values(lane, grad), left(lane, n);
      const device::Pinned payload = there(device.pinned(bound));
      for (int turn = 0; turn < 5; ++turn) {
        const Result<Encoded> done = r.program->encode(
            lane, "test", r.call(), {values.memory.at(), 0, left.memory.at(), n}, {payload.data(), bound});
        ASSERT_TRUE(done.ok()) << done.status().what();
        to.assign(payload.data(), payload.data() + done->bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got[0].size(), bound);
  EXPECT_EQ(got[0], got[1]);
  EXPECT_EQ(got[0], got[2]);
}

}  // namespace
}  // namespace tithe::lang
