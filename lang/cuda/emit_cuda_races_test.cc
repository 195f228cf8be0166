// SPDX-License-Identifier: Apache-2.0
// Kernels under ThreadSanitizer, with a fiber per GPU thread (tests/support/grid_on_fibers.h): no number is written
// by one thread and accessed by another in the same phase, except by atomic operations.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "lang/runtime/prelude.h"
#include "support/kernel_programs.h"
#include "support/pairs.h"
#include "tithe/seam/catalogue.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;
using testing::Made;
using testing::Program;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Encodes and decodes kValues, in more than one block of threads.
constexpr const char* kMain = R"(
#include <stdio.h>
#include <stdlib.h>
int main() {
  {
    const size_t n = kValues;
    Call call = {};
    for (int k = 0; k < 12; ++k) call.settings[k] = kSettings[k];
    call.n = n, call.key = 7, call.shared_key = 8, call.agreed_ranks = 1, call.divide = 1, call.field_bits = 8;
    const size_t room = 64 * n + 4096;
    float* const values = static_cast<float*>(malloc(4 * 3 * n));
    unsigned draw = 1;
    for (size_t i = 0; i < 2 * n; ++i)
      values[i] = float(int((draw = draw * 1664525U + 1013904223U) >> 12) - 500000) * 1e-6f;
    call.grad = values, call.residual = values + n, call.left = values + n, call.out = values + 2 * n;
    uint32_t answer[kAnswers] = {};
    uint64_t bytes = 0;
    call.payload = static_cast<uint8_t*>(malloc(room)), call.answer = answer, call.bytes = &bytes;
    call.scratch = static_cast<uint8_t*>(malloc(tithe_scratch(&call) + 8));
    tithe_encode(&call, 0);
    if (bytes == 0 || bytes > room || answer[0] != 0) return 2;
    call.payload_bytes = bytes;
    tithe_decode(&call, 0);
  }
  return 0;
}
)";

// 0 for success, 66 if ThreadSanitizer found a race, or another exit code; `output`: the output.
int run(std::string text, const Settings& settings, std::size_t values, const std::string& flags,
        std::string& output) {
  std::string folder = fs::temp_directory_path() / "tithe_races_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string include = "#include \"grid_on_cpu.h\"";
  text.replace(text.find(include), include.size(),
               "#include \"" TITHE_SOURCE_DIR "/tests/support/grid_on_fibers.h\"");
  text += fmt::format("enum {{ kValues = {} }};\nstatic const double kSettings[12] = {{{}}};\n", values,
                      fmt::join(settings.value.begin(), settings.value.begin() + 12, ", "));
  std::ofstream(folder + "/k.cc") << text << kMain;
  const std::string command = fmt::format(
      "cd {} && c++ -std=c++17 -O1 -g -w -ffp-contract=off -fsanitize=thread {} -o k k.cc > output 2>&1 || "
      "exit 3; "
      "TSAN_OPTIONS='exitcode=66 halt_on_error=1' ./k >> output 2>&1",
      folder, flags);
  const int status = std::system(command.c_str());
  output = read(folder + "/output");
  fs::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run(const Program& of, const std::string& flags, std::string& output) {
  const Made made(of);
  const Combination& combination = made.program->of(made.settings);
  const Checked& program = combination.program;
  const bool is_long = program.sends_pairs || program.block == 0 || program.block > 1024;
  return run(cuda_file(combination), made.settings, is_long ? kPiece + 1300 : 700, flags, output);
}

bool has_thread_sanitizer() {
  return std::system("echo 'int main() {}' | c++ -fsanitize=thread -o /dev/null -x c++ - > /dev/null 2>&1") ==
         0;
}

class Races : public ::testing::TestWithParam<Program> {};
TEST_P(Races, KernelsHaveNone) {
  if (!has_thread_sanitizer()) GTEST_SKIP() << "the compiler has no ThreadSanitizer here";
  std::string output;
  ASSERT_EQ(run(GetParam(), "", output), 0) << output;
}

// Short blocks, sums, lists, and blocks of different lengths; `make test-full` has all programs.
std::vector<Program> some() {
  const std::set<std::string_view> kinds = {"fp8", "onebit", "dgc", "inceptionn"};
  std::vector<Program> all;
  for (const Program& program : testing::with_kernels()) {
    const bool known = !all.empty() && std::string_view(all.back().file) == program.file;
    if (!known && (harness::full_products() || kinds.contains(program.file)) && program.phase == 0 &&
        Made(program).program->phases.size() == 1)
      all.push_back(program);
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Races, ::testing::ValuesIn(some()), [](const auto& of) {
  std::string file = of.param.file;
  std::replace(file.begin(), file.end(), '/', '_');
  return file;
});

// A codec's own kernels.
TEST(RaceChecks, EdenKernelsHaveNone) {
  if (!has_thread_sanitizer()) GTEST_SKIP() << "the compiler has no ThreadSanitizer here";
  const Codec& eden = *find_codec("eden");
  const std::string text =
      std::string(kPreludeCudaTypes) + kPreludeCuda + kPreludeCudaBytes + eden.kernels(defaults(eden));
  std::string output;
  EXPECT_EQ(run(text, defaults(eden), 2 * 1024 + 700, "", output), 0) << output;
}

// The same text without its barriers.
TEST(RaceChecks, MissingBarriersAreDetected) {
  if (!has_thread_sanitizer()) GTEST_SKIP() << "the compiler has no ThreadSanitizer here";
  std::string output;
  EXPECT_EQ(run({"fp8", ""}, "-DTITHE_NO_BARRIERS", output), 66) << output;
  EXPECT_NE(output.find("data race"), std::string::npos) << output;
}

}  // namespace
}  // namespace tithe::lang
