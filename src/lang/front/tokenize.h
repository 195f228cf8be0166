// SPDX-License-Identifier: Apache-2.0
#pragma once
// Text to tokens. A line ends a statement, but not within parentheses, which end where a section begins; `#` starts a
// comment. Any bytes are answered: what is no token is a problem and is left out.
#include <cstdint>
#include <string_view>
#include <vector>

#include "lang/front/source.h"

namespace tithe::lang {

// The words that sections begin with.
inline constexpr std::string_view kSections[] = {"codec", "param", "plan",   "fn",   "claim",
                                                 "block", "phase", "encode", "send", "decode"};

enum class TokenKind : std::uint8_t { kName, kNumber, kString, kSymbol, kNewline, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  Span at;
  std::string_view text;  // of a string what stands between the quotes
  double number = 0;
  bool whole = false;  // a number without a fraction and an exponent
};

// Ends with a kNewline and a kEnd. The tokens point into the source.
std::vector<Token> tokenize(const Source& source, Problems& problems);

}  // namespace tithe::lang
