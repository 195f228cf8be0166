// SPDX-License-Identifier: Apache-2.0
#include "tithe/seam/spec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tithe/seam/catalogue.h"

namespace tithe {
namespace {

TEST(Spec, DefaultsRoundTripForEveryCodec) {
  for (const Codec* c : all_codecs()) {
    auto spec = parse_spec(c->name);
    ASSERT_TRUE(spec.ok()) << spec.status().what();
    EXPECT_EQ(to_string(*spec), c->name);
    EXPECT_EQ(spec->feedback.kind, c->traits.lossless ? Feedback::kNone : Feedback::kResidual);
  }
}

TEST(Spec, RefusalsNameTheCure) {
  const auto why = [](std::string_view text) {
    auto spec = parse_spec(text);
    EXPECT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), Code::kInvalid);
    return spec.status().what();
  };
  EXPECT_NE(why("fp23").find("did you mean 'fp32'?"), std::string::npos);
  EXPECT_NE(why("fp32:").find("nothing after the colon"), std::string::npos);
  EXPECT_NE(why("fp32:mu").find("expected name=value"), std::string::npos);
  EXPECT_NE(why("fp32:mu=2").find("must be in 0 .. 1"), std::string::npos);
  EXPECT_NE(why("fp32:mu=x").find("not a number"), std::string::npos);
  EXPECT_NE(why("fp32:mu=0.5,mu=0.5").find("occurs twice"), std::string::npos);
  EXPECT_NE(why("fp32:feedbak=none").find("did you mean 'feedback'?"), std::string::npos);
  EXPECT_NE(why("onebit:mask=on").find("requires a codec that selects values"), std::string::npos);
  EXPECT_NE(why("fp32:feedback=residual").find("lossless"), std::string::npos);
}

// A fraction of a count has no meaning, and a codec would truncate it.
TEST(Spec, RefusesFractionsOfCounts) {
  const auto why = [](const std::string& text) {
    auto spec = parse_spec(text);
    EXPECT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), Code::kInvalid);
    return spec.status().what();
  };
  EXPECT_EQ(why("topk:block=100.7"), "topk: block=100.7: must be a whole number, for example 100 or 101");
  for (const char* param : {"fft:bits", "fft:mantissa", "fft:block", "rangefloat:bits", "rangefloat:mantissa",
                            "powersgd:rank", "powersgd:cols", "thc:workers", "terngrad_shared:workers"})
    EXPECT_NE(why(std::string(param) + "=4.5").find("=4.5: must be"), std::string::npos) << param;
  EXPECT_NE(why("powersgd:cols=99999.5").find("for example 99999 or 100000"), std::string::npos);
  EXPECT_FALSE(parse_spec("nuqsgd:bits=4.5").ok());  // `int` in a program: a list of words
  for (const char* text : {"topk:block=100", "topk:block=1e2", "powersgd:rank=4.0", "eden:bits=1.6",
                           "topk:ratio=0.37", "rangefloat:range=0.5", "dgc:cap=1.5", "dragonn:slots=0.5"})
    EXPECT_TRUE(parse_spec(text).ok()) << parse_spec(text).status().what();
}

TEST(Spec, CountsHaveWholeDefaultsAndRanges) {
  std::size_t counts = 0;
  for (const Codec* codec : all_codecs())
    for (const ParamSpec& p : codec->params) {
      if (!p.whole) continue;
      ++counts;
      for (const double value : {p.fallback, p.low, p.high})
        EXPECT_EQ(value, std::floor(value)) << codec->name << ' ' << p.name;
    }
  EXPECT_GE(counts, 8U);
}

// Without momentum there is no velocity to mask.
TEST(Spec, RefusesAMaskWithoutMomentum) {
  for (const char* text : {"topk:mask=on", "topk:mask=on,feedback=decay", "topk:mask=on,feedback=none"}) {
    const auto spec = parse_spec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_NE(spec.status().what().find("add feedback=momentum"), std::string::npos) << spec.status().what();
  }
  EXPECT_TRUE(parse_spec("topk:mask=on,feedback=momentum").ok());
}

// The residual of `qsgd:norm=l2` can grow by a factor of up to 1.8 per round, and training diverges.
TEST(Spec, RefusesUnboundedFeedbackWithTheCures) {
  for (const char* text :
       {"qsgd:norm=l2", "qsgd:norm=l2,feedback=residual", "qsgd:norm=l2,feedback=momentum",
        "qsgd:norm=l2,feedback=decay", "qsgd:bits=2,norm=l2,bucket=64", "qsgd_shared:norm=l2",
        "nuqsgd:bits=3,norm=l2", "nuqsgd:bits=2,norm=l2,bucket=64", "minmax:bits=1"}) {
    const auto spec = parse_spec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.status().code(), Code::kInvalid);
    EXPECT_NE(spec.status().what().find("add feedback=none"), std::string::npos) << spec.status().what();
  }
  const std::string why = parse_spec("qsgd:norm=l2").status().what();
  for (const char* cure : {"bits=6", "norm=max", "bucket=128"})
    EXPECT_NE(why.find(cure), std::string::npos) << why;
  for (const char* text : {"qsgd:norm=l2,feedback=none", "qsgd:norm=l2,bits=6", "qsgd:norm=l2,bucket=128",
                           "qsgd:bits=2", "qsgd:norm=l2,feedback=decay,beta=0.4", "nuqsgd:norm=l2",
                           "minmax:bits=2", "terngrad", "minmax:bits=1,feedback=none", "threshold:tau=100"})
    EXPECT_TRUE(parse_spec(text).ok()) << parse_spec(text).status().what();
}

}  // namespace
}  // namespace tithe
