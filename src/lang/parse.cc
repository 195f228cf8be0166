// SPDX-License-Identifier: Apache-2.0
#include "lang/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "lang/parse_expr.h"

namespace tithe::lang {

namespace {

class Parser : ExprParser {
 public:
  using ExprParser::ExprParser;

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
      } while (accept(",") && !lost());
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
      while (accept(",") && !lost());
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
      } else if (accept("slots")) {
        p.slots = expr();
        expect("per");
        p.per = number("a number of values");
      }
      if (file_.pairs) fail("a program sends one list of pairs");
      file_.pairs = std::move(p);
      return;
    }
    SendItem s;
    s.once = accept("once");
    s.table = !s.once && accept("table");
    s.name = name("what is sent");
    expect(":");
    type(s);
    if (accept("per")) s.per = number("a number of values");
    if (accept("=")) s.value = expr();
    if (accept("where")) s.where = expr();
    file_.send.push_back(std::move(s));
  }

  void type(SendItem& s) {
    constexpr const char* kTypes =
        "f32, u1 to u32, or u<NAME> with so many bits; [] for one per value; trits[], places[]";
    s.type_at = now().at;
    const std::string_view word = now().kind == TokenKind::kName ? now().text : "";
    if (word == "f32") {
      s.is_float = true;
      s.bits = 32;
      take();
    } else if (word == "u" && after().text == "<") {
      take();
      take();
      s.width = primary();
      expect(">");
    } else if (word == "trits" || word == "places") {
      s.trits = word == "trits";
      s.places = !s.trits;
      s.bits = s.trits ? 2 : 1;
      take();
      if (!is("[]")) fail("there is one of it for each value", std::string(word) + "[]");
    } else if (word.size() >= 2 && word.size() <= 3 && word[0] == 'u' &&
               std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      for (const char c : word.substr(1)) s.bits = 10 * s.bits + static_cast<unsigned>(c - '0');
      if (s.bits == 0 || s.bits > 32) fail(fmt::format("there is no type '{}'", word), kTypes);
      take();
    } else {
      fail(fmt::format("a type belongs here, not {}", found()), kTypes);
    }
    s.array = accept("[]");
    if (s.array || !accept("[")) return;
    s.array = s.full = true;
    expect("block");
    expect("]");
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

  File file_;
  bool seen_encode_ = false, seen_send_ = false, seen_decode_ = false;
};

}  // namespace

File parse(const Source& source, Problems& problems) { return Parser(source, problems).run(); }

}  // namespace tithe::lang
