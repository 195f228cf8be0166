// SPDX-License-Identifier: Apache-2.0
#include "lang/object_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "lang/compiled.h"
#include "lang/cpp_compiler.h"
#include "lang/loader.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;

constexpr const char* kText =
    "codec cached \"for a test\"\nblock 64\nencode\n  size = mean(abs(x))\nsend\n  size: f32\n"
    "  code: u3[] = if x < 0 then 5 else 2\ndecode\n  if code == 5 then -size else size\n";

// A cache of its own for each test, and what was set before again after it.
class ObjectCache : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tithe_cache_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    ::setenv("TITHE_CACHE", folder_.c_str(), 1);
    ::unsetenv("TITHE_CXX");
    Problems problems;
    program_ = compile({"cached.codec", kText}, problems);
    ASSERT_NE(program_, nullptr);
    body_ = emit_cpp(of().program, of().schedule);
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ::unsetenv("TITHE_CACHE");
    ::unsetenv("TITHE_CXX");
  }
  const Combination& of() const { return program_->combinations[0]; }
  Found find() {
    return find_object(body_, level_in_use(), [&](const Object& o, unsigned kinds) {
      checked_ = kinds;
      return agrees_ && same_as_interpreter(o, of(), defaults(program_->codec), kinds);
    });
  }
  std::vector<fs::path> objects() const {
    std::vector<fs::path> all;
    if (fs::is_directory(folder_))
      for (const auto& entry : fs::directory_iterator(folder_))
        if (entry.path().extension() == ".so") all.push_back(entry.path());
    return all;
  }

  fs::path folder_;
  std::unique_ptr<LoadedProgram> program_;
  CppBody body_;
  unsigned checked_ = 0;
  bool agrees_ = true;
};

TEST_F(ObjectCache, CompiledOnceThenFromTheCache) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  const Found first = find();
  ASSERT_NE(first.object, nullptr) << first.how;
  EXPECT_EQ(checked_, kAllKinds);
  EXPECT_NE(first.how.find(" s"), std::string::npos) << first.how;
  const Found again = find();
  EXPECT_NE(again.object, nullptr);
  EXPECT_NE(again.how.find("from the cache"), std::string::npos) << again.how;
  EXPECT_EQ(checked_, 1U);
  ASSERT_EQ(objects().size(), 1U);
  struct stat is {};
  ASSERT_EQ(::stat(objects()[0].c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0600U);
  ASSERT_EQ(::stat(folder_.c_str(), &is), 0);
  EXPECT_EQ(is.st_mode & 0777U, 0700U);

  // What bears the name of another program is of another one, and is made anew.
  CppBody other = body_;
  other.text += "// another\n";
  other.key ^= 1;
  fs::path name = objects()[0].filename();
  const std::string renamed = fmt::format("{:016x}", other.key) + name.string().substr(16);
  fs::copy(objects()[0], folder_ / renamed);
  fs::permissions(folder_ / renamed, fs::perms::owner_read | fs::perms::owner_write);
  body_ = other;
  const Found fresh = find();
  EXPECT_NE(fresh.object, nullptr) << fresh.how;
  EXPECT_EQ(fresh.how.find("from the cache"), std::string::npos) << fresh.how;
}

TEST_F(ObjectCache, WhatWasUsedLastIsKept) {
  fs::create_directories(folder_);
  const auto now = fs::file_time_type::clock::now();
  const auto write = [&](const std::string& name, int hours) {
    std::ofstream(folder_ / name) << name;
    fs::last_write_time(folder_ / name, now - std::chrono::hours(hours));
  };
  for (int k = 0; k < 5; ++k) write(fmt::format("{}.so", k), 10 - k);
  write("0.so.lock", 10);
  write("4.so.lock", 10);
  write("7.so.new", 1);
  write("8.so.new", 30);
  trim_cache(folder_, 3);
  std::set<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"2.so", "3.so", "4.so", "4.so.lock", "7.so.new"}));
  trim_cache(folder_ / "none", 3);  // nothing to do
}

TEST_F(ObjectCache, WhatTheInterpreterDoesNotDoIsRefused) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  agrees_ = false;
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("is not what the interpreter does"), std::string::npos) << found.how;
  EXPECT_TRUE(objects().empty());
}

TEST_F(ObjectCache, AFolderThatOthersCanWriteToIsRefusedWithTheCure) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  fs::create_directories(folder_);
  fs::permissions(folder_, fs::perms::all);
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("chmod go-w " + folder_.string()), std::string::npos) << found.how;
}

