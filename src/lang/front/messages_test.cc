// SPDX-License-Identifier: Apache-2.0
// Every mistake that the compiler detects: its position, its message, and that it is reported once.
#include <gtest/gtest.h>

#include "lang/loader.h"
#include "support/mistakes.h"

namespace tithe::lang {
namespace {

using testing::Mistake;
using testing::problems_of;

const std::string kHead = "codec my \"a doc\"\n";

// A program that is in order.
const std::string kGood =
    "codec my \"a doc\"\n"
    "param bits: int = 4 in 2 .. 8 \"bits\"\n"
    "param tau: real = 0.5 in 0 .. 1 \"a size\"\n"
    "param mode: one of even, odd \"a word\"\n"
    "fn twice(v) = v + v\n"
    "block 64\n"
    "encode\n"
    "  size  = largest(abs(x))\n"
    "  level = stochastic_level(x, size, bits)\n"
    "send\n"
    "  size: f32 where not signbit(size)\n"
    "  code: u<bits>[] = u32(level + (1 << (bits - 1)))\n"
    "decode\n"
    "  whole = i32(code) - (1 << (bits - 1))\n"
    "  f32(whole) * size\n";

const Mistake kMistakes[] = {
    {"no_codec", "codec my \"a doc\"", "plan k = 1", "1:1: a program starts with its name"},
    {"open_text", "\"a doc\"", "\"a doc", "1:10: this text does not end on its line"},
    {"odd_character", "block 64", "block 64 $", "6:10: this character has no meaning here"},
    {"bad_number", "block 64", "block 6x4", "6:7: this is no number"},
    {"unknown_section", "block 64", "blok 64", "6:1: 'blok' starts no section"},
    {"missing_bracket", "abs(x))", "abs(x)", "9:3: ')' belongs here, not 'level'"},
    {"two_results", "  whole = i32", "  size\n  whole = i32", "16:3: decode has its result already"},
    {"no_result", "  f32(whole) * size\n", "", "1:7: decode has no result"},
    {"chain", "largest(abs(x))", "if 0 < x < 1 then x else x", "8:20: comparisons do not follow each other"},
    {"word_as_name", "whole = i32", "where = i32", "14:3: 'where' is a word of the language"},
    {"unknown_name", "* size\n", "* sise\n", "15:16: there is no 'sise' here"},
    {"unknown_function", "abs(x)", "abz(x)", "8:19: there is no function 'abz' above this line"},
    {"unknown_word", "6", "if mode is oddd then 64 else 3", "'mode' is never 'oddd'"},
    {"is_of_no_word", "abs(x)", "if bits is 4 then x else x",
     "'is' asks a parameter which of its words was given"},
    {"taken_in_decode", "* size\n", "* x\n", "15:16: 'x' is not known to the receiver"},
    {"unsent_in_decode", "i32(code)", "level", "14:11: 'level' is not known to the receiver"},
    {"draw_in_decode", "* size\n", "* f32(draw(3))\n", "15:20: the receiver does not have this rank's seed"},
    {"reduction_in_decode", "* size\n", "* largest(size)\n", "15:16: decode has no 'largest'"},
    {"second_draw", "size  = largest(abs(x))", "size  = largest(f32(draw(2)))", "this is the second time"},
    {"never_used", "encode\n", "encode\n  idle = x + 1\n", "8:3: 'idle' is never used"},
    {"sent_for_nothing", "* size\n", "\n", "11:3: 'size' is sent, and decode does not use it"},
    {"mixed_types", "abs(x)", "abs(x + tau)", "8:23: one side is f32, the other f64"},
    {"not_a_bool", "not signbit(size)", "size",
     "11:19: what stands behind 'where' is f32, and bool is wanted"},
    {"wrong_result", "f32(whole) * size", "whole", "15:3: what is decoded is i32, and f32 is wanted"},
    {"divides_by_zero", "largest(abs(x))", "sum(x) / largest(abs(x))", "8:20: this can be 0"},
    {"overflow", "i32(code) -", "i32(code) * 2147483647 -", "i32 holds"},
    {"too_large_for_code", "u32(level + (1 << (bits - 1)))", "u32(level + (1 << bits))",
     "12:3: 'code' can be"},
    {"negative_code", "u32(level + (1 << (bits - 1)))", "level", "12:3: 'code' can be"},
    {"no_whole_number", "u32(level + (1 << (bits - 1)))", "u32(x)", "this can be"},
    {"one_for_each", "u<bits>[] =", "u<bits> =", "there is one of it for each value"},
    {"width_not_constant", "u<bits>[]", "u<tau>[]", "12:11: the number of bits is a constant, 1 .. 32"},
    {"no_such_width", "size: f32", "size: u33", "11:9: there is no type 'u33'"},
    {"block_not_constant", "block 64", "block u32(clamp(64 * tau, 1, 64))",
     "6:7: the length of a block is u32"},
    {"block_too_long", "block 64", "block 2000000", "6:7: the length of a block is a constant"},
    {"late_once", "  size: f32", "  once most: f32 = size\n  size: f32",
     "11:8: 'once' is for what is known before the blocks"},
    {"once_for_each", "  code:", "  once code:", "'once' is for one number"},
    {"twice_bound", "  level = ", "  size = ", "9:3: 'size' has a value already"},
    {"name_of_the_language", "  level = ", "  x = ", "9:3: 'x' is a value of the language"},
    {"function_sees_x", "= v + v", "= v + x\nplan k = twice(1)", "a function sees its arguments, not 'x'"},
    {"wrong_count", "signbit(size)", "signbit(size, 1)", "11:23: 'signbit' takes 1 argument, not 2"},
    {"too_many_bits", "abs(x)", "from_half_bits(bits(x))", "8:19: this can be more than 16 bits"},
    {"param_outside", "0.5 in 0 .. 1", "5 in 0 .. 1", "3:7: 'tau' is 5 where none is given"},
    {"param_of_fractions", "int = 4 in 2 .. 8", "int = 4 in 2.5 .. 8",
     "2:7: 'bits' is a whole number, and so are its ends"},
    {"param_of_four_billion", "int = 4 in 2 .. 8", "int = 4 in 0 .. 4294967295",
     "2:7: 'bits' has 4294967296 values, and a program is checked for each: 256 are the most"},
    {"param_beyond_counting", "int = 4 in 2 .. 8", "int = 4 in -1e300 .. 1e300",
     "2:7: 'bits' has 2e+300 values"},
    {"per_nothing", "size: f32 where", "size: f32 per 0 where", "11:9: 'per' is for a table of the bytes"},
    {"lengths_of_no_values", "  size: f32", "  table bytes: u16 per 0\n  size: f32",
     "11:16: a whole number of blocks is wanted"},
    {"too_many_combinations", "int = 4 in 2 .. 8", "int = 4 in 2 .. 150", "combine in 298 ways"},
    {"unknown_claim", "block 64", "block 64\nclaim perfect", "7:7: nobody tests 'perfect'"},
    {"sent_by_values", "size: f32 where", "size: f32 when tau > 0 where",
     "11:18: the settings say whether it is sent"},
    {"never_sent", "  size: f32 where not signbit(size)\n  code: u<bits>[]",
     "  size: f32 when bits > 8\n  code: u<bits>[] when bits > 8", "11:3: in some settings nothing is sent"},
    {"pairs_among_others", "send\n", "send\n  pairs where x > 0\n", "11:3: pairs are sent alone"},
    {"late_table", "  code:", "  table code:", "a table has one number of each block"},
    {"table_behind_blocks",
     "  code:", "  table peak: f32 = size\n  code:", "a table stands in front of the blocks"},
    {"width_of_a_block",
     "u<bits>[] =", "u<size>[] =", "the number of bits is a constant, 1 .. 32, or one for each value"},
    {"width_too_large", "code: u<bits>[]", "half: u1[] = x > 0\n  code: u<(32 + u32(half))>[]",
     "this can be 32 .. 33, and a code has at most 32 bits"},
    {"trits_hold_three", "u<bits>[] = u32(level + (1 << (bits - 1)))",
     "trits[] = u32(x > 0) + u32(x > 1) + 1", "'code' can be 1 .. 3, and a trit holds 0 .. 2"},
    {"places_are_bools", "u<bits>[] =", "places[] =", "'code' is u32, and bool is wanted"},
    {"trits_of_one", "u<bits>[] =", "trits =", "there is one of it for each value"},
    {"same_lengths", "  size: f32", "  table bytes: u16 per 128\n  size: f32",
     "11:9: all blocks have the same bytes here"},
    {"lengths_of_odd_blocks", "  size: f32", "  table bytes: u16 per 100\n  size: f32",
     "a whole number of blocks is wanted"},
    {"blocks_of_values", "largest(abs(x))", "largest_of_blocks(abs(x))", "there is one of it for each value"},
    {"blocks_of_blocks", "largest(abs(x))", "largest_of_blocks(largest(abs(x)) + mean_of_blocks(mean(x)))",
     "all blocks are looked at once"},
    {"where_of_blocks", "largest(abs(x))", "largest_of_blocks(mean(x) where x > 0)", "has no 'where'"},
    {"recursion", "= v + v\nblock 64", "= twice(v)\nblock twice(64)", "5:15: 'twice' cannot be called here"},
    {"function_of_another_type", "largest(abs(x))", "largest(twice(x < 0))", "5:15: '+' is for numbers"},
    {"scan_of_floats", "largest(abs(x))", "largest(f32(scan(x)))",
     "8:28: 'scan' adds u32 or counts bools, and this is f32"},
    {"scan_in_decode", "* size\n", "* f32(scan(code))\n", "15:20: decode has no 'scan'"},
    {"table_as_number", "largest(abs(x))", "largest(abs(x)) + sort(x)",
     "8:29: this is a table, and a number is wanted"},
    {"table_sent", "size: f32", "size: f32 = sort(x)", "this is a table, and a number is wanted"},
    {"entry_of_a_number", "largest(abs(x))", "largest(entry(x, 1))", "8:25: this is no table"},
    {"entry_below_zero", "largest(abs(x))", "entry(sort(x), i32(len) - 9)",
     "8:26: this can be -8 .. 55, and entries are numbered from 0 on"},
    {"entries_outside", "largest(abs(x))", "f32(entry(histogram(bits(x) >> 23, 256), 0))",
     "8:31: this can be 0 .. 511, and there are the entries 0 .. 255"},
    {"entries_not_constant", "largest(abs(x))", "f32(entry(histogram(bits(x) >> 31, len), 0))",
     "the number of entries is a constant, 1 .. 4096"},
    {"sort_in_decode", "* size\n", "* entry(sort(size), 0)\n", "15:22: decode has no 'sort'"},
    {"long_block_sorted", "block 64\nencode\n  size  = largest(abs(x))",
     "block 10000\nencode\n  size  = entry(sort(x), 0)",
     "8:17: values are sorted within a block, of at most 8192 of them"},
    {"reduce_by_max", "largest(abs(x))", "reduce(max, 0, x)", "8:18: 'max' is the language's"},
    {"reduce_by_nobody", "largest(abs(x))", "reduce(twise, 0, x)", "8:18: there is no function 'twise'"},
    {"reduce_by_one", "largest(abs(x))", "reduce(twice, 0, x)", "8:18: 'twice' has to make one value of two"},
    {"reduce_from_a_value", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn more(a, b) = max(a, b)\nblock 64\nencode\n  size  = reduce(more, x, x)",
     "8:24: the start is known before the values"},
    {"reduce_with_draws", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn odd(a, b) = a + f32(draw(2))\nblock 64\nencode\n  size  = reduce(odd, 0, x)",
     "the function makes one value of two, and this one looks at more"},
    {"reduce_that_overflows", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn add(a, b) = a + b\nblock 64\nencode\n  size  = f32(reduce(add, 0, i32(clamp(x, 0, 9))))",
     "5:16: this can be -4294967296"},
    {"reduce_in_decode", "* size\n", "* reduce(twice, 0, size)\n", "15:16: decode has no 'reduce'"},
    {"where_of_no_reduction", "abs(x)", "abs(x where x > 0)", "8:31: 'abs' has no 'where'"},
};

class Messages : public ::testing::TestWithParam<Mistake> {};

TEST_P(Messages, SayWhatIsWrongAndWhere) { testing::expect_said(kGood, GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Messages, ::testing::ValuesIn(kMistakes), testing::name_of);

TEST(LangMessages, AGoodProgramHasNone) { EXPECT_EQ(problems_of(kGood), ""); }

TEST(LangMessages, ShowTheLineACaretAndACure) {
  EXPECT_EQ(problems_of(kHead + "send\n  v: f32[] = x\ndecode\n  x\n"),
            "my.codec:5:3: 'x' is not known to the receiver\n"
            "    5 |   x\n"
            "      |   ^\n"
            "      = send it, or compute it from what is sent\n");
}

TEST(LangMessages, InAFunctionSayWhoCalledIt) {
  EXPECT_EQ(problems_of(kHead + "fn half(v) = v / 2 + len\nsend\n  v: f32[] = half(x)\ndecode\n  v\n"),
            "my.codec:2:22: a function sees its arguments, not 'len'\n"
            "    2 | fn half(v) = v / 2 + len\n"
            "      |                      ^^^\n"
            "      = make it an argument\n"
            "      = called from 4:14: half(x)\n");
}

TEST(LangMessages, SeveralAreToldAtOnceInTheOrderOfTheText) {
  const std::string got = problems_of(kHead + "encode\n  a = b + \n  c = (x\nsend\n  d: q8\n  e f32\n");
  for (const char* line : {"my.codec:3:11: ", "my.codec:4:9: ", "my.codec:6:6: ", "my.codec:7:5: "})
    EXPECT_NE(got.find(line), std::string::npos) << got;
}

TEST(LangMessages, AreNeverMoreThanTwenty) {
  std::string text = kHead + "encode\n";
  for (int k = 0; k < 100; ++k) text += "  a" + std::to_string(k) + " = nobody\n";
  Problems problems;
  EXPECT_EQ(compile({"my.codec", text + "send\n  v: f32[] = x\ndecode\n  v\n"}, problems), nullptr);
  EXPECT_EQ(problems.count(), kMostProblems);
}

TEST(LangMessages, DeepNestingIsRefused) {
  const std::string deep(5000, '(');
  EXPECT_NE(problems_of(kHead + "plan k = " + deep + "\n").find("too deep"), std::string::npos);
  const std::string minus(5000, '-');
  EXPECT_NE(problems_of(kHead + "plan k = " + minus + "1\n").find("too deep"), std::string::npos);
}

TEST(LangMessages, FunctionsThatGrowWithoutEndAreRefused) {
  std::string text = kHead + "fn f0(v) = v + v\n";
  for (int k = 1; k < 40; ++k)
    text += "fn f" + std::to_string(k) + "(v) = f" + std::to_string(k - 1) + "(v) + f" +
            std::to_string(k - 1) + "(v)\n";
  text += "send\n  v: f32[] = f39(x)\ndecode\n  v\n";
  EXPECT_NE(problems_of(text).find("the program is too large"), std::string::npos);
}

TEST(LangMessages, OddFilesAreRead) {
  EXPECT_EQ(problems_of("\xef\xbb\xbf"
                        "codec my \"a doc\"\r\nsend\r\n\tv: f32[] = x\r\ndecode\r\n\tv"),
            "");
  EXPECT_NE(problems_of(""), "");
  EXPECT_NE(problems_of(std::string("codec my \"d\"\n\0\n", 14)).find("no meaning"), std::string::npos);
  EXPECT_NE(problems_of("codec my \"d\"\nplan caf\xc3\xa9 = 1\n").find("no meaning"), std::string::npos);
}

}  // namespace
}  // namespace tithe::lang
