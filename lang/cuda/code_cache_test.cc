// SPDX-License-Identifier: Apache-2.0
#include "lang/cuda/code_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/gpu/gpu_here.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;

// A cache of its own, and kernels without effect.
class CodeCache : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    folder_ = (fs::temp_directory_path() / "tithe-cache-XXXXXX").string();
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    if (const char* had = std::getenv("TITHE_CACHE")) had_ = had;
    ::setenv("TITHE_CACHE", folder_.c_str(), 1);
  }
  void TearDown() override {
    had_.empty() ? ::unsetenv("TITHE_CACHE") : ::setenv("TITHE_CACHE", had_.c_str(), 1);
    fs::remove_all(folder_);
    GpuTest::TearDown();
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& entry : fs::directory_iterator(folder_)) all.push_back(entry.path());
    return all;
  }
  // A compiler without results in memory: only the cache has them.
  static device::Compiler fresh() { return *device::Compiler::load(TITHE_FAKE_NVRTC); }

  std::string folder_, had_;
  const std::string text_ = "extern \"C\" int nothing() { return 0; }\n";
};

TEST_F(CodeCache, IsKeyedByTextAndGpu) {
  const device::Compiler compiler = fresh();
  const Result<std::string> made = cached_code(compiler, text_, fake::kFakeSm);
  ASSERT_TRUE(made.ok()) << made.status().what();
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(files()[0].extension(), ".cubin");
  ::setenv("FAKE_NVRTC_SPOILS", "nothing=another", 1);  // a new compilation would now give another result
  EXPECT_EQ(*cached_code(fresh(), text_, fake::kFakeSm), *made);
  ::unsetenv("FAKE_NVRTC_SPOILS");
  ASSERT_TRUE(cached_code(compiler, text_ + "\n", fake::kFakeSm).ok());
  EXPECT_EQ(files().size(), 2U);
  ASSERT_TRUE(cached_code(compiler, text_, 80).ok());
  EXPECT_EQ(files().size(), 3U);
}

TEST_F(CodeCache, DamagedOrWorldWritableEntriesAreCompiledAgain) {
  const Result<std::string> made = cached_code(fresh(), text_, fake::kFakeSm);
  ASSERT_TRUE(made.ok()) << made.status().what();
  const fs::path file = files()[0];
  const auto bytes = fs::file_size(file);
  for (const auto size : {std::uintmax_t{0}, std::uintmax_t{20}, bytes - 1}) {
    fs::resize_file(file, size);
    EXPECT_EQ(cached_code(fresh(), text_, fake::kFakeSm)->size(), made->size());
    EXPECT_EQ(fs::file_size(file), bytes);
  }
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(30).put('x');
  EXPECT_EQ(cached_code(fresh(), text_, fake::kFakeSm)->size(), made->size());
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(cached_code(fresh(), text_, fake::kFakeSm)->size(), made->size());
  EXPECT_EQ(fs::status(file).permissions() & fs::perms::others_write, fs::perms::none);
}

TEST_F(CodeCache, WithoutAFolderItCompilesEachTime) {
  ::setenv("TITHE_CACHE", "/proc/nowhere/cache", 1);
  EXPECT_TRUE(cached_code(fresh(), text_, fake::kFakeSm).ok());
}

TEST_F(CodeCache, RefusalsAreNotCached) {
  const Result<std::string> made = cached_code(fresh(), "this is no text of kernels", fake::kFakeSm);
  EXPECT_EQ(made.status().code(), Code::kUnsupported);
  EXPECT_TRUE(files().empty());
}

}  // namespace
}  // namespace tithe::lang
