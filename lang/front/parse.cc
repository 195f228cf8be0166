// SPDX-License-Identifier: Apache-2.0
// A recursive descent parser with one token of lookahead. Each section, and each line of a body, is one statement;
// parse_expr.cc parses the expressions in it. Invariant: end_line() ends every statement, also after a problem, so
// parsing terminates, and fail() reports at most one problem per line.
#include "lang/front/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "lang/front/parse_expr.h"

namespace tithe::lang {

namespace {

class Parser : ExprParser {
 public:
  using ExprParser::ExprParser;

  File run() {
    file_.phases.emplace_back();
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
      fail("a program must start with its name", "codec NAME \"the payload, and its publication\"");
    file_.name = name("the codec");
    file_.doc = text("the description of the codec");
    end_line();
  }

  bool at_section() const {
    return now().kind == TokenKind::kName && after().text != "=" && after().text != ":" &&
           std::find(std::begin(kSections), std::end(kSections), now().text) != std::end(kSections);
  }

  // A section is a keyword line; encode, send and decode have their contents on the following lines.
  void section() {
    const Token word = now();
    if (!at_section()) {
      fail(fmt::format("{} does not start a section", found()),
           "sections are param, plan, fn, claim, block, phase, encode, send and decode");
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
      if (file_.block) fail("the length of a block is given twice");
      file_.block = expr();
    } else if (word.text == "phase") {
      phase(word);
    } else if (word.text == "codec") {
      fail("a file must contain one codec");
    } else {
      end_line();
      body(word);
      return;
    }
    end_line();
  }

  void phase(const Token& word) {
    const Name named = name("the phase");
    if (!accept("by")) fail("a phase must state how its payloads combine", "phase NAME by max");
    const Name law = name("its law of combination");
    if (file_.phases.back().named())
      file_.phases.emplace_back();
    else if (seen_encode_ || seen_send_ || seen_decode_)
      problems_.add(word.at, "the sections above belong to no phase",
                    "begin with the first phase: phase NAME by max");
    for (const PhaseText& other : file_.phases)
      if (other.named() && other.name.text == named.text)
        problems_.add(named.at, fmt::format("the phase '{}' is defined twice", named.text),
                      "use another name");
    file_.phases.back().name = named;
    file_.phases.back().law = law;
    seen_encode_ = seen_send_ = seen_decode_ = false;
  }

  PhaseText& here() { return file_.phases.back(); }

  void body(const Token& word) {
    bool& seen = word.text == "encode" ? seen_encode_ : word.text == "send" ? seen_send_ : seen_decode_;
    if (seen)
      problems_.add(word.at,
                    fmt::format("{} has one '{}'", here().named() ? "a phase" : "a program", word.text));
    seen = true;
    while (!is_end() && !at_section()) {
      if (word.text == "encode")
        here().encode.push_back(let());
      else if (word.text == "send")
        item();
      else if (now().kind == TokenKind::kName && after().text == "=")
        here().decode.push_back(let());
      else
        result();
      end_line();
    }
  }

  void result() {
    if (here().result) fail("decode has a second result", "give the first value a name: name = ...");
    here().result = expr();
  }

  Name word() {
    if (now().kind != TokenKind::kName && now().kind != TokenKind::kNumber)
      fail(fmt::format("expected one of the parameter's words, not {}", found()));
    const Token t = take();
    return {t.text, t.at};
  }

  // param NAME: one of A, B = A "doc"  |  param NAME: int = 4 in 2 .. 8 "doc"  |  likewise with real
  void param() {
    Param p;
    p.name = name("the parameter");
    expect(":");
    if (accept("one")) {
      expect("of");
      do p.words.push_back(word());
      while (accept(",") && !lost());
      if (accept("=")) {
        const Name given = word();
        const auto same = [&](const Name& w) { return w.text == given.text; };
        const auto at = std::find_if(p.words.begin(), p.words.end(), same);
        if (at == p.words.end() && !lost())
          problems_.add(given.at, fmt::format("'{}' is not one of its words", given.text));
        else
          p.fallback = static_cast<double>(at - p.words.begin());
      }
      p.whole = true;
      p.high = static_cast<double>(p.words.size()) - 1;
    } else {
      p.whole = is("int");
      if (!accept("int") && !accept("real"))
        fail("a parameter must be real, int or one of several words",
             "param NAME: real = 0.01 in 0 .. 1 \"its meaning\"");
      expect("=");
      p.fallback = number("its default");
      expect("in");
      p.low = number("its smallest value");
      expect("..");
      p.high = number("its largest value");
    }
    p.doc = text("the meaning of the parameter, with its unit,");
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
    c.name = name("the claimed property");
    if (c.name.text == "contraction" || c.name.text == "error") c.value = expr();
    if (c.name.text != "unbiased" && c.name.text != "exact" && accept("where")) c.where = expr();
    file_.claims.push_back(std::move(c));
  }

