// SPDX-License-Identifier: Apache-2.0
// Programs as CUDA kernels: nvcc accepts them, and on a processor, thread by thread, they do what the interpreter does.
// No GPU has run them.
#include "lang/emit_cuda.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/rng.h"
#include "conformance/codec_case.h"
#include "lang/cpp_compiler.h"
#include "lang/loader.h"
#include "support/codec_run.h"
#include "support/grid_on_cpu.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;
using harness::Data;
using harness::Floats;
using harness::Payload;

// As lang/prelude_cuda_bytes.cc has it.
struct KernelCall {
  double settings[kMaxParams];
  std::uint64_t n, key, shared_key;
  const float *grad, *residual;
  float* left;
  std::uint8_t* payload;
  std::uint64_t payload_bytes;
  const float* base;
  float* out;
  std::uint64_t* bytes;
  std::uint32_t* answer;
  std::uint8_t* scratch;
  void* within[11];
};
using Kernel = void (*)(const KernelCall*, unsigned order);
using Size = std::uint64_t (*)(const KernelCall*);

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Program {
  const char* file;
  const char* settings;
};
constexpr Program kPrograms[] = {
#define TITHE_PROGRAM(file, settings, spec) {#file, settings},
#include "../../codecs/programs.def"
#undef TITHE_PROGRAM
    {"adacomp", ""}, {"threelc", ""}, {"examples/farthest", ""}};

Spec spec_of(const Program& program) {
  std::string text = std::string(TITHE_SOURCE_DIR "/codecs/") + program.file + ".codec";
  if (*program.settings != 0) text += std::string(":") + program.settings;
  return harness::spec_of(text);
}
const Combination& combination_of(const Spec& spec) { return program_of(*spec.codec)->of(spec.settings); }

std::vector<Program> with_kernels() {
  std::vector<Program> some;
  for (const Program& program : kPrograms)
    if (const Spec spec = spec_of(program); no_kernels(combination_of(spec), spec.settings) == nullptr)
      some.push_back(program);
  return some;
}

class Kernels : public ::testing::TestWithParam<Program> {
 protected:
  void SetUp() override {
    std::string folder = fs::temp_directory_path() / "tithe_kernels_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    spec_ = spec_of(GetParam());
    text_ = cuda_file(combination_of(spec_));
  }
  void TearDown() override {
    if (object_ != nullptr) ::dlclose(object_);
    fs::remove_all(folder_);
  }

  // The text as a shared object for this processor.
  Status compile(const Compiler& compiler) {
    const std::string include = "#include \"grid_on_cpu.h\"";
    const std::size_t at = text_.find(include);
    EXPECT_NE(at, std::string::npos);
    std::string text = text_;
    text.replace(at, include.size(), read(TITHE_SOURCE_DIR "/tests/support/grid_on_cpu.h"));
    TITHE_TRY(compile_cpp(compiler, text, "", folder_, "kernels"));
    object_ = ::dlopen((folder_ / "kernels.new").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object_ == nullptr) return {Code::kIo, ::dlerror()};
    return {};
  }
  template <typename F>
  F function(const char* name) const {
    return reinterpret_cast<F>(::dlsym(object_, name));
  }

  fs::path folder_;
  Spec spec_;
  std::string text_;
  void* object_ = nullptr;
};

constexpr std::uint8_t kUntouched = 0xee;
constexpr std::size_t kPast = 16;  // bytes behind a payload that nobody may write

// One call of the kernels, in some order of blocks and threads.
struct Outcome {
  Payload payload;
  Floats left, out;
  std::vector<std::uint32_t> answer;
};

