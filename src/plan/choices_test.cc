// SPDX-License-Identifier: Apache-2.0
// The promises at the top of choices.h, and the messages for refused rules.
#include "tithe/choices.h"

#include <gtest/gtest.h>

#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

ChoiceDefaults defaults(std::string_view codec = "fp8") {
  return {.spec = *parse_spec(codec),
          .strategy = find_strategy("server"),
          .min_values = 100,
          .part_values = 1000};
}

std::string refused(std::string_view json, std::string_view codec = "fp8") {
  const Result<std::vector<Rule>> rules = parse_rules(json);
  if (!rules.ok()) {
    EXPECT_EQ(rules.status().code(), Code::kInvalid);
    return rules.status().what();
  }
  const Result<Choices> choices = Choices::make(*rules, defaults(codec));
  EXPECT_FALSE(choices.ok()) << json;
  return choices.ok() ? "" : choices.status().what();
}

std::string codec_for(const Choices& choices, std::string_view key, std::size_t n) {
  return to_string(choices.choice(key, n).spec);
}

TEST(Choices, PatternsMatchKeys) {
  struct Case {
    std::string_view match, key;
    bool takes;
  };
  for (const Case& c : {Case{"*", "", true},
                        {"*", "a.b", true},
                        {"*.bias", "fc.bias", true},
                        {"*.bias", "fc.bias2", false},
                        {"*.bias", "bias", false},
                        {"*norm*", "layer.norm.weight", true},
                        {"a*b*c", "a-b-b-c", true},
                        {"a*b*c", "a-b-b-d", false},
                        {"layer.?.weight", "layer.3.weight", true},
                        {"layer.?.weight", "layer.12.weight", false},
                        {"h?llo", "h\xc3\xa9llo", true},
                        {"fc.weight", "fc.weight", true},
                        {"fc.weight", "fc.weights", false},
                        {"=a*b", "a*b", true},
                        {"=a*b", "axb", false},
                        {"**", "x", true}})
    EXPECT_EQ(matches(c.match, c.key), c.takes) << c.match << " and " << c.key;
  EXPECT_TRUE(names_one_key("fc.weight"));
  EXPECT_TRUE(names_one_key("=fc*"));
  EXPECT_FALSE(names_one_key("fc*"));
}

TEST(Choices, first) {
  const Choices c =
      *Choices::make(*parse_rules(R"({"*.bias": "fp16", "fc.*": "onebit", "> 1K": "topk"})"), defaults());
  EXPECT_EQ(codec_for(c, "fc.bias", 5000), "fp16");
  EXPECT_EQ(codec_for(c, "fc.weight", 5000), "onebit");
  EXPECT_EQ(codec_for(c, "conv.weight", 1001), "topk");
  EXPECT_EQ(codec_for(c, "conv.weight", 1000), "fp8");
  EXPECT_EQ(codec_for(c, "conv.weight", 99), "fp32");
  EXPECT_EQ(codec_for(c, "fc.weight", 9), "onebit") << "a rule applies to small tensors too";
}

TEST(Choices, total) {
  const Choices c = Choices::of(defaults());
  EXPECT_EQ(c.choice("any", 100).why, "default");
  EXPECT_TRUE(c.choice("any", 100).scheduled);
  EXPECT_EQ(c.choice("any", 99).group, "small");
  EXPECT_EQ(c.choice("any", 99).strategy, nullptr)
      << "small tensors use auto, independent of the session's strategy";
  ChoiceDefaults four = defaults();
  four.world = 4;
  const Choices of_four = Choices::of(four);
  EXPECT_EQ(of_four.choice("any", 99).strategy_of(99).name, "gather")
      << "for few bytes, the strategy with one sequential message";
  EXPECT_NE(of_four.choice("any", 99).strategy_of(1'000'000).name, "gather");
  EXPECT_EQ(c.text(), "");
}

TEST(Choices, SizesCountValuesOrBytes) {
  struct Case {
    std::string_view size;
    std::size_t least, most;
  };
  for (const Case& c : {Case{"> 1M", 1'000'001, kMaxValues},
                        {">= 1.5K", 1500, kMaxValues},
                        {"< 4096", 0, 4095},
                        {"<= 4Ki", 0, 4096},
                        {"< 16KB", 0, 3999},
                        {"<= 16KiB", 0, 4096},
                        {"> 10B", 3, kMaxValues},
                        {">= 10B", 3, kMaxValues},
                        {"< 10B", 0, 2},
                        {"<= 10B", 0, 2},
                        {"> 1K, <= 2 K", 1001, 2000}}) {
    const auto rules = parse_rules(R"({")" + std::string(c.size) + R"(": "fp32"})");
    ASSERT_TRUE(rules.ok()) << c.size << ": " << rules.status().what();
    EXPECT_EQ(rules->at(0).least, c.least) << c.size;
    EXPECT_EQ(rules->at(0).most, c.most) << c.size;
  }
}

