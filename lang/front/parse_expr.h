// SPDX-License-Identifier: Apache-2.0
#pragma once
// The expression parser, and the token stream that the section parser (parse.cc) shares with it.
#include <string>

#include "lang/front/ast.h"
#include "lang/front/tokenize.h"

namespace tithe::lang {

class ExprParser {
 public:
  ExprParser(const Source& source, Problems& problems)
      : tokens_(tokenize(source, problems)), problems_(problems) {}

 protected:
  // ---- Tokens
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  bool is_end() const { return now().kind == TokenKind::kEnd; }
  bool is_newline() const { return now().kind == TokenKind::kNewline; }
  bool is(std::string_view text) const {
    return (now().kind == TokenKind::kSymbol || now().kind == TokenKind::kName) && now().text == text;
  }
  Token take() { return is_end() ? now() : tokens_[at_++]; }
  bool accept(std::string_view text);
  void skip_newlines();

  // ---- Problems
  // Reports at most one problem per line: later ones would be consequences of the first.
  void fail(std::string what, std::string help = {});
  bool lost() const { return lost_; }
  std::string found() const;
  void expect(std::string_view text);
  void end_line();

  // ---- Words and numbers
  Name name(std::string_view what);
  std::string_view text(std::string_view what);
  double number(std::string_view what);

  // ---- Expressions
  ExprPtr expr();
  // A number, a name, a call or a parenthesised expression.
  ExprPtr primary();

 private:
  ExprPtr binary(unsigned level);
  ExprPtr unary();

  std::vector<Token> tokens_;

 protected:
  Problems& problems_;

 private:
  std::size_t at_ = 0;
  unsigned depth_ = 0;
  bool lost_ = false;  // a problem of this line was reported
};

}  // namespace tithe::lang
