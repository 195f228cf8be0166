// SPDX-License-Identifier: Apache-2.0
// Precedence climbing: binary(level) parses the operators of row `level` of kLevels and of the rows after it, which
// bind tighter. kMaxDepth bounds the recursion for any text. After the first problem of a line, lost_ ends all loops,
// and end_line() continues with the next line.
#include "lang/front/parse_expr.h"

#include <fmt/format.h>

#include <algorithm>

namespace tithe::lang {

namespace {

constexpr unsigned kMaxDepth = 100;  // nested parentheses, ifs and signs
constexpr std::string_view kReserved[] = {"if", "then",  "else", "and",   "or",   "not",
                                          "is", "where", "once", "pairs", "table"};

// Operators by increasing precedence; each row is left-associative.
constexpr unsigned kComparisons = 2;
const std::vector<std::vector<std::string_view>> kLevels = {
    {"or"},     {"and"},        {"<", "<=", "==", "!=", ">=", ">"}, {"|", "^"}, {"&"}, {"<<", ">>"},
    {"+", "-"}, {"*", "/", "%"}};

ExprPtr make(ExprKind kind, Span at, std::string_view text = {}) {
  auto e = std::make_unique<Expr>();
  e->kind = kind;
  e->at = at;
  e->text = text;
  return e;
}

}  // namespace

bool ExprParser::accept(std::string_view text) {
  if (!is(text)) return false;
  take();
  return true;
}
void ExprParser::skip_newlines() {
  while (is_newline()) take();
}

void ExprParser::fail(std::string what, std::string help) {
  if (lost_) return;
  lost_ = true;
  Span at = now().at;
  if (is_newline() || is_end()) at.end = at.first + 1;
  problems_.add(at, std::move(what), std::move(help));
}
std::string ExprParser::found() const {
  return is_end() ? "the end" : is_newline() ? "the end of the line" : fmt::format("'{}'", now().text);
}
void ExprParser::expect(std::string_view text) {
  if (!accept(text)) fail(fmt::format("expected '{}', not {}", text, found()));
}
// Resynchronises after a problem: skips the rest of the line and reports further problems again.
void ExprParser::end_line() {
  if (!lost_ && !is_newline() && !is_end()) fail(fmt::format("unexpected {}", found()));
  while (!is_newline() && !is_end()) take();
  skip_newlines();
  lost_ = false;
}

Name ExprParser::name(std::string_view what) {
  if (now().kind != TokenKind::kName) {
    fail(fmt::format("expected the name of {}, not {}", what, found()));
    return {"?", now().at};
  }
  if (std::find(std::begin(kReserved), std::end(kReserved), now().text) != std::end(kReserved))
    fail(fmt::format("'{}' is a word of the language", now().text), "use another name");
  const Token t = take();
  return {t.text, t.at};
}
std::string_view ExprParser::text(std::string_view what) {
  if (now().kind == TokenKind::kString) return take().text;
  fail(fmt::format("expected {} in quotes", what));
  return {};
}
double ExprParser::number(std::string_view what) {
  const bool minus = accept("-");
  if (now().kind != TokenKind::kNumber) {
    fail(fmt::format("expected {}, not {}", what, found()));
    return 0;
  }
  return (minus ? -1 : 1) * take().number;
}

ExprPtr ExprParser::expr() {
  if (++depth_ > kMaxDepth) fail("too deep", "give its parts names");
  ExprPtr e;
  if (lost_) {
    e = make(ExprKind::kNumber, now().at);
  } else if (is("if")) {
    e = make(ExprKind::kIf, take().at);
    e->args.push_back(expr());
    expect("then");
    e->args.push_back(expr());
    expect("else");
    e->args.push_back(expr());
    e->at.end = e->args.back()->at.end;
  } else {
    e = binary(0);
  }
  --depth_;
  return e;
}

// Comparisons cannot be chained.
ExprPtr ExprParser::binary(unsigned level) {
  if (level == kComparisons && is("not")) {
    ExprPtr e = make(ExprKind::kUnary, take().at, "not");
    if (++depth_ > kMaxDepth) fail("too deep");
    e->args.push_back(lost_ ? make(ExprKind::kNumber, now().at) : binary(level));
    --depth_;
    e->at.end = e->args.back()->at.end;
    return e;
  }
  if (level == kLevels.size()) return unary();
  ExprPtr left = binary(level + 1);
  for (;;) {
    if (lost_) return left;
    if (level == kComparisons && is("is")) {
      take();
      ExprPtr e = make(ExprKind::kIs, left->at, now().text);
      if (now().kind != TokenKind::kName && now().kind != TokenKind::kNumber)
        fail("expected a word after 'is'");
      e->at.end = take().at.end;
      e->args.push_back(std::move(left));
      return e;
    }
    const auto& row = kLevels[level];
    const auto op = std::find_if(row.begin(), row.end(), [&](std::string_view o) { return is(o); });
    if (op == row.end()) return left;
    take();
    ExprPtr e = make(ExprKind::kBinary, left->at, *op);
    e->args.push_back(std::move(left));
    e->args.push_back(binary(level + 1));
    e->at.end = e->args.back()->at.end;
    left = std::move(e);
    if (level == kComparisons) {
      for (const std::string_view again : row)
        if (is(again)) fail("comparisons cannot be chained", "write a < b and b < c");
      return left;
    }
  }
}

ExprPtr ExprParser::unary() {
  if (!is("-") && !is("~")) return primary();
  const Token op = take();
  ExprPtr e = make(ExprKind::kUnary, op.at, op.text);
  if (++depth_ > kMaxDepth) fail("too deep");
  e->args.push_back(lost_ ? make(ExprKind::kNumber, now().at) : unary());
  --depth_;
  e->at.end = e->args.back()->at.end;
  return e;
}

ExprPtr ExprParser::primary() {
  if (accept("(")) {
    ExprPtr e = expr();
    expect(")");
    return e;
  }
  if (now().kind == TokenKind::kNumber) {
    const Token t = take();
    ExprPtr e = make(ExprKind::kNumber, t.at, t.text);
    e->number = t.number;
    e->whole = t.whole;
    return e;
  }
  if (now().kind != TokenKind::kName) {
    fail(fmt::format("expected a value, not {}", found()));
    return make(ExprKind::kNumber, now().at);
  }
  const Name n = name("a value");
  if (!is("(")) return make(ExprKind::kName, n.at, n.text);
  take();
  ExprPtr e = make(ExprKind::kCall, n.at, n.text);
  if (!is(")")) do
      e->args.push_back(expr());
    while (accept(",") && !lost_);
  if (accept("where")) e->where = expr();
  e->at.end = now().at.end;
  expect(")");
  return e;
}

}  // namespace tithe::lang
