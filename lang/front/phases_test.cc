// SPDX-License-Identifier: Apache-2.0
// Programs of several phases: the rejected ones.
#include <gtest/gtest.h>

#include "lang/loader.h"
#include "support/invalid_programs.h"

namespace tithe::lang {
namespace {

using testing::InvalidProgram;
using testing::problems_of;

const std::string kGood =
    "codec my \"a doc\"\n"
    "block 64\n"
    "phase sizes by max\n"
    "send\n"
    "  size: f32 = largest(abs(x)) where not signbit(size)\n"
    "phase levels by sum\n"
    "encode\n"
    "  level = stochastic_level(x, size, 4)\n"
    "send\n"
    "  code: int[] = level\n"
    "decode\n"
    "  f32(code) * (size / 7)\n";

const InvalidProgram kInvalidPrograms[] = {
    {"unknown_law", "by max", "by mean", "3:16: unknown law 'mean'"},
    {"nearly_a_law", "by max", "by mx", "did you mean 'max'?"},
    {"no_law", "by max", "", "a phase must state how its payloads combine"},
    {"max_last", "by sum", "by max", "6:17: the last phase cannot combine by max"},
    {"decode_first", "by max", "by decode", "3:16: a phase before another cannot combine by decode"},
    {"floats_summed", "int[] = level", "f32[] = f32(level)",
     "10:9: floats cannot be summed: their sum depends on the order of ranks"},
    {"codes_summed", "int[] = level", "u4[] = u32(level + 7)",
     "10:9: an item with a fixed number of bits cannot be summed"},
    {"maxima_as_sums", "f32 = largest(abs(x)) where not signbit(size)", "int[] = u32(x > 0)",
     "5:9: 'int[]' requires a phase by sum"},
    {"sum_of_floats", "int[] = level", "int[] = x * f32(level)",
     "10:3: 'code' is f32; only whole numbers can be summed"},
    {"sum_of_many", "stochastic_level(x, size, 4)", "i32(clamp(x, -200, 200))",
     "10:3: 'code' can be -200 .. 200; in a sum of 256 ranks it must have 2 to 256 different values"},
    {"sum_of_nothing", "int[] = level", "int[] = level * 0", "must have 2 to 256 different values"},
    {"never_sent", "(size / 7)", "(peak / 7)", "12:16: 'peak' is not defined here"},
    {"sent_later", "largest(abs(x))", "largest(abs(x) * f32(code))",
     "'code' is sent in the later phase 'levels'"},
    {"never_read", "phase levels", "  most: f32 = largest(x)\nphase levels",
     "6:3: 'most' is sent, but the phase 'levels' does not use it"},
    {"no_multiple", "f32(code) * (size / 7)", "if code > 0 then size else -size",
     "12:3: this is not a multiple of the summed item: decoding a sum must equal the sum of the decoded "
     "values of the ranks"},
    {"more_than_a_multiple", "f32(code) *", "size + f32(code) *",
     "12:3: this is not a multiple of the summed item: decoding a sum must equal the sum of the decoded "
     "values of the ranks"},
    {"square", "f32(code) *", "f32(code * code) *",
     "12:3: this is not a multiple of the summed item: decoding a sum must equal the sum of the decoded "
     "values of the ranks"},
    {"where_of_a_sum", "int[] = level", "int[] = level where code > 0",
     "a summed item cannot have 'where': its range is known"},
    {"where_of_two_maxima", "  size: f32 = largest(abs(x)) where not signbit(size)",
     "  low: f32 = smallest(x)\n  size: f32 = largest(x) where low <= size",
     "6:32: this condition may fail for maxima, because each maximum can come from another rank"},
    {"maxima_of_places", "f32 = largest(abs(x)) where not signbit(size)", "places[] = x > 0",
     "5:9: a maximum requires items of the same size on all ranks"},
    {"decode_in_front", "phase levels", "decode\n  size\nphase levels",
     "7:3: only the last phase decodes; a phase sees the items of the previous phase"},
    {"nothing_decoded", "decode\n  f32(code) * (size / 7)\n", "", "6:7: the last phase decodes nothing"},
    {"same_phase_twice", "phase levels", "phase sizes", "6:7: the phase 'sizes' is defined twice"},
    {"outside_of_phases", "block 64\n", "block 64\nencode\n  a = x\n",
     "5:1: the sections above belong to no phase"},
    {"name_of_the_other_phase", "  level = stoch", "  size  = stoch",
     "8:3: 'size' is an item of the previous phase"},
    {"two_sums", "int[] = level\n", "int[] = level\n  more: int[] = level\n",
     "11:9: a phase can sum only one array"},
    {"one_sum", "int[] = level", "int = level", "this item has one element per value"},
    {"pairs_in_a_phase", "  code: int[] = level\n", "  pairs where x > 0\n",
     "pairs must be the only item, cover all values, and need no decode"},
    {"values_of_no_indices",
     "encode\n  level = stochastic_level(x, size, 4)\nsend\n  code: int[] = level\n"
     "decode\n  f32(code) * (size / 7)\n",
     "send\n  values at indices\n", "values at indices must be the only item, and need no decode"},
    {"two_sends", "encode\n", "send\n  a: int[] = u32(x > 0)\nencode\n", "a phase has one 'send'"},
};

class PhaseMessages : public ::testing::TestWithParam<InvalidProgram> {};

TEST_P(PhaseMessages, NameTheErrorAndItsPosition) { testing::expect_problems(kGood, GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, PhaseMessages, ::testing::ValuesIn(kInvalidPrograms), testing::name_of);

TEST(LangPhases, ValidProgramHasNoProblems) { EXPECT_EQ(problems_of(kGood), ""); }

const std::string kHead = "codec my \"a doc\"\n";

TEST(LangPhases, MessagesOfLists) {
  EXPECT_NE(problems_of(kHead + "phase a by max\nsend\n  values at indices\n")
                .find("the last phase cannot combine by "),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by sum\nsend\n  values at indices\n")
                .find("4:3: 'values' requires indices from the previous phase"),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by max\nsend\n  indices where x > 0\nphase b by sum\nsend\n"
                                "  values at indices\n")
                .find("4:3: indices without values require a phase by leader"),
            std::string::npos);
  EXPECT_NE(problems_of(kHead + "phase a by leader\nsend\n  pairs where x > 0\nphase b by sum\nsend\n"
                                "  values at indices\n")
                .find("4:3: pairs require a codec of one phase"),
            std::string::npos);
}

// A payload is checked by itself.
TEST(LangPhases, MessagesOfMissingPhaseInformation) {
  const std::string text =
      kHead +
      "block 64\nphase a by leader\nsend\n  wide: u4 = u32(clamp(largest(abs(x)), 0, 15))\n"
      "phase b by decode\nsend\n  half: u<WIDTH>[] = u32(clamp(x, 0, f32(wide))) WHERE\n"
      "decode\n  f32(half)\n";
  const auto with = [&](const char* width, const char* where) {
    std::string made = text;
    made.replace(made.find("WIDTH"), 5, width);
    made.replace(made.find("WHERE"), 5, where);
    return problems_of(made);
  };
  EXPECT_EQ(with("4", ""), "");
  EXPECT_NE(with("wide", "").find("the number of bits must follow from items of the same payload"),
            std::string::npos)
      << with("wide", "");
  EXPECT_NE(with("4", "where half <= wide")
                .find("'where' checks one payload, which does not contain items of the previous phase"),
            std::string::npos);
}

TEST(LangPhases, MessagesOfManyPhases) {
  std::string text = kHead + "block 64\nphase p0 by max\nsend\n  a0: u8 = min(count(x > 0), 255)\n";
  for (int k = 1; k < 4; ++k)
    text += "phase p" + std::to_string(k) + " by max\nsend\n  a" + std::to_string(k) + ": u8 = a" +
            std::to_string(k - 1) + "\n";
  const std::string last = "phase q by decode\nsend\n  s: u1[] = x > f32(a3)\ndecode\n  f32(u32(s))\n";
  EXPECT_NE(problems_of(text + last).find("too many phases: a codec has at most 4"), std::string::npos);
  const std::string three = text.substr(0, text.find("phase p2")) +
                            "phase q by decode\nsend\n  s: u1[] = x > f32(a0)\ndecode\n  f32(u32(s))\n";
  EXPECT_NE(problems_of(three).find(
                "'a0' was sent in the phase 'p0'; a phase can read only the items of the previous phase"),
            std::string::npos)
      << problems_of(three);
}

}  // namespace
}  // namespace tithe::lang
