// SPDX-License-Identifier: Apache-2.0
#include "catalogue/programs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "support/scratch.h"
#include "tithe/seam/catalogue.h"
#include "tithe/seam/spec.h"

namespace tithe::lang {
namespace {

namespace fs = std::filesystem;

class Loader : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TITHE_CXX", "none", 1);  // no program here runs for long
    folder_ = fs::temp_directory_path() / ("tithe_loader_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    ::unsetenv("TITHE_CXX");  // programs loaded by a later test are not affected
    fs::remove_all(folder_);
  }
  std::string write(const std::string& name, const std::string& doc, double most = 8) {
    const std::string path = (folder_ / name).string();
    std::ofstream(path)
        << "codec mine \"" << doc << "\"\nparam bits: int = 4 in 2 .. " << most
        << " \"bits\"\nencode\n  size = largest(abs(x))\nsend\n  size: f32\n"
           "  code: u<bits>[] = u32(stochastic_level(x, size, bits) + (1 << (bits - 1)))\ndecode\n"
           "  f32(i32(code) - (1 << (bits - 1))) * size\n";
    return path;
  }
  fs::path folder_;
};

TEST_F(Loader, EqualContentIsOneCodecForAnyPath) {
  const auto a = parse_spec(write("a.codec", "once")), b = parse_spec(write("b.codec", "once") + ":bits=3");
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().what() << b.status().what();
  EXPECT_EQ(a->codec, b->codec);
  EXPECT_EQ(b->settings[0], 1);  // the second of 2 .. 8
}

TEST_F(Loader, NameAndIdComeFromTheContent) {
  const auto a = parse_spec(write("a.codec", "name one")), b = parse_spec(write("a.codec", "name two"));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a->codec->name, b->codec->name);
  for (const Codec* codec : {a->codec, b->codec}) {
    EXPECT_TRUE(codec->name.starts_with("mine@"));
    EXPECT_GE(static_cast<std::uint16_t>(id_of(*codec)), catalogue::kFirstLoadedId);
    EXPECT_EQ(find_codec(id_of(*codec)), codec);
    EXPECT_EQ(find_codec(codec->name), codec);
  }
}

TEST_F(Loader, TheShortestSpecParsesToTheSame) {
  const auto a = parse_spec(write("a.codec", "shortest") + ":bits=7,feedback=none");
  ASSERT_TRUE(a.ok());
  const auto again = parse_spec(to_string(*a));
  ASSERT_TRUE(again.ok()) << again.status().what();
  EXPECT_EQ(*again, *a);
  EXPECT_EQ(to_string(*again), to_string(*a));
}

TEST_F(Loader, InvalidFilesAreRefusedWithAReason) {
  EXPECT_NE(parse_spec("./nowhere.codec").status().what().find("the file does not exist"), std::string::npos);
  EXPECT_NE(parse_spec(folder_.string() + "/").status().what().find("the file does not exist"),
            std::string::npos);
  std::ofstream(folder_ / "large.codec") << std::string(kMaxBytes + 1, ' ');
  EXPECT_NE(
      parse_spec((folder_ / "large.codec").string()).status().what().find("a codec program has at most"),
      std::string::npos);
  std::ofstream(folder_ / "wrong.codec") << "codec wrong \"\"\nsend\n  v: f32[] = y\ndecode\n  v\n";
  const Status wrong = parse_spec((folder_ / "wrong.codec").string()).status();
  EXPECT_EQ(wrong.code(), Code::kInvalid);
  EXPECT_NE(wrong.what().find("wrong.codec:3:14: 'y' is not defined here"), std::string::npos)
      << wrong.what();
  EXPECT_NE(parse_spec(write("a.codec", "range") + ":bits=9").status().what().find("bits=9"),
            std::string::npos);
}

TEST_F(Loader, ClaimsCanDependOnSettings) {
  const std::string path = (folder_ / "claims.codec").string();
  std::ofstream(path) << "codec claims \"\"\nparam bits: int = 4 in 2 .. 8 \"bits\"\nparam loose: real = 0 "
                         "in 0 .. 1 \"more\"\n"
                         "claim contraction loose + 1 / f64(1 << bits)\nsend\n  v: f32[] = x\ndecode\n  v\n";
  for (const auto& [settings, claimed] :
       {std::pair{"", 0x1p-4}, {":bits=7", 0x1p-7}, {":bits=2,loose=0.5", 0.75}}) {
    const auto spec = parse_spec(path + settings);
    ASSERT_TRUE(spec.ok()) << spec.status().what();
    EXPECT_EQ(spec->codec->traits.contraction(spec->settings, 100), claimed) << settings;
  }
}

TEST_F(Loader, ThreadsLoadConcurrently) {
  const std::string path = write("a.codec", "threads");
  std::vector<const Codec*> got(4);
  std::vector<std::thread> all;
  for (auto& to : got) all.emplace_back([&] { to = parse_spec(path)->codec; });
  for (std::thread& t : all) t.join();
  for (const Codec* codec : got) EXPECT_EQ(codec, got[0]);
}

// A program is identified by the settings of a call, so any number of programs can coexist.
TEST_F(Loader, HundredsOfProgramsHaveDistinctPayloads) {
  constexpr int kPrograms = 200;
  std::vector<std::unique_ptr<LoadedProgram>> all;
  for (int k = 0; k < kPrograms; ++k) {
    Problems problems;
    all.push_back(
        compile({"a.codec", fmt::format("codec a \"\"\nencode\n  y = x + {0}\nsend\n  v: f32[] = y\n"
                                        "decode\n  v - {0}\n",
                                        k)},
                problems));
    ASSERT_NE(all.back(), nullptr);
  }
  const float zero = 0;
  for (int k = 0; k < kPrograms; ++k) {
    const Codec& codec = all[static_cast<std::size_t>(k)]->codec;
    float sent = -1;
    const Bytes out(reinterpret_cast<std::uint8_t*>(&sent), sizeof sent);
    const Settings settings = defaults(codec);
    const ScratchForTest scratch(codec, settings, 1);
    const auto done = codec.reference().encode({.settings = settings, .scratch = scratch},
                                               {&zero, nullptr, nullptr, 1}, out);
    ASSERT_TRUE(done.ok()) << done.status().what();
    EXPECT_EQ(sent, static_cast<float>(k));
  }
}

}  // namespace
}  // namespace tithe::lang