Outcome run(Size scratch_of, Kernel encode, Kernel decode, const Codec& codec, const Call& call,
            const Floats& grad, const float* residual, bool in_place, unsigned order) {
  const std::size_t n = grad.size(), bound = codec.phases[0].bound(call.settings, n);
  Outcome o{.payload = Payload(bound + kPast, kUntouched),
            .left = Floats(n),
            .out = Floats(n),
            .answer = std::vector<std::uint32_t>(33)};
  std::uint64_t bytes = 0;
  const auto key = [&](std::uint64_t seed) { return rng_key(seed, call.round, call.tensor, call.chunk, 0); };
  KernelCall kernel{.settings = {},
                    .n = n,
                    .key = key(call.seed),
                    .shared_key = key(call.shared_seed),
                    .grad = grad.data(),
                    .residual = residual,
                    .left = o.left.data(),
                    .payload = o.payload.data(),
                    .payload_bytes = 0,
                    .base = residual,
                    .out = o.out.data(),
                    .bytes = &bytes,
                    .answer = o.answer.data(),
                    .scratch = nullptr,
                    .within = {}};
  if (in_place) {
    std::copy_n(residual, n, o.left.begin());
    kernel.residual = o.left.data();
  }
  std::copy(call.settings.value.begin(), call.settings.value.end(), kernel.settings);
  std::vector<std::uint64_t> scratch(scratch_of(&kernel) / 8 + 1, 0xcdcdcdcdcdcdcdcdU);
  kernel.scratch = reinterpret_cast<std::uint8_t*>(scratch.data());
  encode(&kernel, order);
  EXPECT_LE(bytes, bound);
  for (std::size_t k = bytes; k < o.payload.size(); ++k) EXPECT_EQ(o.payload[k], kUntouched) << k;
  o.payload.resize(std::min<std::size_t>(bytes, bound));
  kernel.payload = o.payload.data();
  kernel.payload_bytes = bytes;
  if (o.answer[0] == 0) decode(&kernel, order);
  return o;
}

TEST_P(Kernels, WriteTheBytesOfTheInterpreter) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << "not emulated: " << compiler.status().what();
  const Status made = compile(*compiler);
  ASSERT_TRUE(made.ok()) << made.what();
  const auto encode = function<Kernel>("tithe_encode"), decode = function<Kernel>("tithe_decode");
  const auto scratch_of = function<Size>("tithe_scratch");
  ASSERT_TRUE(encode != nullptr && decode != nullptr && scratch_of != nullptr);
  const Impl& impl = spec_.codec->reference();
  const Call call{
      .settings = spec_.settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
  unsigned order = 0;
  for (const std::size_t n : conformance::kSizes)
    for (const Data data : conformance::data_for(n))
      for (const bool feedback : {false, true}) {
        order = (order + 1) % 5;
        SCOPED_TRACE(::testing::Message() << n << " values, " << harness::name(data) << ", order " << order
                                          << (feedback ? ", with a residual" : "")
                                          << (feedback && order == 3 ? ", in place" : ""));
        const Floats grad = harness::values(data, n, 1), residual = harness::values(data, n, 2);
        const float* before = feedback ? residual.data() : nullptr;
        Payload want(spec_.codec->phases[0].bound(spec_.settings, n));
        Floats left(n), out(n);
        const Result<Encoded> done = impl.encode(call, {grad.data(), before, left.data(), n}, want);
        ASSERT_TRUE(done.ok()) << done.status().what();
        const Outcome got =
            run(scratch_of, encode, decode, *spec_.codec, call, grad, before, feedback && order == 3, order);
        ASSERT_EQ(got.answer[0] == 0, done->finite);
        if (!done->finite) continue;
        want.resize(done->bytes);
        ASSERT_EQ(got.answer, std::vector<std::uint32_t>(got.answer.size()));
        ASSERT_EQ(harness::first_difference(got.payload, want), "");
        ASSERT_EQ(harness::first_difference(got.left, left), "");
        const std::vector<ByteView> views{ByteView(want)};
        ASSERT_TRUE(impl.decode(call, views, {.base = before}, out).ok());
        ASSERT_EQ(harness::first_difference(got.out, out), "");
      }
  // A value that is not finite is told of, wherever it stands.
  for (const std::size_t at : {0, 33, 1999}) {
    Floats grad(2000, 0.5F);
    grad[at] = at == 33 ? NAN : INFINITY;
    EXPECT_NE(run(scratch_of, encode, decode, *spec_.codec, call, grad, nullptr, false, 0).answer[0], 0U)
        << at;
  }
}

