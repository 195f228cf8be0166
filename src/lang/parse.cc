// SPDX-License-Identifier: Apache-2.0
#include "lang/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "lang/tokenize.h"

namespace tithe::lang {

namespace {

constexpr unsigned kMostDepth = 100;  // of parentheses, ifs and signs within each other
constexpr std::string_view kReserved[] = {"if",  "then", "else",  "and",  "or",
                                          "not", "is",   "where", "once", "pairs"};

// Operators from the loosest on; those of one row bind alike, from the left.
constexpr unsigned kComparisons = 2;
const std::vector<std::vector<std::string_view>> kLevels = {
    {"or"},     {"and"},        {"<", "<=", "==", "!=", ">=", ">"}, {"|", "^"}, {"&"}, {"<<", ">>"},
    {"+", "-"}, {"*", "/", "%"}};

class Parser {
 public:
  Parser(const Source& source, Problems& problems)
      : tokens_(tokenize(source, problems)), problems_(problems) {}

  File run() {
    skip_newlines();
    heading();
    while (!is_end()) {
      skip_newlines();
      if (is_end()) break;
      section();
    }
    finish();
    return std::move(file_);
  }

 private:
  const Token& now() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_end() const { return now().kind == TokenKind::kEnd; }
  bool is_newline() const { return now().kind == TokenKind::kNewline; }
  bool is(std::string_view text) const {
    return (now().kind == TokenKind::kSymbol || now().kind == TokenKind::kName) && now().text == text;
  }
  Token take() { return is_end() ? now() : tokens_[at_++]; }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    take();
    return true;
  }
  void skip_newlines() {
    while (is_newline()) take();
  }

  // One problem a line; what follows on it would be about the first.
  void fail(std::string what, std::string help = {}) {
    if (lost_) return;
    lost_ = true;
    Span at = now().at;
    if (is_newline() || is_end()) at.end = at.first + 1;
    problems_.add(at, std::move(what), std::move(help));
  }
  std::string found() const {
    return is_end() ? "the end" : is_newline() ? "the end of the line" : fmt::format("'{}'", now().text);
  }
  void expect(std::string_view text) {
    if (!accept(text)) fail(fmt::format("'{}' belongs here, not {}", text, found()));
  }
  void end_line() {
    if (!lost_ && !is_newline() && !is_end()) fail(fmt::format("{} does not belong here", found()));
    while (!is_newline() && !is_end()) take();
    skip_newlines();
    lost_ = false;
  }

  Name name(std::string_view what) {
    if (now().kind != TokenKind::kName) {
      fail(fmt::format("the name of {} belongs here, not {}", what, found()));
      return {"?", now().at};
    }
    if (std::find(std::begin(kReserved), std::end(kReserved), now().text) != std::end(kReserved))
      fail(fmt::format("'{}' is a word of the language", now().text), "take another name");
    const Token t = take();
    return {t.text, t.at};
  }
  std::string_view text(std::string_view what) {
    if (now().kind == TokenKind::kString) return take().text;
    fail(fmt::format("{} belongs here, in quotes", what));
    return {};
  }
  double number(std::string_view what) {
    const bool minus = accept("-");
    if (now().kind != TokenKind::kNumber) {
      fail(fmt::format("{} belongs here, not {}", what, found()));
      return 0;
    }
    return (minus ? -1 : 1) * take().number;
  }

  // ---- Lines

  void heading() {
    if (!accept("codec"))
      fail("a program starts with its name", "codec NAME \"what is sent, and who published it\"");
    file_.name = name("the codec");
    file_.doc = text("what the codec does");
    end_line();
  }

  bool at_section() const {
    return now().kind == TokenKind::kName && after().text != "=" && after().text != ":" &&
           std::find(std::begin(kSections), std::end(kSections), now().text) != std::end(kSections);
  }

  void section() {
    const Token word = now();
    if (!at_section()) {
      fail(fmt::format("{} starts no section", found()),
           "sections are param, plan, fn, claim, block, encode, send and decode");
      end_line();
      return;
    }
    take();
    if (word.text == "param") {
      param();
    } else if (word.text == "plan") {
      file_.plan.push_back(let());
    } else if (word.text == "fn") {
      function();
    } else if (word.text == "claim") {
      claim();
    } else if (word.text == "block") {
      if (file_.block) fail("the block has its length already");
      file_.block = expr();
    } else if (word.text == "codec") {
      fail("a file holds one codec");
    } else {
      end_line();
      body(word);
      return;
    }
    end_line();
  }

  void body(const Token& word) {
    bool& seen = word.text == "encode" ? seen_encode_ : word.text == "send" ? seen_send_ : seen_decode_;
    if (seen) problems_.add(word.at, fmt::format("a program has one '{}'", word.text));
    seen = true;
    while (!is_end() && !at_section()) {
      if (word.text == "encode")
        file_.encode.push_back(let());
      else if (word.text == "send")
        item();
      else if (now().kind == TokenKind::kName && after().text == "=")
        file_.decode.push_back(let());
      else
        result();
      end_line();
    }
  }

  void result() {
    if (file_.result) fail("decode has its result already", "give the line a name: name = ...");
    file_.result = expr();
  }

