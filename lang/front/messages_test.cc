// SPDX-License-Identifier: Apache-2.0
// Every mistake that the compiler detects: its position, its message, and that it is reported once.
#include <gtest/gtest.h>

#include "lang/loader.h"
#include "support/invalid_programs.h"

namespace tithe::lang {
namespace {

using testing::InvalidProgram;
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

const InvalidProgram kInvalidPrograms[] = {
    {"no_codec", "codec my \"a doc\"", "plan k = 1", "1:1: a program must start with its name"},
    {"open_text", "\"a doc\"", "\"a doc", "1:10: unterminated string"},
    {"odd_character", "block 64", "block 64 $", "6:10: unexpected character"},
    {"bad_number", "block 64", "block 6x4", "6:7: invalid number"},
    {"unknown_section", "block 64", "blok 64", "6:1: 'blok' does not start a section"},
    {"missing_bracket", "abs(x))", "abs(x)", "9:3: expected ')', not 'level'"},
    {"two_results", "  whole = i32", "  size\n  whole = i32", "16:3: decode has a second result"},
    {"no_result", "  f32(whole) * size\n", "", "1:7: decode has no result"},
    {"chain", "largest(abs(x))", "if 0 < x < 1 then x else x", "8:20: comparisons cannot be chained"},
    {"word_as_name", "whole = i32", "where = i32", "14:3: 'where' is a word of the language"},
    {"unknown_name", "* size\n", "* sise\n", "15:16: 'sise' is not defined here"},
    {"unknown_function", "abs(x)", "abz(x)", "8:19: no function 'abz' is defined above this line"},
    {"unknown_word", "6", "if mode is oddd then 64 else 3", "'mode' is never 'oddd'"},
    {"is_of_no_word", "abs(x)", "if bits is 4 then x else x",
     "'is' compares a word parameter with one of its words"},
    {"taken_in_decode", "* size\n", "* x\n", "15:16: 'x' is not known to the receiver"},
    {"unsent_in_decode", "i32(code)", "level", "14:11: 'level' is not known to the receiver"},
    {"draw_in_decode", "* size\n", "* f32(draw(3))\n", "15:20: the receiver cannot repeat this rank's draws"},
    {"reduction_in_decode", "* size\n", "* largest(size)\n",
     "15:16: 'largest' cannot be used in decode, which works value by value"},
    {"second_draw", "size  = largest(abs(x))", "size  = largest(f32(draw(2)))", "this is the second draw"},
    {"never_used", "encode\n", "encode\n  idle = x + 1\n", "8:3: 'idle' is never used"},
    {"sent_for_nothing", "* size\n", "\n", "11:3: 'size' is sent, but decode does not use it"},
    {"mixed_types", "abs(x)", "abs(x + tau)", "8:23: the operands have different types: f32 and f64"},
    {"not_a_bool", "not signbit(size)", "size", "11:19: the condition after 'where' is f32; it must be bool"},
    {"wrong_result", "f32(whole) * size", "whole", "15:3: the decoded value is i32; it must be f32"},
    {"divides_by_zero", "largest(abs(x))", "sum(x) / largest(abs(x))", "8:20: the divisor can be 0"},
    {"overflow", "i32(code) -", "i32(code) * 2147483647 -", "i32 holds"},
    {"too_large_for_code", "u32(level + (1 << (bits - 1)))", "u32(level + (1 << bits))",
     "12:3: 'code' can be "},
    {"negative_code", "u32(level + (1 << (bits - 1)))", "level", "12:3: 'code' can be "},
    {"no_whole_number", "u32(level + (1 << (bits - 1)))", "u32(x)", "this can be "},
    {"one_for_each", "u<bits>[] =", "u<bits> =", "the item holds one"},
    {"width_not_constant", "u<bits>[]", "u<tau>[]",
     "12:11: the number of bits must be a constant, 1 .. 32, or one per value"},
    {"no_such_width", "size: f32", "size: u33", "11:9: unknown type 'u33'"},
    {"block_not_constant", "block 64", "block u32(clamp(64 * tau, 1, 64))",
     "6:7: the length of a block is u32"},
    {"block_too_long", "block 64", "block 2000000", "6:7: the length of a block must be a constant, 1 .. "},
    {"late_once", "  size: f32", "  once most: f32 = size\n  size: f32",
     "11:8: an item with 'once' must be known before the blocks"},
    {"once_for_each", "  code:", "  once code:", "an item with 'once' must be one number"},
    {"twice_bound", "  level = ", "  size = ", "9:3: 'size' is defined twice"},
    {"name_of_the_language", "  level = ", "  x = ", "9:3: 'x' is a name of the language"},
    {"function_sees_x", "= v + v", "= v + x\nplan k = twice(1)",
     "a function can use only its arguments, not 'x'"},
    {"wrong_count", "signbit(size)", "signbit(size, 1)", "11:23: 'signbit' takes 1 argument, not 2"},
    {"too_many_bits", "abs(x)", "from_half_bits(bits(x))", "8:19: this can be more than 16 bits"},
    {"param_outside", "0.5 in 0 .. 1", "5 in 0 .. 1", "3:7: 'tau' has the default 5, which must be in "},
    {"param_of_fractions", "int = 4 in 2 .. 8", "int = 4 in 2.5 .. 8",
     "2:7: 'bits' is an int: its default and limits must be whole numbers"},
    {"param_of_four_billion", "int = 4 in 2 .. 8", "int = 4 in 0 .. 4294967295",
     "2:7: 'bits' has 4294967296 values; at most 256 are allowed, because the program is checked for each "
     "value"},
    {"param_beyond_counting", "int = 4 in 2 .. 8", "int = 4 in -1e300 .. 1e300",
     "2:7: 'bits' has 2e+300 values; at most "},
    {"per_nothing", "size: f32 where", "size: f32 per 0 where",
     "11:9: 'per' is only for tables of byte counts"},
    {"lengths_of_no_values", "  size: f32", "  table bytes: u16 per 0\n  size: f32",
     "11:16: this must be a multiple of the block length "},
    {"too_many_combinations", "int = 4 in 2 .. 8", "int = 4 in 2 .. 150", "have 298 combinations"},
    {"unknown_claim", "block 64", "block 64\nclaim perfect", "7:7: unknown claim 'perfect'"},
    {"sent_by_values", "size: f32 where", "size: f32 when tau > 0 where",
     "11:18: the condition after 'when' must depend only on word and int parameters"},
    {"never_sent", "  size: f32 where not signbit(size)\n  code: u<bits>[]",
     "  size: f32 when bits > 8\n  code: u<bits>[] when bits > 8",
     "11:3: with some settings no item is sent"},
    {"pairs_among_others", "send\n", "send\n  pairs where x > 0\n",
     "11:3: pairs must be the only item, cover all values, and need no decode"},
    {"late_table", "  code:", "  table code:", "an entry of a table must be one number per block"},
    {"table_behind_blocks",
     "  code:", "  table peak: f32 = size\n  code:", "a table must precede the items of blocks"},
    {"width_of_a_block",
     "u<bits>[] =", "u<size>[] =", "the number of bits must be a constant, 1 .. 32, or one per value"},
    {"width_too_large", "code: u<bits>[]", "half: u1[] = x > 0\n  code: u<(32 + u32(half))>[]",
     "this can be 32 .. 33; a code has at most 32 bits"},
    {"trits_hold_three", "u<bits>[] = u32(level + (1 << (bits - 1)))",
     "trits[] = u32(x > 0) + u32(x > 1) + 1", "'code' can be 1 .. 3; a trit holds 0 .. 2"},
    {"places_are_bools", "u<bits>[] =", "places[] =", "'code' is u32; it must be bool"},
    {"trits_of_one", "u<bits>[] =", "trits =", "this item has one element per value"},
    {"same_lengths", "  size: f32", "  table bytes: u16 per 128\n  size: f32",
     "11:9: all blocks have the same number of bytes"},
    {"lengths_of_odd_blocks", "  size: f32", "  table bytes: u16 per 100\n  size: f32",
     "this must be a multiple of the block length "},
    {"blocks_of_values", "largest(abs(x))", "largest_of_blocks(abs(x))", "this has one element per value"},
    {"blocks_of_blocks", "largest(abs(x))", "largest_of_blocks(largest(abs(x)) + mean_of_blocks(mean(x)))",
     "all blocks are read only once, and this value is known after that"},
    {"where_of_blocks", "largest(abs(x))", "largest_of_blocks(mean(x) where x > 0)", "has no 'where'"},
    {"recursion", "= v + v\nblock 64", "= twice(v)\nblock twice(64)", "5:15: 'twice' cannot be called here"},
    {"function_of_another_type", "largest(abs(x))", "largest(twice(x < 0))", "5:15: '+' requires numbers"},
    {"scan_of_floats", "largest(abs(x))", "largest(f32(scan(x)))",
     "8:28: 'scan' requires u32 or bool, but this is f32"},
    {"scan_in_decode", "* size\n", "* f32(scan(code))\n",
     "15:20: 'scan' cannot be used in decode, which works value by value"},
    {"table_as_number", "largest(abs(x))", "largest(abs(x)) + sort(x)",
     "8:29: this is a table; a number is required"},
    {"table_sent", "size: f32", "size: f32 = sort(x)", "this is a table; a number is required"},
    {"entry_of_a_number", "largest(abs(x))", "largest(entry(x, 1))", "8:25: this is not a table"},
    {"entry_below_zero", "largest(abs(x))", "entry(sort(x), i32(len) - 9)",
     "8:26: this can be -8 .. 55; entries are numbered from 0"},
    {"entries_outside", "largest(abs(x))", "f32(entry(histogram(bits(x) >> 23, 256), 0))",
     "8:31: this can be 0 .. 511; the table has the entries 0 .. 255"},
    {"entries_not_constant", "largest(abs(x))", "f32(entry(histogram(bits(x) >> 31, len), 0))",
     "the number of entries must be a constant, 1 .. 4096"},
    {"sort_in_decode", "* size\n", "* entry(sort(size), 0)\n",
     "15:22: 'sort' cannot be used in decode, which works value by value"},
    {"long_block_sorted", "block 64\nencode\n  size  = largest(abs(x))",
     "block 10000\nencode\n  size  = entry(sort(x), 0)",
     "8:17: values can be sorted only in blocks of at most 8192 values"},
    {"reduce_by_max", "largest(abs(x))", "reduce(max, 0, x)",
     "8:18: 'max' is a function of the language; a function of the file is required"},
    {"reduce_by_nobody", "largest(abs(x))", "reduce(twise, 0, x)",
     "8:18: no function 'twise' is defined above this line"},
    {"reduce_by_one", "largest(abs(x))", "reduce(twice, 0, x)", "8:18: 'twice' must have two arguments"},
    {"reduce_from_a_value", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn more(a, b) = max(a, b)\nblock 64\nencode\n  size  = reduce(more, x, x)",
     "8:24: the start value must be known before the values"},
    {"reduce_with_draws", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn odd(a, b) = a + f32(draw(2))\nblock 64\nencode\n  size  = reduce(odd, 0, x)",
     "the function may use only its two arguments"},
    {"reduce_that_overflows", "fn twice(v) = v + v\nblock 64\nencode\n  size  = largest(abs(x))",
     "fn add(a, b) = a + b\nblock 64\nencode\n  size  = f32(reduce(add, 0, i32(clamp(x, 0, 9))))",
     "5:16: this can be -4294967296"},
    {"reduce_in_decode", "* size\n", "* reduce(twice, 0, size)\n",
     "15:16: 'reduce' cannot be used in decode, which works value by value"},
    {"where_of_no_reduction", "abs(x)", "abs(x where x > 0)", "8:31: 'abs' has no 'where'"},
};

class Messages : public ::testing::TestWithParam<InvalidProgram> {};

TEST_P(Messages, NameTheErrorAndItsPosition) { testing::expect_problems(kGood, GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Messages, ::testing::ValuesIn(kInvalidPrograms), testing::name_of);

TEST(LangMessages, ValidProgramHasNone) { EXPECT_EQ(problems_of(kGood), ""); }

TEST(LangMessages, ShowTheLineACaretAndACure) {
  EXPECT_EQ(problems_of(kHead + "send\n  v: f32[] = x\ndecode\n  x\n"),
            "my.codec:5:3: 'x' is not known to the receiver\n"
            "    5 |   x\n"
            "      |   ^\n"
            "      = send it, or compute it from sent items\n");
}

TEST(LangMessages, InAFunctionNameTheCaller) {
  EXPECT_EQ(problems_of(kHead + "fn half(v) = v / 2 + len\nsend\n  v: f32[] = half(x)\ndecode\n  v\n"),
            "my.codec:2:22: a function can use only its arguments, not 'len'\n"
            "    2 | fn half(v) = v / 2 + len\n"
            "      |                      ^^^\n"
            "      = make it an argument\n"
            "      = called from 4:14: half(x)\n");
}

TEST(LangMessages, SeveralAreReportedInTextOrder) {
  const std::string got = problems_of(kHead + "encode\n  a = b + \n  c = (x\nsend\n  d: q8\n  e f32\n");
  for (const char* line : {"my.codec:3:11: ", "my.codec:4:9: ", "my.codec:6:6: ", "my.codec:7:5: "})
    EXPECT_NE(got.find(line), std::string::npos) << got;
}

TEST(LangMessages, AreNeverMoreThanTwenty) {
  std::string text = kHead + "encode\n";
  for (int k = 0; k < 100; ++k) text += "  a" + std::to_string(k) + " = nobody\n";
  Problems problems;
  EXPECT_EQ(compile({"my.codec", text + "send\n  v: f32[] = x\ndecode\n  v\n"}, problems), nullptr);
  EXPECT_EQ(problems.count(), kMaxProblems);
}

TEST(LangMessages, DeepNestingIsRefused) {
  const std::string deep(5000, '(');
  EXPECT_NE(problems_of(kHead + "plan k = " + deep + "\n").find("too deep"), std::string::npos);
  const std::string minus(5000, '-');
  EXPECT_NE(problems_of(kHead + "plan k = " + minus + "1\n").find("too deep"), std::string::npos);
}

TEST(LangMessages, UnboundedInliningIsRefused) {
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
  EXPECT_NE(problems_of(std::string("codec my \"d\"\n\0\n", 14)).find("unexpected character"),
            std::string::npos);
  EXPECT_NE(problems_of("codec my \"d\"\nplan caf\xc3\xa9 = 1\n").find("unexpected character"),
            std::string::npos);
}

}  // namespace
}  // namespace tithe::lang
