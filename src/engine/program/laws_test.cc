// SPDX-License-Identifier: Apache-2.0
#include "engine/program/laws.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace tithe::engine {
namespace {

TEST(Laws, DocsFlowPrintsTheTable) {
  std::ifstream file(TITHE_SOURCE_DIR "/docs/inside/flow.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_NE(text.str().find(laws_as_text()), std::string::npos)
      << "docs/inside/flow.md, \"Phases and laws\", must contain\n"
      << laws_as_text();
}

TEST(Laws, EachHasItsRowAndItsWords) {
  for (const Law law : kAllLaws) {
    const LawRow& row = row_of(law);
    EXPECT_EQ(row.law, law);
    for (const std::string_view words : {row.encode, row.merge, row.store}) EXPECT_FALSE(words.empty());
    EXPECT_TRUE(row.last || row.before) << name(law) << " fits no phase";
    EXPECT_LE(row.joins + row.adds + row.one_leads, 1) << name(law);
  }
}

}  // namespace
}  // namespace tithe::engine
