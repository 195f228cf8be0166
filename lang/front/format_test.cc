// SPDX-License-Identifier: Apache-2.0
#include "lang/front/format.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "lang/front/tokenize.h"

namespace tithe::lang {
namespace {

std::string tokens_of(const std::string& text) {
  const Source source{.name = "a.codec", .text = text};
  Problems problems;
  std::string all;
  for (const Token& t : tokenize(source, problems)) all += std::string(t.text) + "|";
  return all;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Format, SpacesLinesAndColumns) {
  EXPECT_EQ(
      formatted("codec  a   \"two  words\" \n\n\n\nplan k=1\nplan long = 2\nencode\n v = x   # x itself\n"
                "     wide = (v +\n       1)\nsend\n\n  v : f32[]\ndecode\nv\n\n\n"),
      "codec a \"two  words\"\n\nplan k=1\nplan long = 2\n\nencode\n  v    = x  # x itself\n"
      "  wide = (v +\n       1)\n\nsend\n\n  v : f32[]\n\ndecode\n  v\n");
}

TEST(Format, Phases) {
  EXPECT_EQ(formatted("codec a \"b\"\nphase p by max\nsend\nv: f32\nphase q by sum\n\nencode\nphase = x\n"
                      "w = 1\nsend\n"),
            "codec a \"b\"\n\nphase p by max\nsend\n  v: f32\n\nphase q by sum\n\nencode\n  phase = x\n"
            "  w     = 1\n\nsend\n");
}

TEST(Format, KeepsTokensAndIsIdempotent) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TITHE_SOURCE_DIR "/codecs")) {
    if (entry.path().extension() != ".codec") continue;
    const std::string text = read(entry.path()), once = formatted(text);
    EXPECT_EQ(tokens_of(once), tokens_of(text)) << entry.path();
    EXPECT_EQ(formatted(once), once) << entry.path();
    EXPECT_EQ(once, text) << entry.path() << ": tithe lang format " << entry.path().filename();
  }
}

// Any bytes are answered, and formatting twice is formatting once.
TEST(Format, AcceptsAnyText) {
  const std::string text = read(TITHE_SOURCE_DIR "/codecs/qsgd.codec");
  std::uint32_t state = 1;
  for (int turn = 0; turn < 300; ++turn) {
    std::string bad = text;
    for (int k = 0; k < 4; ++k) {
      state = state * 1664525U + 1013904223U;
      bad[(state >> 8) % bad.size()] = "()\"#= \n\t\xff"[state >> 29];
    }
    const std::string once = formatted(bad);
    EXPECT_EQ(formatted(once), once);
  }
}

}  // namespace
}  // namespace tithe::lang