// Compiled for what two generations of GPUs run, and without a fused or an approximate operation, which would round
// otherwise.
class KernelsForGpus : public Kernels {};
TEST_P(KernelsForGpus, AreAcceptedByNvcc) {
  if (std::system("command -v nvcc > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "not compiled for a GPU: there is no nvcc here";
  std::ofstream(folder_ / "k.cu") << text_;
  const std::string command =
      "cd " + folder_.string() +
      " && nvcc -std=c++17 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true --keep "
      "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -c -o k.o k.cu > said 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read(folder_ / "said");
  std::size_t texts = 0, codes = 0;
  for (const auto& file : fs::directory_iterator(folder_)) {
    codes += file.path().extension() == ".cubin" ? 1U : 0U;
    if (file.path().extension() != ".ptx") continue;
    ++texts;
    const std::string ptx = read(file.path());
    EXPECT_NE(ptx.find(".entry tithe_"), std::string::npos);
    for (const char* rounds : {"fma.rn.f32", "fma.rn.f64", "mad.rn.f32", ".ftz.f32", ".approx"})
      EXPECT_EQ(ptx.find(rounds), std::string::npos) << rounds << " in " << file.path().filename();
  }
  EXPECT_EQ(texts, 2U);
  EXPECT_EQ(codes, 2U);
}

// Of each program, with the settings that it has first; of all settings in `make test-full`.
std::vector<Program> for_gpus() {
  std::vector<Program> some;
  for (const Program& program : with_kernels())
    if (harness::full_products() || some.empty() || std::string(some.back().file) != program.file)
      some.push_back(program);
  return some;
}

std::string name_of(const ::testing::TestParamInfo<Program>& of) {
  std::string file = of.param.file;
  std::replace(file.begin(), file.end(), '/', '_');
  return std::to_string(of.index) + "_" + file;
}
INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::ValuesIn(with_kernels()), name_of);
INSTANTIATE_TEST_SUITE_P(All, KernelsForGpus, ::testing::ValuesIn(for_gpus()), name_of);

// Threads that write one number in one phase: who was last depends on the order, which is what shows it.
namespace race {
enum { kThreads = 8 };
struct Call {
  unsigned* out;
};
struct Shared {
  unsigned last;
};
void write(const Call*, Shared& s, std::uint64_t, unsigned thread) { s.last = thread; }
void tell(const Call* call, Shared& s, std::uint64_t at, unsigned thread) {
  if (thread == 0) call->out[at] = s.last;
}
KERNEL(kernel, Shared, PHASE(write) PHASE(tell))

unsigned last(unsigned order) {
  unsigned out[2] = {};
  const Call of{.out = out};
  const Call* const call = &of;
  const Stream stream = order;
  LAUNCH(kernel, 2);
  EXPECT_EQ(out[0], out[1]);
  return out[0];
}
}  // namespace race

TEST(KernelsOf, ARaceIsSeen) {
  EXPECT_EQ(race::last(0), 7U);
  EXPECT_EQ(race::last(1), 0U);
  EXPECT_NE(race::last(2), 7U);
}

// Whatever has no kernels says why, in a line.
TEST(KernelsOf, WhatIsNotMadeIsSaid) {
  for (const Program& program :
       {Program{"topk", "indices=delta"}, Program{"dgc", "values=8bit"}, Program{"threshold", "values=4bit"},
        Program{"examples/top_signs", ""}, Program{"examples/median", ""}, Program{"examples/octaves", ""},
        Program{"examples/pulses", ""}}) {
    const Spec spec = spec_of(program);
    const char* why = no_kernels(combination_of(spec), spec.settings);
    ASSERT_NE(why, nullptr) << program.file;
    EXPECT_EQ(std::string(why).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace tithe::lang