TEST(Choices, text) {
  const std::string_view json = R"({"version": 1, "rules": [
    {"match": "*embedding*", "codec": "qtopk:ratio=0.03", "inside": "bf16", "strategy": "gather",
     "part_values": "1M", "priority": -2, "group": "e", "why": "few rows \"change\""},
    {"match": "*.weight", "size": "> 1K, < 1M", "codec": "topk:ratio=0.02"},
    {"match": "=odd*key", "strategy": "auto"},
    {"size": "< 16KB", "codec": "bf16"}]})";
  const auto rules = parse_rules(json);
  ASSERT_TRUE(rules.ok()) << rules.status().what();
  ASSERT_EQ(rules->size(), 4U);
  EXPECT_EQ((*rules)[0].part_values, 1'000'000U);
  EXPECT_EQ((*rules)[0].why, "few rows \"change\"");
  const auto again = parse_rules(to_json(*rules));
  ASSERT_TRUE(again.ok()) << again.status().what();
  EXPECT_EQ(*again, *rules);
  EXPECT_EQ(to_json(*again), to_json(*rules));

  const auto shorter = parse_rules(R"({"*.weight": {"size": "> 1K, < 1M", "codec": "topk:ratio=0.02"}})");
  ASSERT_TRUE(shorter.ok()) << shorter.status().what();
  EXPECT_EQ(shorter->at(0), rules->at(1));
  EXPECT_EQ(to_json({}), R"({"version": 1, "rules": []})");
  EXPECT_TRUE(parse_rules(to_json({}))->empty());
}

TEST(Choices, EqualTextsAreEqualChoices) {
  const auto of = [](std::string_view json) { return *Choices::make(*parse_rules(json), defaults()); };
  EXPECT_EQ(of(R"({"*.bias": "fp32"})"),
            of(R"({"version": 1, "rules": [{"match": "*.bias", "codec": "fp32"}]})"));
  EXPECT_EQ(of(R"({"*.bias": "fp32"})").hash(), of(R"({"*.bias": {"codec": "fp32", "why": "few"}})").hash());
  EXPECT_NE(of(R"({"*.bias": "fp32"})").hash(), of(R"({"*.bias": "bf16"})").hash());
  EXPECT_EQ(of(R"({"*.b": {"codec": "bf16", "strategy": "ring", "group": "g"}, "> 1M": "topk"})").shown(),
            "'*.b' bf16 by ring, group g; '> 1000000' topk by server");
}

TEST(Choices, momentum) {
  const Choices c =
      *Choices::make(*parse_rules(R"({"*.bias": "fp32", "*.w": "dgc:ratio=0.1,feedback=momentum"})"),
                     defaults("topk:feedback=momentum"));
  EXPECT_EQ(c.choice("a.bias", 500).spec.feedback.kind, Feedback::kMomentum);
  EXPECT_EQ(c.choice("a.bias", 5), c.choice("other", 5)) << "uncompressed with the other small tensors";
  for (const char* other : {"topk", "topk:feedback=momentum,mu=0.5"}) {
    const std::string text = refused(R"({"*.w": "dgc:feedback=momentum"})", other);
    EXPECT_NE(text.find("rule 1 ('*.w') has dgc:feedback=momentum"), std::string::npos) << text;
    EXPECT_NE(text.find("same feedback=momentum"), std::string::npos) << text;
  }
  // A choice that no tensor can get does not count.
  EXPECT_TRUE(Choices::make(*parse_rules(R"({"*": "dgc:feedback=momentum"})"), defaults("topk")).ok());
}

