// SPDX-License-Identifier: Apache-2.0
#pragma once
// Splits text into tokens. A line end ends a statement, except within parentheses; an open parenthesis ends where a
// section begins. `#` starts a comment. Accepts any bytes: a character that starts no token is a problem and is
// skipped.
#include <cstdint>
#include <string_view>
#include <vector>

#include "lang/front/source.h"

namespace tithe::lang {

// The words that begin a section.
inline constexpr std::string_view kSections[] = {"codec", "param", "plan",   "fn",   "claim",
                                                 "block", "phase", "encode", "send", "decode"};

enum class TokenKind : std::uint8_t { kName, kNumber, kString, kSymbol, kNewline, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Span at;
  std::string_view text;  // of a string: the text between the quotes
  double number = 0;
  bool whole = false;  // a number without fraction and exponent
};

// Ends with a kNewline and a kEnd. All text points into the source.
std::vector<Token> tokenize(const Source& source, Problems& problems);

}  // namespace tithe::lang
