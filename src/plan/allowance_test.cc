// SPDX-License-Identifier: Apache-2.0
#include "plan/allowance.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

TEST(Auto, TextRoundTrips) {
  for (const char* text : {"auto", "auto:allow=onebit", "auto:allow=onebit+*.bias: fp32",
                           "auto:allow=dgc:ratio=0.01+fp8+embedding.*: qtopk:ratio=0.03,feedback=none"}) {
    ASSERT_TRUE(is_auto(text));
    const Result<AutoSpec> spec = parse_auto(text);
    ASSERT_TRUE(spec.ok()) << spec.status().what();
    EXPECT_EQ(parse_auto(to_string(*spec))->allowed, spec->allowed) << to_string(*spec);
  }
  EXPECT_EQ(to_string(*parse_auto("auto:allow=onebit+onebit")), "auto:allow=onebit");
  for (const char* text : {"automatic", "fp8", "", "aut"}) EXPECT_FALSE(is_auto(text)) << text;
}

TEST(Auto, ErrorsNameTheCure) {
  const auto why = [](const char* text) { return parse_auto(text).status().what(); };
  EXPECT_NE(why("auto:alow=fp8").find("auto has one parameter, allow"), std::string::npos)
      << why("auto:alow=fp8");
  EXPECT_NE(why("auto:allow=onebitt").find("onebit"), std::string::npos);
  EXPECT_NE(why("auto:allow=fp8+").find("give a codec"), std::string::npos) << why("auto:allow=fp8+");
  EXPECT_NE(why("auto:allow=").find("give a codec"), std::string::npos);
  EXPECT_NE(why("auto:allow=dgc:feedback=momentum").find("momentum belongs to the whole step"),
            std::string::npos);
}

TEST(Auto, StartsWithUnconditionalCodecs) {
  const AutoSpec spec = *parse_auto("auto:allow=onebit+*.bias: fp8+*.bias: fp32+head: fp32");
  const std::vector<Rule> rules = first_rules(spec);
  ASSERT_EQ(rules.size(), 2U);
  EXPECT_EQ(rules[0].match, "*.bias");
  EXPECT_EQ(rules[1].match, "head");
  for (const Rule& r : rules) EXPECT_EQ(to_string(*r.codec), "fp32");
  EXPECT_EQ(to_string(*first_spec("auto:allow=onebit")), "bf16");
  EXPECT_EQ(to_string(*first_spec("fp8")), "fp8");
  EXPECT_EQ(codecs_for(spec.allowed, "body.weight").size(), 4U);  // fp32, bf16, zip, onebit
  EXPECT_EQ(codecs_for(spec.allowed, "body.bias").size(), 3U);    // fp32, zip, fp8
  EXPECT_EQ(codecs_for(spec.allowed, "head").size(), 2U);
}

}  // namespace
}  // namespace tithe