  void param() {
    Param p;
    p.name = name("the parameter");
    expect(":");
    if (accept("one")) {
      expect("of");
      do {
        if (now().kind != TokenKind::kName && now().kind != TokenKind::kNumber)
          fail(fmt::format("a word that it may be belongs here, not {}", found()));
        const Token t = take();
        p.words.push_back({t.text, t.at});
      } while (accept(",") && !lost_);
      p.whole = true;
      p.high = static_cast<double>(p.words.size()) - 1;
    } else {
      p.whole = is("int");
      if (!accept("int") && !accept("real"))
        fail("a parameter is real, int or one of several words",
             "param NAME: real = 0.01 in 0 .. 1 \"what it is\"");
      expect("=");
      p.fallback = number("its value where none is given");
      expect("in");
      p.low = number("its least value");
      expect("..");
      p.high = number("its greatest value");
    }
    p.doc = text("what the parameter is, with its unit,");
    file_.params.push_back(std::move(p));
  }

  Let let() {
    Let l;
    l.name = name("the value");
    expect("=");
    l.value = expr();
    return l;
  }

  void function() {
    Function f;
    f.name = name("the function");
    expect("(");
    if (!is(")")) do
        f.args.push_back(name("an argument"));
      while (accept(",") && !lost_);
    expect(")");
    expect("=");
    f.body = expr();
    file_.functions.push_back(std::move(f));
  }

  void claim() {
    Claim c;
    c.name = name("what is claimed");
    if (c.name.text == "contraction") c.value = expr();
    file_.claims.push_back(std::move(c));
  }

  void item() {
    if (is("pairs")) {
      SendPairs p;
      p.at = take().at;
      expect("where");
      p.where = expr();
      if (accept("at")) {
        expect("most");
        p.most = expr();
        if (accept("else")) {
          expect("largest");
          p.keep = expr();
        }
      }
      if (file_.pairs) fail("a program sends one list of pairs");
      file_.pairs = std::move(p);
      return;
    }
    SendItem s;
    s.once = accept("once");
    s.name = name("what is sent");
    expect(":");
    type(s);
    if (accept("=")) s.value = expr();
    if (accept("where")) s.where = expr();
    file_.send.push_back(std::move(s));
  }

  void type(SendItem& s) {
    constexpr const char* kTypes = "f32, u1 to u32, or u<NAME> with a parameter's bits; [] for one per value";
    s.type_at = now().at;
    const std::string_view word = now().kind == TokenKind::kName ? now().text : "";
    if (word == "f32") {
      s.is_float = true;
      s.bits = 32;
      take();
    } else if (word == "u" && after().text == "<") {
      take();
      take();
      s.width = name("the number of bits");
      expect(">");
    } else if (word.size() >= 2 && word.size() <= 3 && word[0] == 'u' &&
               std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      for (const char c : word.substr(1)) s.bits = 10 * s.bits + static_cast<unsigned>(c - '0');
      if (s.bits == 0 || s.bits > 32) fail(fmt::format("there is no type '{}'", word), kTypes);
      take();
    } else {
      fail(fmt::format("a type belongs here, not {}", found()), kTypes);
    }
    s.array = accept("[]");
  }

  void finish() {
    const auto missing = [&](const char* what, const char* help) {
      problems_.add(file_.name.at, what, help);
    };
    if (problems_.any()) return;
    if (!seen_send_ || (file_.send.empty() && !file_.pairs))
      missing("the program sends nothing", "send, and below it NAME: TYPE");
    if (file_.pairs && (!file_.send.empty() || file_.result || !file_.decode.empty() || file_.block))
      problems_.add(file_.pairs->at, "pairs are sent alone, of all values, and decode themselves",
                    "leave out the other items, block and decode");
    if (!file_.pairs && !file_.result)
      missing("decode has no result", "its last line is an expression: the value that is decoded");
  }

  // ---- Expressions

  static ExprPtr make(ExprKind kind, Span at, std::string_view text = {}) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->at = at;
    e->text = text;
    return e;
  }

  ExprPtr expr() {
    if (++depth_ > kMostDepth) fail("too deep", "give parts of it names of their own");
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

  ExprPtr binary(unsigned level) {
    if (level == kComparisons && is("not")) {
      ExprPtr e = make(ExprKind::kUnary, take().at, "not");
      if (++depth_ > kMostDepth) fail("too deep");
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
          fail("a word belongs behind 'is'");
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
          if (is(again)) fail("comparisons do not follow each other", "write a < b and b < c");
        return left;
      }
    }
  }

  ExprPtr unary() {
    if (!is("-") && !is("~")) return primary();
    const Token op = take();
    ExprPtr e = make(ExprKind::kUnary, op.at, op.text);
    if (++depth_ > kMostDepth) fail("too deep");
    e->args.push_back(lost_ ? make(ExprKind::kNumber, now().at) : unary());
    --depth_;
    e->at.end = e->args.back()->at.end;
    return e;
  }

  ExprPtr primary() {
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
      fail(fmt::format("a value belongs here, not {}", found()));
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

  std::vector<Token> tokens_;
  Problems& problems_;
  File file_;
  std::size_t at_ = 0;
  unsigned depth_ = 0;
  bool lost_ = false;  // a problem on this line has been told
  bool seen_encode_ = false, seen_send_ = false, seen_decode_ = false;
};

}  // namespace

File parse(const Source& source, Problems& problems) { return Parser(source, problems).run(); }

}  // namespace tithe::lang
