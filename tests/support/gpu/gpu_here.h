// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPU of a test: a reset fake GPU, drawn from a seed; or the machine's GPU, if TITHE_TEST_GPU=real.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "device/compiler.h"
#include "device/device.h"
#include "support/gpu/fake_here.h"

namespace tithe::testing {

inline bool on_real_gpu() {
  const char* requested = std::getenv("TITHE_TEST_GPU");
  return requested != nullptr && std::string_view(requested) == "real";
}

// NVIDIA's compiler: the machine's, or else the one installed by tools/setup.sh nvrtc.
inline const Result<device::Compiler>& nvrtc_here() {
  static const Result<device::Compiler> kCompiler = []() -> Result<device::Compiler> {
    std::error_code none;
    const std::filesystem::path lib = TITHE_SOURCE_DIR "/.setup/nvrtc-venv/lib";
    for (const auto& python : std::filesystem::directory_iterator(lib, none))
      if (const auto file = python.path() / "site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
          exists(file))
        return device::Compiler::load(file);
    // Sessions of this process may find the fake one (gpu_tensors.h).
    const char* const named = std::getenv("TITHE_NVRTC");
    if (named != nullptr && std::string_view(named) == TITHE_FAKE_NVRTC)
      return Status(Code::kUnsupported, "there is no NVRTC but the fake one");
    return device::this_compiler();
  }();
  return kCompiler;
}

// Fails the test if the driver got an invalid call, or if objects are still alive at the end.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_real_gpu()) return fake_gpu().reset(1);
    ASSERT_TRUE(device::this_driver().ok()) << device::this_driver().status().what();
    ASSERT_TRUE(device::this_compiler().ok()) << device::this_compiler().status().what();
  }
  void TearDown() override {
    if (on_real_gpu() || expects_problem_) return;
    EXPECT_STREQ(fake_gpu().problem(), "");
    EXPECT_EQ(fake_gpu().alive(), 0U);
  }

  static const device::Driver& driver() {
    static const Result<device::Driver> kFake = device::load_driver(TITHE_FAKE_CUDA);
    const Result<device::Driver>& found = on_real_gpu() ? device::this_driver() : kFake;
    EXPECT_TRUE(found.ok()) << found.status().what();
    return *found;
  }
  static const device::Compiler& compiler() {
    static const Result<device::Compiler> kFake = device::Compiler::load(TITHE_FAKE_NVRTC);
    const Result<device::Compiler>& found = on_real_gpu() ? device::this_compiler() : kFake;
    EXPECT_TRUE(found.ok()) << found.status().what();
    return *found;
  }
  static device::Device open() {
    Result<device::Device> made = device::Device::open(driver(), 0);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return *std::move(made);
  }

  bool expects_problem_ = false;
};

// The value of a Result that has to be there.
template <typename T>
T there(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().what();
  return std::move(*result);
}

}  // namespace tithe::testing
