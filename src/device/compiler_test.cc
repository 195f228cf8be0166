// SPDX-License-Identifier: Apache-2.0
// Tests with NVIDIA's own compiler, if it is installed: it accepts the texts that the code passes to it.
#include "device/compiler.h"

#include <gtest/gtest.h>

#include "support/gpu/gpu_here.h"

namespace tithe::device {
namespace {

constexpr const char* kText =
    "#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <string.h>\n"
    "extern \"C\" __global__ void scale(float* at, uint64_t n, float by) {\n"
    "  const size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;\n"
    "  if (i < n) at[i] = at[i] * by + 1;\n}\n";

TEST(Nvrtc, DoesNotFuseOperations) {
  const Result<Compiler>& compiler = testing::nvrtc_here();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  const Result<std::string> ptx = compiler->ptx(kText, 80);
  ASSERT_TRUE(ptx.ok()) << ptx.status().what();
  EXPECT_NE(ptx->find(".entry scale"), std::string::npos);
  EXPECT_NE(ptx->find("mul."), std::string::npos);
  EXPECT_EQ(ptx->find("fma"), std::string::npos);
}

TEST(Nvrtc, CompilesForEachGpu) {
  const Result<Compiler>& compiler = testing::nvrtc_here();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  for (const int sm : {80, 90}) {
    const Result<std::string> code = compiler->code(kText, sm);
    ASSERT_TRUE(code.ok()) << code.status().what();
    EXPECT_EQ(code->substr(1, 3), "ELF");
  }
  EXPECT_FALSE(compiler->code(kText, 1).ok());
}

TEST(Nvrtc, ErrorIsOneLine) {
  const Result<Compiler>& compiler = testing::nvrtc_here();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  const Result<std::string> none = compiler->code("this is no program", 80);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().what().find("error"), std::string::npos) << none.status().what();
  EXPECT_EQ(none.status().what().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace tithe::device
