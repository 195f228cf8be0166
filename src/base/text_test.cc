// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>

namespace tithe {
namespace {

TEST(Printable, keeps_valid_text) {
  for (const char* text : {"", "rank 3 is gone", "größer", "\u65e5\u672c", "\U0001f642"})
    EXPECT_EQ(printable(text, 100), text);
}

TEST(Printable, replaces_invalid_bytes) {
  EXPECT_EQ(printable("a\tb\nc", 100), "a b c");
  EXPECT_EQ(printable("\x1b[31mred", 100), "?[31mred");
  EXPECT_EQ(printable(std::string("\0\x7f", 2), 100), "??");
  EXPECT_EQ(printable("\xc2\x9b", 100), "?");             // a C1 control
  EXPECT_EQ(printable("\u202eabc", 100), "?abc");         // right to left
  EXPECT_EQ(printable("\xff\xc0\xaf", 100), "???");       // invalid UTF-8
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80", 100), "????");  // beyond the last code point
  EXPECT_EQ(printable("x\xe6\x97", 100), "x??");          // truncated
}

TEST(Printable, cuts_between_characters) {
  EXPECT_EQ(printable("abc", 2), "ab");
  EXPECT_EQ(printable("a\u65e5\u672c", 6), "a\u65e5");
}

}  // namespace
}  // namespace tithe
