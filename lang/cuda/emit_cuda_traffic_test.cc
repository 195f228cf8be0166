// SPDX-License-Identifier: Apache-2.0
// The bytes that emulated threads load and store in global memory, beside the least possible traffic: encode reads the
// gradient and the residual, and writes the residual and the payload; decode reads the payload and the base, and writes
// the sum. Each thread's accesses count, also to bytes that its neighbours read too.
#include <gtest/gtest.h>

#include "conformance/codec_case.h"
#include "support/emulated_kernels.h"

namespace tithe::lang {
namespace {

using harness::Data;
using harness::Floats;
using harness::Payload;
using testing::EmulatedKernels;
using testing::Functions;
using testing::Program;
using testing::TestCall;

constexpr const char* kCounted =
    "static unsigned long long moved;\n"
    "#define COUNT_LOAD(bytes) (moved += (bytes))\n"
    "#define COUNT_STORE(bytes) (moved += (bytes))\n"
    "extern \"C\" __attribute__((visibility(\"default\"))) unsigned long long bytes_moved() {\n"
    "  const unsigned long long all = moved;\n"
    "  moved = 0;\n"
    "  return all;\n"
    "}\n";

class Traffic : public ::testing::TestWithParam<Program> {};
TEST_P(Traffic, IsCloseToTheLeast) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << "not emulated: " << compiler.status().what();
  EmulatedKernels kernels(GetParam());
  const Status built = kernels.compile(*compiler, kCounted);
  ASSERT_TRUE(built.ok()) << built.what();
  const Functions of = kernels.functions();
  const auto moved = kernels.function<unsigned long long (*)()>("bytes_moved");
  ASSERT_NE(moved, nullptr);
  constexpr std::size_t kValues = std::size_t{1} << 15;
  const Floats grad = conformance::values(Data::kGaussian, kValues, 1),
               residual = conformance::values(Data::kGaussian, kValues, 2);
  Call call{.settings = kernels.made.settings, .seed = 7, .shared_seed = 8};
  TestCall test_call(of, kernels.combination(), call, kValues);
  const std::size_t bound = kernels.made.codec().phases[0].bound(call.settings, kValues);
  const auto expect = [&](const char* what, std::size_t least) {
    const double ratio = static_cast<double>(moved()) / static_cast<double>(least);
    RecordProperty(what, fmt::format("{:.3f}", ratio));
    EXPECT_GE(ratio, 0.999) << what << ": some accesses are not counted";
    EXPECT_LE(ratio, 1.10) << what;
  };
  const Payload payload = testing::encoded(of, test_call, bound, grad, residual.data(), false, 0).payload;
  expect("encode", 12 * kValues + payload.size());
  testing::decoded(of, test_call, payload, residual.data(), 0);
  expect("decode", 8 * kValues + payload.size());
}

INSTANTIATE_TEST_SUITE_P(Some, Traffic,
                         ::testing::Values(Program{"fp8", ""}, Program{"onebit", ""}, Program{"bf16", ""},
                                           Program{"natural", ""}, Program{"qsgd", ""},
                                           Program{"terngrad", ""}),
                         [](const auto& of) { return std::string(of.param.file); });

}  // namespace
}  // namespace tithe::lang
