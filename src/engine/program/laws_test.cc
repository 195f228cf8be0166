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

TEST(Laws, EachHasItsRuleAndItsTexts) {
  for (const Law law : kAllLaws) {
    const LawRule& rule = rule_of(law);
    EXPECT_EQ(rule.law, law);
    for (const std::string_view text : {rule.encode_text, rule.merge_text, rule.store_text})
      EXPECT_FALSE(text.empty());
    EXPECT_TRUE(rule.last || rule.before) << name(law) << " fits no phase";
    EXPECT_LE(rule.joins + rule.adds + rule.one_leads, 1) << name(law);
  }
}

}  // namespace
}  // namespace tithe::engine