TEST(Choices, SessionClippingAppliesUnlessARuleOverridesIt) {
  const Choices c =
      *Choices::make(*parse_rules(R"({"*.bias": "fp32", "*.w": "dgc:ratio=0.1", "*.v": "fp8:clip=3"})"),
                     defaults("topk:clip=0.5"));
  for (const char* key : {"a.bias", "a.w", "other"})
    EXPECT_EQ(c.choice(key, 5000).spec.feedback.clip, 0.5) << key;
  EXPECT_EQ(c.choice("other", 5).spec.feedback.clip, 0.5) << "small tensors are clipped too";
  EXPECT_EQ(c.choice("a.v", 5000).spec.feedback.clip, 3);
  EXPECT_EQ(c.choice("a.bias", 5), c.choice("other", 5)) << "uncompressed with the other small tensors";
}

TEST(Choices, ErrorsNameTheRuleAndTheCure) {
  struct Case {
    std::string_view json, rule, says;
  };
  for (const Case& c :
       {Case{"{", "", "not valid JSON"},
        {"[]", "", "must be an object"},
        {R"({"*.bias": "fp32", "*.bias": "bf16"})", "'*.bias'", "occurs twice"},
        {R"({"version": 2, "rules": []})", "'version'", "be 1"},
        {R"({"rules": []})", "'version'", "be 1"},
        {R"({"version": 1, "rules": [], "codec": "fp32"})", "'codec'", "known: version, rules"},
        {R"({"version": 1, "rules": {}})", "'rules'", "must be a list"},
        {R"({"version": 1, "rules": [3]})", "rule 1", "must be an object"},
        {R"({"a": "fp32", "*.bias": "fp23"})", "rule 2 ('*.bias')", "did you mean 'fp32'?"},
        {R"({"*.bias": "topk:ratoi=1"})", "rule 1 ('*.bias')", "did you mean 'ratio'?"},
        {R"({"*.bias": {"codec": 3}})", "rule 1 ('*.bias')", "'codec' must be a string"},
        {R"({"*.bias": 3})", "rule 1 ('*.bias')", "must be a codec"},
        {R"({"*.bias": {"codek": "fp32"}})", "rule 1 ('*.bias')", "did you mean 'codec'?"},
        {R"({"*.bias": {"strategy": "serve"}})", "rule 1 ('*.bias')", "did you mean 'server'?"},
        {R"({"*.bias": {"part_values": 0}})", "rule 1 ('*.bias')", "part_values must be"},
        {R"({"*.bias": {"part_values": -4}})", "rule 1 ('*.bias')", "part_values must be"},
        {R"({"*.bias": {"priority": 1.5}})", "rule 1 ('*.bias')", "priority must be a whole number"},
        {R"({"*.bias": {"match": "x"}})", "rule 1 ('*.bias')", "'match' is the key of the entry"},
        {R"({"> 1Q": "fp32"})", "rule 1", "'1Q' is not a number of values"},
        {R"({"> -1": "fp32"})", "rule 1", "is not a number of values"},
        {R"({"> 1e30": "fp32"})", "rule 1", "is not a number of values"},
        {R"({"< 0": "fp32"})", "rule 1", "less than 0"},
        {R"({"> 5, < 3": "fp32"})", "rule 1", "exclude every tensor"},
        {R"({"": "fp32"})", "rule 1", "'match' is empty"},
        {R"({"*": "fp32", "*.bias": "bf16"})", "rule 2 ('*.bias')", "never applies"},
        {R"({"*": {"codec": "powersgd", "group": "g"}})", "rule 1 ('*')", "uses the rows of one tensor"},
        {R"({"a": {"codec": "fp8", "group": "g"}, "b": {"codec": "bf16", "group": "g"}})", "rule 2 ('b')",
         "a group has one codec"},
        {R"({"a": {"codec": "fp8", "group": "small"}})", "rule 1 ('a')",
         "tensors below 100 values are sent uncompressed"}}) {
    const std::string text = refused(c.json);
    EXPECT_TRUE(text.starts_with("choices: ")) << text;
    EXPECT_NE(text.find(c.rule), std::string::npos) << text;
    EXPECT_NE(text.find(c.says), std::string::npos) << text;
  }
}

TEST(Choices, StatefulCodecsRefuseGroups) {
  Codec remembers = *find_codec("fp16");
  remembers.memory = [](const Settings&, std::size_t n) { return n; };
  const Rule rule{
      .match = "*.w", .codec = Spec{.codec = &remembers, .settings = {}, .feedback = {}}, .group = "g"};
  const Result<Choices> made = Choices::make({rule}, defaults());
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().what().find("keeps a state for each tensor: remove the group"), std::string::npos);
}

}  // namespace
}  // namespace tithe
