// SPDX-License-Identifier: Apache-2.0
// Programs as CUDA kernels: nvcc accepts them, and emulated on a CPU they match the interpreter.
#include "lang/cuda/emit_cuda.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "conformance/codec_case.h"
#include "lang/loader.h"
#include "support/emulated_kernels.h"
#include "support/grid_on_cpu.h"

namespace tithe::lang {
namespace {

using harness::Data;
using harness::Floats;
using harness::Payload;
using testing::decoded;
using testing::EmulatedKernels;
using testing::encoded;
using testing::Functions;
using testing::kOnce;
using testing::Made;
using testing::Outcome;
using testing::Program;
using testing::TestCall;
using testing::with_kernels;

// Three ranks' payloads, each with the same values, where such payloads combine.
Payload combined(const Codec& codec, const Call& call, std::size_t n, const Payload& own) {
  Payload all = own;
  for (int rank = 1; rank < 3 && codec.phases[call.phase].combines(); ++rank)
    EXPECT_TRUE(codec.reference().combine(call, n, all, own, nullptr).ok());
  return all;
}

// The context from the phases before `phase`.
Payload context_before(const Codec& codec, Call call, std::size_t phase, const Floats& grad,
                       const float* residual) {
  Payload context;
  for (std::size_t p = 0; p < phase; ++p) {
    call.phase = static_cast<std::uint8_t>(p);
    call.context = context;
    Payload own(codec.phases[p].bound(call.settings, grad.size()));
    const ScratchForTest scratch(codec, call.settings, grad.size());
    call.scratch = scratch;
    const Result<Encoded> done =
        codec.reference().encode(call, {grad.data(), residual, nullptr, grad.size()}, own);
    call.scratch = {};
    EXPECT_TRUE(done.ok()) << done.status().what();
    if (!done.ok() || !done->finite) return {};
    own.resize(done->bytes);
    context = combined(codec, call, grad.size(), own);
  }
  return context;
}

class Kernels : public ::testing::TestWithParam<Program> {};
TEST_P(Kernels, WriteTheBytesOfTheInterpreter) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << "not emulated: " << compiler.status().what();
  EmulatedKernels kernels(GetParam());
  const Status built = kernels.compile(*compiler);
  ASSERT_TRUE(built.ok()) << built.what();
  const Functions of = kernels.functions();
  const std::size_t phase = kernels.phase;
  const Combination& combination = kernels.combination();
  const Codec& codec = kernels.made.codec();
  ASSERT_TRUE(of.scratch != nullptr && of.encode != nullptr);
  ASSERT_EQ(of.decode != nullptr, phase + 1 == codec.phases.size());
  const Impl& impl = codec.reference();
  Call call{
      .settings = kernels.made.settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  unsigned order = 0;
  for (const std::size_t n : conformance::kSizes)
    for (const Data data : conformance::data_for(n))
      for (const bool feedback : {false, true}) {
        order = (order + 1) % 5;
        SCOPED_TRACE(::testing::Message() << n << " values, " << harness::name(data) << ", order " << order
                                          << (feedback ? ", with a residual" : "")
                                          << (feedback && order == 3 ? ", in place" : ""));
        const Floats grad = conformance::values(data, n, 1), residual = conformance::values(data, n, 2);
        const float* before = feedback ? residual.data() : nullptr;
        call.context = {};
        const Payload context = context_before(codec, call, phase, grad, before);
        if (phase > 0 && context.empty()) continue;
        call.phase = static_cast<std::uint8_t>(phase);
        call.context = context;
        const ScratchForTest scratch(codec, call.settings, n);
        call.scratch = scratch;
        const std::size_t bound = codec.phases[phase].bound(call.settings, n);
        Payload want(bound);
        Floats left(n), out(n);
        const Result<Encoded> done =
            impl.encode(call, {grad.data(), before, of.decode != nullptr ? left.data() : nullptr, n}, want);
        ASSERT_TRUE(done.ok()) << done.status().what();
        TestCall test_call(of, combination, call, n);
        const bool in_place = feedback && order == 3 && of.decode != nullptr;
        const Outcome got = encoded(of, test_call, bound, grad, before, in_place, order);
        ASSERT_EQ(got.answer[0] == 0, done->finite);
        if (!done->finite) continue;
        want.resize(done->bytes);
        ASSERT_EQ(got.answer, std::vector<std::uint32_t>(got.answer.size()));
        ASSERT_EQ(harness::first_difference(got.payload, want), "");
        if (of.decode == nullptr) continue;
        ASSERT_EQ(harness::first_difference(got.residual_out, left), "");
        const Payload all = combined(codec, call, n, want);
        const std::vector<ByteView> views{ByteView(all)};
        ASSERT_TRUE(impl.decode(call, views, {.base = before}, out).ok());
        ASSERT_EQ(harness::first_difference(decoded(of, test_call, all, before, order), out), "");
      }
  // A non-finite value is reported at any position.
  Floats grad(2000, 0.5F);
  call.context = {};
  const Payload context = context_before(codec, call, phase, grad, nullptr);
  call.phase = static_cast<std::uint8_t>(phase);
  call.context = context;
  TestCall test_call(of, combination, call, grad.size());
  for (const std::size_t at : {0, 33, 1999}) {
    Floats wrong = grad;
    wrong[at] = at == 33 ? NAN : INFINITY;
    const std::size_t bound = codec.phases[phase].bound(call.settings, grad.size());
    EXPECT_NE(encoded(of, test_call, bound, wrong, nullptr, false, 0).answer[0], 0U) << at;
  }
}

// Compiles for two GPU generations, without fused or approximate operations, which would round differently, without
// spills, and with registers for at least 512 threads per multiprocessor; the launched text is compiled by another
// compiler (device_program_test.cc).
class KernelsForGpus : public ::testing::TestWithParam<Program> {};
TEST_P(KernelsForGpus, AreAcceptedByNvcc) {
  if (std::system("command -v nvcc > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "not compiled for a GPU: there is no nvcc here";
  const EmulatedKernels kernels(GetParam());
  std::ofstream(kernels.folder + "/k.cu") << cuda_file(kernels.made.kernels());
  for (const char* generation : {"sm_80", "sm_90"}) {
    const std::string command = fmt::format(
        "cd {} && nvcc -std=c++17 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true --keep -Xptxas -v "
        "-arch={} "
        "-cubin -o k.cubin k.cu > output 2>&1",
        kernels.folder, generation);
    const int status = std::system(command.c_str());
    const std::string output = testing::read_file(kernels.folder + "/output");
    ASSERT_EQ(status, 0) << output;
    for (const auto& [name, most] : {std::pair("Used ", 128), std::pair(" bytes stack frame, ", 0)})
      for (std::size_t at = output.find(name); at != std::string::npos; at = output.find(name, at + 1))
        EXPECT_LE(std::atoi(output.c_str() + at + std::strlen(name)), most)
            << generation << ", " << output.substr(at, 60);
    const std::string ptx = testing::read_file(kernels.folder + "/k.ptx");
    EXPECT_NE(ptx.find(".entry tithe_"), std::string::npos);
    for (const char* rounds : {"fma.rn.f32", "fma.rn.f64", "mad.rn.f32", ".ftz.f32", ".approx"})
      EXPECT_EQ(ptx.find(rounds), std::string::npos) << rounds;
  }
}

// All phases of each program, with the settings that it has first; with all settings in `make test-full`.
std::vector<Program> for_gpus() {
  std::vector<Program> some;
  for (const Program& program : with_kernels()) {
    const bool same = !some.empty() && std::string(some.back().file) == program.file;
    if (!same || (harness::full_products() && std::string(some.back().settings) != program.settings))
      some.push_back(program);
  }
  return some;
}

std::string name_of(const ::testing::TestParamInfo<Program>& of) {
  std::string file = of.param.file;
  std::replace(file.begin(), file.end(), '/', '_');
  if (of.param.phase > 0) file += "_" + std::to_string(of.param.phase);
  return std::to_string(of.index) + "_" + file;
}
INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(with_kernels()), name_of);
INSTANTIATE_TEST_SUITE_P(All, KernelsForGpus, ::testing::ValuesIn(for_gpus()), name_of);

// Threads that write one number in one phase: the result depends on the order of threads, so reordering detects it.
namespace race {
enum { kThreads = 8 };
struct Call {
  std::uint64_t n;
  unsigned* out;
};
struct Shared {
  unsigned last;
};
struct Nothing {};
std::uint64_t everywhere(std::uint64_t) { return ~std::uint64_t{0}; }
void write(const Call*, Shared& s, std::uint64_t, unsigned thread) { s.last = thread; }
void tell(const Call* call, Shared& s, std::uint64_t at, unsigned thread) {
  if (thread == 0) call->out[at] = s.last;
}
// As in prelude_cuda_bytes.h, without a batch.
typedef Call Argument;
#define FIND_CALLS(argument, place) const uint64_t block = place;
#define ONE_CALL(argument)
#define THIS_CALL(argument) argument
GRID(kernel, Shared, Nothing, kThreads, everywhere, ONE_CALL, PHASE(write) PHASE(tell))
#undef FIND_CALLS
#undef ONE_CALL
#undef THIS_CALL

unsigned last(unsigned order) {
  unsigned out[2] = {};
  const Call of{.n = 2, .out = out};
  const Call* const call = &of;
  const Stream stream = order;
  LAUNCH(kernel, 2);
  EXPECT_EQ(out[0], out[1]);
  return out[0];
}
}  // namespace race

TEST(KernelChecks, RacesAreDetected) {
  EXPECT_EQ(race::last(0), 7U);
  EXPECT_EQ(race::last(1), 0U);
  EXPECT_NE(race::last(2), 7U);
}

// A program without kernels has a one-line reason.
TEST(KernelChecks, UnsupportedProgramsAreReported) {
  for (const Program& program :
       {Program{"topk", "indices=delta"}, Program{"dgc", "values=8bit"}, Program{"threshold", "values=4bit"},
        Program{"examples/top_signs", ""}, Program{"examples/median", ""}, Program{"examples/octaves", ""},
        Program{"examples/pulses", ""}, Program{"scalecom", ""}, Program{"scalecom", "", 1},
        Program{"whole", "", 0, kOnce}}) {
    const Made made(program);
    const char* why = no_kernels(made.program->of(made.settings, program.phase), made.settings);
    ASSERT_NE(why, nullptr) << program.file;
    EXPECT_EQ(std::string(why).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tithe::lang