TEST_F(ObjectCache, AFolderThatIsALinkIsRefused) {
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  const fs::path other = folder_.string() + "_elsewhere";
  fs::create_directories(other);
  fs::create_directory_symlink(other, folder_);
  EXPECT_EQ(find().how, "interpreted: " + folder_.string() + " cannot be opened as a folder");
  EXPECT_TRUE(fs::is_empty(other));
  fs::remove_all(other);
}

// What others may have written to is not loaded, and what another version left is not used: both are made anew.
TEST_F(ObjectCache, AnObjectThatIsNotOursIsMadeAnew) {
  const Result<Compiler> compiler = find_compiler();
  if (!compiler.ok()) GTEST_SKIP() << compiler.status().what();
  ASSERT_NE(find().object, nullptr);
  ASSERT_EQ(objects().size(), 1U);
  const fs::path object = objects()[0];
  const auto is_new = [&] {
    checked_ = 0;
    const Found found = find();
    EXPECT_NE(found.object, nullptr) << found.how;
    EXPECT_EQ(found.how.find("from the cache"), std::string::npos) << found.how;
    EXPECT_EQ(checked_, kAllKinds);
    EXPECT_NE(find().how.find("from the cache"), std::string::npos);
  };
  fs::permissions(object, fs::perms::others_write, fs::perm_options::add);
  is_new();

  for (const std::uint32_t other : {kObjectInterface + 1, kObjectInterface - 1}) {
    std::string text = cpp_file(std::span(&body_, 1), "tithe_program");
    const std::string row = fmt::format("    {{{}, ", kObjectInterface);
    const std::size_t at = text.rfind(row);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, row.size(), fmt::format("    {{{}, ", other));
    ASSERT_TRUE(compile_cpp(*compiler, text, flag_of(level_in_use()), folder_.string(), "other").ok());
    fs::rename(folder_ / "other.new", object);
    is_new();
  }

  fs::remove(object);  // not written over: it is mapped
  std::ofstream(object) << "no object";
  is_new();
}

TEST_F(ObjectCache, WithoutACompilerTheInterpreterRunsAndSaysWhy) {
  ::setenv("TITHE_CXX", "none", 1);
  EXPECT_EQ(find().how, "interpreted: TITHE_CXX=none");
  ::setenv("TITHE_CXX", "no-such-compiler", 1);
  EXPECT_EQ(find().how, "interpreted: TITHE_CXX: there is no 'no-such-compiler'");
  ::setenv("TITHE_CXX", "/bin/false", 1);
  const Found found = find();
  EXPECT_EQ(found.object, nullptr);
  EXPECT_NE(found.how.find("/bin/false refuses it"), std::string::npos) << found.how;
  EXPECT_TRUE(objects().empty());
}

TEST_F(ObjectCache, TheTextIsTheSameWhereverItIsMade) {
  const CppBody again = emit_cpp(of().program, of().schedule);
  EXPECT_EQ(again.text, body_.text);
  EXPECT_EQ(again.key, body_.key);
}

// The self-check sees a wrong byte, a wrong residual and a wrong value.
TEST_F(ObjectCache, TheSelfCheckIsOneThatCanFail) {
  static const Object* right = nullptr;
  if (!find_compiler().ok()) GTEST_SKIP() << find_compiler().status().what();
  right = find().object;
  ASSERT_NE(right, nullptr);
  const Settings settings = defaults(program_->codec);
  EXPECT_TRUE(same_as_interpreter(*right, of(), settings, kAllKinds));
  Object wrong = *right;
  wrong.encode = [](const ObjectCall* call, const float* g, const float* r, float* left, std::uint8_t* out,
                    ObjectAnswer* answer) {
    right->encode(call, g, r, left, out, answer);
    if (call->n > 64) out[5] ^= 1;
  };
  EXPECT_FALSE(same_as_interpreter(wrong, of(), settings, 1));
  wrong.encode = [](const ObjectCall* call, const float* g, const float* r, float* left, std::uint8_t* out,
                    ObjectAnswer* answer) {
    right->encode(call, g, r, left, out, answer);
    if (call->n > 64 && left != nullptr) left[64] = -left[64];
  };
  EXPECT_FALSE(same_as_interpreter(wrong, of(), settings, 1));
  wrong = *right;
  wrong.decode = [](const ObjectCall* call, const std::uint8_t* const* payloads, std::size_t count,
                    const float* base, float divide, float* out) {
    right->decode(call, payloads, count, base, divide, out);
    if (call->n > 64) out[17] += 1;
  };
  EXPECT_FALSE(same_as_interpreter(wrong, of(), settings, 1));
}

}  // namespace
}  // namespace tithe::lang
