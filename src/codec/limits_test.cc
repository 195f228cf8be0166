// SPDX-License-Identifier: Apache-2.0
// Up to kMaxValues no codec's sizes overflow, in any settings.
#include "tithe/limits.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tithe/seam/catalogue.h"
#include "tithe/seam/codec.h"

namespace tithe {
namespace {

// The defaults, and each parameter at each end of its range.
std::vector<Settings> corners(const Codec& codec) {
  std::vector<Settings> all = {defaults(codec)};
  for (std::size_t i = 0; i < codec.params.size(); ++i)
    for (const double end : {codec.params[i].low, codec.params[i].high}) {
      all.push_back(defaults(codec));
      all.back().value[i] = end;
    }
  return all;
}

// 1, and eight values in each power of two, each with its predecessor and successor.
std::vector<std::size_t> sizes_to_the_limit() {
  std::vector<std::size_t> all = {0};
  for (std::size_t power = 8; power <= kMaxValues; power *= 2)
    for (std::size_t eighth = power; eighth < 2 * power; eighth += power / 8)
      for (const std::size_t n : {eighth - 1, eighth, eighth + 1})
        if (n > all.back() && n <= kMaxValues) all.push_back(n);
  return all;
}

TEST(Limits, SizesDoNotOverflowUpToTheMaximum) {
  const std::vector<std::size_t> sizes = sizes_to_the_limit();
  ASSERT_EQ(sizes.back(), kMaxValues);
  for (const Codec* codec : all_codecs())
    for (const Settings& settings : corners(*codec)) {
      std::string text(codec->name);
      for (std::size_t i = 0; i < codec->params.size(); ++i)
        text.append(" ").append(std::to_string(settings[i]));
      std::size_t before = 0;  // all phases together: the shape that powersgd chooses moves bytes between two
      for (const std::size_t n : sizes) {
        std::size_t bound = 0;
        for (const Phase& phase : codec->phases) {
          const std::size_t one = phase.bound(settings, n);
          ASSERT_LE(one, 64 * n + 4096) << text << ", " << phase.name << ", " << n << " values";
          bound += one;
        }
        // More values never need fewer bytes, except where another shape or form saves bytes: at most one part in
        // eight.
        ASSERT_GE(bound + bound / 8 + 64, before) << text << ", " << n << " values";
        before = bound;
      }
      for (const std::size_t n : sizes) {
        ASSERT_LE(codec->scratch(settings, n), 512 * n + (1U << 24)) << text << ", " << n << " values";
        if (codec->memory) {
          ASSERT_LE(codec->memory(settings, n), 512 * n + 4096) << text << ", " << n;
        }
      }
    }
}

}  // namespace
}  // namespace tithe