  // A line of `send`: values at indices | pairs ... | indices ... | an item (ast.h has the forms).
  void item() {
    if (is("values") && after().text == "at") {
      const Span first = take().at;
      take();
      here().values = joined(first, now().at);
      expect("indices");
      return;
    }
    if (is("pairs") || (is("indices") && after().text == "where")) {
      SendPairs p;
      p.indices = is("indices");
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
      if (here().pairs) fail("only one list can be sent");
      here().pairs = std::move(p);
      return;
    }
    SendItem s;
    s.once = accept("once");
    s.table = !s.once && accept("table");
    s.name = name("the sent item");
    expect(":");
    type(s);
    if (accept("per")) s.per = number("a number of values");
    if (accept("when")) s.when = expr();
    if (accept("=")) s.value = expr();
    if (accept("where")) s.where = expr();
    here().send.push_back(std::move(s));
  }

  // f32 | u1 .. u32 | u<expr> | int[] | trits[] | places[], with [] or [block] for arrays.
  void type(SendItem& s) {
    constexpr const char* kTypes =
        "f32, u1 to u32, or u<NAME> with NAME bits; [] for one per value; trits[], places[], int[]";
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
    } else if (word == "int") {
      s.ints = true;
      take();
      if (!is("[]")) fail("this item has one element per value", "int[]");
    } else if (word == "trits" || word == "places") {
      s.trits = word == "trits";
      s.places = !s.trits;
      s.bits = s.trits ? 2 : 1;
      take();
      if (!is("[]")) fail("this item has one element per value", std::string(word) + "[]");
    } else if (word.size() >= 2 && word.size() <= 3 && word[0] == 'u' &&
               std::all_of(word.begin() + 1, word.end(), [](char c) { return c >= '0' && c <= '9'; })) {
      for (const char c : word.substr(1)) s.bits = 10 * s.bits + static_cast<unsigned>(c - '0');
      if (s.bits == 0 || s.bits > 32) fail(fmt::format("unknown type '{}'", word), kTypes);
      take();
    } else {
      fail(fmt::format("expected a type, not {}", found()), kTypes);
    }
    s.array = accept("[]");
    if (s.array || !accept("[")) return;
    s.array = s.full = true;
    expect("block");
    expect("]");
  }

  void finish() {
    if (problems_.any()) return;
    for (std::size_t k = 0; k < file_.phases.size() && !problems_.any(); ++k)
      finish(file_.phases[k], k + 1 == file_.phases.size());
  }

  void finish(const PhaseText& phase, bool last) {
    const Span at = phase.named() ? phase.name.at : file_.name.at;
    const auto what = [&](const char* rest) {
      return fmt::format("{} {}", phase.named() ? "the phase" : "the program", rest);
    };
    if (phase.send.empty() && !phase.pairs && !phase.values)
      problems_.add(at, what("sends nothing"), "send, and below it NAME: TYPE");
    const bool decodes = phase.result || !phase.decode.empty();
    const bool block = file_.block != nullptr;
    if (phase.pairs && !phase.pairs->indices && (!phase.send.empty() || decodes || block))
      problems_.add(phase.pairs->at, "pairs must be the only item, cover all values, and need no decode",
                    "remove the other items, block and decode");
    else if (phase.pairs && (!phase.send.empty() || decodes || block))
      problems_.add(phase.pairs->at, "indices must be the only item, and cover all values",
                    "remove the other items, block and decode");
    else if (phase.values &&
             (!phase.send.empty() || phase.pairs || decodes || !phase.encode.empty() || block))
      problems_.add(*phase.values, "values at indices must be the only item, and need no decode",
                    "remove the other items, block, encode and decode");
    else if (!last && decodes)
      problems_.add(phase.result ? phase.result->at : phase.decode[0].name.at,
                    "only the last phase decodes; a phase sees the items of the previous phase",
                    "compute it in the next phase");
    else if (last && !phase.pairs && !phase.values && !phase.result)
      problems_.add(at, phase.named() ? "the last phase decodes nothing" : "decode has no result",
                    "add decode; its last line must be an expression, the decoded value");
  }

  File file_;
  bool seen_encode_ = false, seen_send_ = false, seen_decode_ = false;
};

}  // namespace

File parse(const Source& source, Problems& problems) { return Parser(source, problems).run(); }

}  // namespace tithe::lang
