// SPDX-License-Identifier: Apache-2.0
// Programs as CUDA kernels: nvcc accepts them, and emulated on a CPU they match the interpreter.
#include "lang/cuda/emit_cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/rng.h"
#include "conformance/codec_case.h"
#include "lang/cpp/cpp_compiler.h"
#include "lang/cuda/kernel_call.h"
#include "lang/loader.h"
#include "lang/run/context.h"
#include "support/codec_run.h"
#include "support/grid_on_cpu.h"
#include "support/kernel_programs.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;
using harness::Data;
using harness::Floats;
using harness::Payload;
using testing::kOnce;
using testing::Made;
using testing::Program;
using testing::with_kernels;

using Kernel = void (*)(const KernelCall*, unsigned order);
using Size = std::uint64_t (*)(const KernelCall*);

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Kernels : public ::testing::TestWithParam<Program> {
 protected:
  void SetUp() override {
    std::string folder = fs::temp_directory_path() / "tithe_kernels_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    made_.emplace(GetParam());
    name_ = made_->name(phase());
    text_ = cuda_file({{name_, &combination()}});
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
    const Result<std::string> made =
        compile_cpp(compiler, text, "-O0", folder_);  // it runs less than that takes
    if (!made.ok()) return made.status();
    object_ = ::dlopen((folder_ / *made).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (object_ == nullptr) return {Code::kIo, ::dlerror()};
    return {};
  }
  template <typename F>
  F function(const std::string& name) const {
    const std::string whole = fmt::format("tithe_{}{}{}", name_, name_.empty() ? "" : "_", name);
    return reinterpret_cast<F>(::dlsym(object_, whole.c_str()));
  }
  static std::size_t phase() { return GetParam().phase; }
  const Combination& combination() const { return made_->program->of(made_->settings, phase()); }

  fs::path folder_;
  std::optional<Made> made_;
  std::string_view name_;
  std::string text_;
  void* object_ = nullptr;
};

constexpr std::uint8_t kUntouched = 0xee;
constexpr std::size_t kPast = 16;  // bytes behind a payload that must not be written

// One call of the kernels, in a given order of blocks and threads.
struct Outcome {
  Payload payload;
  Floats left;
  std::vector<std::uint32_t> answer;
};

struct Functions {
  Size scratch;
  Kernel encode, decode;  // no decode: only the last phase has one
};

// The call for both directions, with its memory.
struct Told {
  KernelCall kernel = {};
  CallMemory memory;
  Agreed agreed;
  std::vector<std::uint64_t> scratch = {};

  Told(const Functions& of, const Combination& combination, const Call& call, std::size_t n)
      : memory({}, agreed_bytes(combination, call.settings, n)),
        agreed(combination, "test", call, n, memory) {
    const auto key = [&](std::uint64_t seed) {
      return rng_key(seed, call.round, call.tensor, call.chunk, call.phase);
    };
    kernel.n = n;
    kernel.key = key(call.seed);
    kernel.shared_key = key(call.shared_seed);
    std::copy(call.settings.value.begin(), call.settings.value.end(), kernel.settings);
    for (std::size_t k = 0; k < combination.program.before.size(); ++k)
      kernel.agreed[k] = agreed.numbers()[k];
    kernel.agreed_ranks = agreed.ranks();
    if (combination.program.adds()) kernel.field_bits = field_bits(combination, call);
    scratch.assign(of.scratch(&kernel) / 8 + 1, 0xcdcdcdcdcdcdcdcdU);
    kernel.scratch = reinterpret_cast<std::uint8_t*>(scratch.data());
  }
};

Outcome encoded(const Functions& of, Told& told, std::size_t bound, const Floats& grad, const float* residual,
                bool in_place, unsigned order) {
  const std::size_t n = grad.size();
  Outcome o{.payload = Payload(bound + kPast, kUntouched),
            .left = Floats(n),
            .answer = std::vector<std::uint32_t>(33)};
  std::uint64_t bytes = 0;
  KernelCall& kernel = told.kernel;
  kernel.grad = grad.data();
  kernel.residual = residual;
  kernel.residual_out = of.decode == nullptr ? nullptr : o.left.data();
  kernel.payload = o.payload.data();
  kernel.bytes = &bytes;
  kernel.answer = o.answer.data();
  if (in_place) {
    std::copy_n(residual, n, o.left.begin());
    kernel.residual = o.left.data();
  }
  of.encode(&kernel, order);
  EXPECT_LE(bytes, bound);
  for (std::size_t k = bytes; k < o.payload.size(); ++k) EXPECT_EQ(o.payload[k], kUntouched) << k;
  o.payload.resize(std::min<std::size_t>(bytes, bound));
  return o;
}

Floats decoded(const Functions& of, Told& told, Payload payload, const float* base, unsigned order) {
  Floats out(told.kernel.n);
  told.kernel.payload = payload.data();
  told.kernel.payload_bytes = payload.size();
  told.kernel.base = base;
  told.kernel.out = out.data();
  of.decode(&told.kernel, order);
  return out;
}

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

TEST_P(Kernels, WriteTheBytesOfTheInterpreter) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << "not emulated: " << compiler.status().what();
  const Status built = compile(*compiler);
  ASSERT_TRUE(built.ok()) << built.what();
  const Functions of{.scratch = function<Size>("scratch"),
                     .encode = function<Kernel>("encode"),
                     .decode = function<Kernel>("decode")};
  const Codec& codec = made_->codec();
  ASSERT_TRUE(of.scratch != nullptr && of.encode != nullptr);
  ASSERT_EQ(of.decode != nullptr, phase() + 1 == codec.phases.size());
  const Impl& impl = codec.reference();
  Call call{.settings = made_->settings, .seed = 7, .shared_seed = 8, .round = 3, .tensor = 2, .chunk = 1};
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
        const Payload context = context_before(codec, call, phase(), grad, before);
        if (phase() > 0 && context.empty()) continue;
        call.phase = static_cast<std::uint8_t>(phase());
        call.context = context;
        const ScratchForTest scratch(codec, call.settings, n);
        call.scratch = scratch;
        const std::size_t bound = codec.phases[phase()].bound(call.settings, n);
        Payload want(bound);
        Floats left(n), out(n);
        const Result<Encoded> done =
            impl.encode(call, {grad.data(), before, of.decode != nullptr ? left.data() : nullptr, n}, want);
        ASSERT_TRUE(done.ok()) << done.status().what();
        Told told(of, combination(), call, n);
        const bool in_place = feedback && order == 3 && of.decode != nullptr;
        const Outcome got = encoded(of, told, bound, grad, before, in_place, order);
        ASSERT_EQ(got.answer[0] == 0, done->finite);
        if (!done->finite) continue;
        want.resize(done->bytes);
        ASSERT_EQ(got.answer, std::vector<std::uint32_t>(got.answer.size()));
        ASSERT_EQ(harness::first_difference(got.payload, want), "");
        if (of.decode == nullptr) continue;
        ASSERT_EQ(harness::first_difference(got.left, left), "");
        const Payload all = combined(codec, call, n, want);
        const std::vector<ByteView> views{ByteView(all)};
        ASSERT_TRUE(impl.decode(call, views, {.base = before}, out).ok());
        ASSERT_EQ(harness::first_difference(decoded(of, told, all, before, order), out), "");
      }
  // A non-finite value is reported at any position.
  Floats grad(2000, 0.5F);
  call.context = {};
  const Payload context = context_before(codec, call, phase(), grad, nullptr);
  call.phase = static_cast<std::uint8_t>(phase());
  call.context = context;
  Told told(of, combination(), call, grad.size());
  for (const std::size_t at : {0, 33, 1999}) {
    Floats wrong = grad;
    wrong[at] = at == 33 ? NAN : INFINITY;
    const std::size_t bound = codec.phases[phase()].bound(call.settings, grad.size());
    EXPECT_NE(encoded(of, told, bound, wrong, nullptr, false, 0).answer[0], 0U) << at;
  }
}

