// SPDX-License-Identifier: Apache-2.0
#pragma once
// The codec language compiler's messages for a text, and for a valid text with one part replaced.
#include <gtest/gtest.h>

#include <string>

#include "lang/loader.h"

namespace tithe::testing {

inline std::string problems_of(const std::string& text) {
  const lang::Source source{"my.codec", text};
  lang::Problems problems;
  const bool made = lang::compile(source, problems) != nullptr;
  EXPECT_NE(made, problems.any());
  return problems.text(source);
}

struct InvalidProgram {
  const char* name;
  const char* part;  // of the program that is replaced
  const char* by;
  const char* text;  // somewhere in the messages
};
inline std::string name_of(const ::testing::TestParamInfo<InvalidProgram>& of) { return of.param.name; }

inline void expect_problems(std::string good, const InvalidProgram& mistake) {
  const std::size_t at = good.find(mistake.part);
  ASSERT_NE(at, std::string::npos);
  const std::string got = problems_of(good.replace(at, std::string_view(mistake.part).size(), mistake.by));
  EXPECT_NE(got.find(mistake.text), std::string::npos) << got;
}

}  // namespace tithe::testing