// Compiles for one GPU generation, without fused or approximate operations, which would round differently; the
// launched text is compiled for the next generation by another compiler (device_program_test.cc).
class KernelsForGpus : public Kernels {};
TEST_P(KernelsForGpus, AreAcceptedByNvcc) {
  if (std::system("command -v nvcc > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "not compiled for a GPU: there is no nvcc here";
  std::ofstream(folder_ / "k.cu") << cuda_file(made_->kernels());
  const std::string command =
      "cd " + folder_.string() +
      " && nvcc -std=c++17 --fmad=false -ftz=false -prec-div=true -prec-sqrt=true --keep -arch=sm_80 -cubin "
      "-o k.cubin k.cu > said 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read(folder_ / "said");
  EXPECT_TRUE(fs::exists(folder_ / "k.cubin"));
  const std::string ptx = read(folder_ / "k.ptx");
  EXPECT_NE(ptx.find(".entry tithe_"), std::string::npos);
  for (const char* rounds : {"fma.rn.f32", "fma.rn.f64", "mad.rn.f32", ".ftz.f32", ".approx"})
    EXPECT_EQ(ptx.find(rounds), std::string::npos) << rounds;
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
void write(const Call*, Shared& s, std::uint64_t, unsigned thread) { s.last = thread; }
void tell(const Call* call, Shared& s, std::uint64_t at, unsigned thread) {
  if (thread == 0) call->out[at] = s.last;
}
KERNEL(kernel, Shared, PHASE(write) PHASE(tell))

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
