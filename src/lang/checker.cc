// SPDX-License-Identifier: Apache-2.0
#include "lang/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/nearest.h"
#include "lang/typed.h"
#include "tithe/codec.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMostCombinations = 256;
constexpr double kMostBlock = 1U << 20;     // values
constexpr std::size_t kMostSteps = 20'000;  // expressions, those of functions wherever they are called

// Where a name is written; what it may see follows from that.
enum class Part : std::uint8_t { kPlan, kEncode, kDecode };

struct Binding {
  Name name;
  Value value;
  Part part = Part::kPlan;
  bool argument = false;
  bool used = false;
  bool known = false;  // sent, but the receiver knows it: check() compares
};

class Checker {
 public:
  Checker(const File& file, std::vector<double> params, Problems& problems)
      : file_(file), problems_(problems), build_(problems) {
    build_.program.params = std::move(params);
  }

  Checked run() {
    plan();
    block();
    for (const Let& l : file_.encode) let(l, Part::kEncode);
    if (file_.pairs)
      pairs(*file_.pairs);
    else
      send();
    if (problems_.any()) return std::move(program());
    for (const Binding& b : names_)
      if (!b.used && !b.known && !b.value.bad() && b.part != Part::kPlan)
        problems_.add(b.name.at, fmt::format("'{}' is never used", b.name.text), "leave it out");
    for (const Node& n : program().nodes) program().passes = std::max(program().passes, n.pass);
    return std::move(program());
  }

  Checked run_claim(const Claim& claim) {
    plan();
    const Value v = build_.as(expr(*claim.value, Part::kPlan), Type::kF64, "what is claimed");
    program().result = v.node;
    return std::move(program());
  }

 private:
  Checked& program() { return build_.program; }

  // ---- Names

  void bind(const Name& name, Value value, Part part) {
    for (const Binding& b : names_)
      if (b.name.text == name.text && !b.argument && b.part == part) {
        problems_.add(name.at, fmt::format("'{}' has a value already", name.text), "take another name");
        return;
      }
    if (name.text == "x" || name.text == "grad" || name.text == "n" || name.text == "len")
      problems_.add(name.at, fmt::format("'{}' is a value of the language", name.text), "take another name");
    names_.push_back({.name = name, .value = value, .part = part});
  }

  void let(const Let& l, Part part) { bind(l.name, expr(*l.value, part), part); }

  void plan() {
    for (std::size_t k = 0; k < file_.params.size(); ++k) {
      const Param& p = file_.params[k];
      const double value = program().params[k];
      Node node{.op = Op::kConst, .type = Type::kI32, .number = value, .range = {value, value}};
      if (!p.whole)
        node = {.op = Op::kParam,
                .type = Type::kF64,
                .index = static_cast<unsigned>(k),
                .range = {p.low, p.high}};
      bind(p.name, build_.input(node, p.name.at), Part::kPlan);
    }
    for (const Let& l : file_.plan) let(l, Part::kPlan);
  }

  void block() {
    if (!file_.block) return;
    const Value v = build_.as(expr(*file_.block, Part::kPlan), Type::kI32, "the length of a block");
    if (v.bad()) return;
    const Range r = build_.of(v).range;
    if (!r.constant() || r.low < 1 || r.high > kMostBlock)
      build_.bad(file_.block->at, fmt::format("the length of a block is a constant, 1 .. {}", kMostBlock));
    else
      program().block = static_cast<std::size_t>(r.low);
  }

  // A value that the language gives; bad without a problem: there is none of that name.
  Value given(std::string_view name, Part part, Span at) {
    const bool blocks = program().block != 0;
    if (name == "n") return build_.input({.op = Op::kN, .type = Type::kU32, .range = {0, 0x1p32 - 2}}, at);
    if (part == Part::kPlan) return {.at = at};
    if (name == "len") {
      const Range range = blocks ? Range{1, static_cast<double>(program().block)} : Range{0, 0x1p32 - 2};
      return build_.input({.op = Op::kLength,
                           .type = Type::kU32,
                           .stage = Stage::kBlock,
                           .decode = part == Part::kDecode,
                           .range = range},
                          at);
    }
    if (part == Part::kEncode && (name == "x" || name == "grad")) {
      constexpr double kMost = std::numeric_limits<float>::max();
      return build_.input({.op = name == "x" ? Op::kTaken : Op::kGrad,
                           .type = Type::kF32,
                           .stage = Stage::kValue,
                           .range = {-kMost, kMost}},
                          at);
    }
    return {.at = at};
  }

  Value name(const Expr& e, Part part) {
    const auto visible = [&](const Binding& b) {
      return in_function_ ? b.argument || b.part == Part::kPlan : b.part == Part::kPlan || b.part == part;
    };
    for (auto b = names_.rbegin(); b != names_.rend(); ++b)
      if (b->name.text == e.text && visible(*b)) {
        b->used = true;
        Value v = b->value;
        v.at = e.at;
        return v;
      }
    const Value v = given(e.text, in_function_ ? Part::kPlan : part, e.at);
    if (!v.bad()) return v;
    return unknown(e, part);
  }

  Value unknown(const Expr& e, Part part) {
    if (part == Part::kDecode && !in_function_) {
      bool encoded = e.text == "x" || e.text == "grad";
      for (const Binding& b : names_) encoded = encoded || (b.name.text == e.text && b.part == Part::kEncode);
      if (encoded)
        return build_.bad(e.at, fmt::format("'{}' is not known to the receiver", e.text),
                          "send it, or compute it from what is sent");
    }
    if (in_function_ && (e.text == "x" || e.text == "grad" || e.text == "len"))
      return build_.bad(e.at, fmt::format("a function sees its arguments, not '{}'", e.text),
                        "make it an argument");
    std::vector<std::string_view> known = {"n"};
    if (part != Part::kPlan) known.push_back("len");
    if (part == Part::kEncode) known.insert(known.end(), {"x", "grad"});
    for (const Binding& b : names_)
      if (b.part == Part::kPlan || b.part == part) known.push_back(b.name.text);
    const std::string_view near = nearest_name(e.text, known);
    return build_.bad(e.at, fmt::format("there is no '{}' here", e.text),
                      near.empty() ? "" : fmt::format("did you mean '{}'?", near));
  }

  // ---- Expressions

  Value expr(const Expr& e, Part part) {
    if (++steps_ > kMostSteps)
      return build_.bad(e.at, "the program is too large", "functions are copied where they are called");
    switch (e.kind) {
      case ExprKind::kNumber:
        return build_.literal(e.number, e.whole, e.at);
      case ExprKind::kName:
        return name(e, part);
      case ExprKind::kUnary:
        return build_.unary(e.text, expr(*e.args[0], part), e.at);
      case ExprKind::kBinary: {
        const Value a = expr(*e.args[0], part);
        return build_.binary(e.text, a, expr(*e.args[1], part), e.at);
      }
      case ExprKind::kIs:
        return is(e);
      case ExprKind::kIf: {
        const Value c = expr(*e.args[0], part), a = expr(*e.args[1], part);
        return build_.select(c, a, expr(*e.args[2], part), e.at);
      }
      default:
        return call(e, part);
    }
  }

  Value is(const Expr& e) {
    const Expr& of = *e.args[0];
    for (std::size_t k = 0; k < file_.params.size(); ++k) {
      const Param& p = file_.params[k];
      if (of.kind != ExprKind::kName || of.text != p.name.text || p.words.empty()) continue;
      for (std::size_t w = 0; w < p.words.size(); ++w)
        if (p.words[w].text == e.text) {
          const double truth = values_of(p)[w] == program().params[k] ? 1 : 0;
          return build_.input(
              {.op = Op::kConst, .type = Type::kBool, .number = truth, .range = {truth, truth}}, e.at);
        }
      std::vector<std::string_view> words;
      for (const Name& w : p.words) words.push_back(w.text);
      return build_.bad(e.at, fmt::format("'{}' is never '{}'", p.name.text, e.text), suggest(e.text, words));
    }
    return build_.bad(of.at, "'is' asks a parameter which of its words was given",
                      "param NAME: one of a, b \"...\"");
  }

  Value call(const Expr& e, Part part) {
    std::vector<Value> args;
    for (const ExprPtr& a : e.args) args.push_back(expr(*a, part));
    for (std::size_t k = 0; k < functions_known(); ++k)
      if (file_.functions[k].name.text == e.text) return inlined(k, args, e, part);
    if (!build_.knows(e.text)) {
      std::vector<std::string_view> known = build_.functions();
      for (const Function& f : file_.functions) known.push_back(f.name.text);
      const std::string_view near = nearest_name(e.text, known);
      return build_.bad(e.at, fmt::format("there is no function '{}' above this line", e.text),
                        near.empty() ? "" : fmt::format("did you mean '{}'?", near));
    }
    if (!e.where) return build_.call(e.text, std::move(args), nullptr, part == Part::kDecode, e.at);
    const Value where = expr(*e.where, part);
    if (where.bad()) return {.at = e.at};
    return build_.call(e.text, std::move(args), &where, part == Part::kDecode, e.at);
  }

  // A function sees those above it, so none calls itself.
  std::size_t functions_known() const { return in_function_ ? inner_ : file_.functions.size(); }

  Value inlined(std::size_t k, const std::vector<Value>& args, const Expr& e, Part part) {
    const Function& f = file_.functions[k];
    if (args.size() != f.args.size())
      return build_.bad(
          e.at, fmt::format("'{}' takes {} arguments, not {}", f.name.text, f.args.size(), args.size()));
    const std::size_t above = names_.size();
    for (std::size_t a = 0; a < args.size(); ++a)
      names_.push_back({.name = f.args[a], .value = args[a], .argument = true});
    const std::size_t outer = std::exchange(inner_, k);
    const bool was = std::exchange(in_function_, true);
    Value v = expr(*f.body, part);
    inner_ = outer;
    in_function_ = was;
    names_.resize(above);
    v.at = e.at;
    return v;
  }

  // ---- What is sent

  void send() {
    for (const SendItem& s : file_.send) item(s);
    for (std::size_t k = 0; k < file_.send.size(); ++k) {
      const SendItem& s = file_.send[k];
      if (!s.where) continue;
      const Value v = build_.as(expr(*s.where, Part::kDecode), Type::kBool, "what stands behind 'where'");
      if (k < program().items.size()) program().items[k].where = v.node;
    }
    const std::size_t before = names_.size();
    for (Binding& b : names_) b.used = b.part == Part::kDecode ? false : b.used;
    for (const Let& l : file_.decode) let(l, Part::kDecode);
    const Value v = build_.as(expr(*file_.result, Part::kDecode), Type::kF32, "what is decoded");
    program().result = v.node;
    if (problems_.any()) return;
    for (std::size_t k = 0; k < before; ++k)
      if (names_[k].part == Part::kDecode && !names_[k].used && !names_[k].known && !names_[k].value.bad()) {
        problems_.add(names_[k].name.at,
                      fmt::format("'{}' is sent, and decode does not use it", names_[k].name.text),
                      "leave it out");
        names_[k].used = true;
      }
  }

  void item(const SendItem& s) {
    Item out{.name = std::string(s.name.text),
             .at = s.name.at,
             .once = s.once,
             .is_float = s.is_float,
             .array = s.array,
             .bits = s.bits};
    Value v = s.value
                  ? expr(*s.value, Part::kEncode)
                  : name(Expr{.kind = ExprKind::kName, .at = s.name.at, .text = s.name.text}, Part::kEncode);
    if (s.bits == 0) {
      const Value width =
          name(Expr{.kind = ExprKind::kName, .at = s.width.at, .text = s.width.text}, Part::kPlan);
      if (!width.bad()) out.bits = bits_of(width);
      if (out.bits == 0) v = {.at = v.at};
    }
    Type type = Type::kF32;
    if (!s.is_float)
      type = !v.bad() && !v.literal && build_.of(v).type != Type::kF32 ? build_.of(v).type : Type::kU32;
    v = build_.as(v, type, fmt::format("'{}'", s.name.text));
    program().items.push_back(out);
    if (v.bad()) {
      bind(s.name, v, Part::kDecode);
      return;
    }
    Item& it = program().items.back();
    it.value = v.node;
    const Node& node = build_.of(v);
    fits(s, it, node);
    if (node.stage == Stage::kPlan) {
      bind(s.name, v, Part::kDecode);
      names_.back().known = true;
      return;
    }
    Node read{.op = Op::kItem,
              .type = s.is_float            ? Type::kF32
                      : type == Type::kBool ? Type::kBool
                                            : Type::kU32};
    read.stage = s.array ? Stage::kValue : Stage::kBlock;
    read.decode = true;
    read.index = static_cast<unsigned>(program().items.size() - 1);
    read.range = s.is_float ? Range{-std::numeric_limits<float>::max(), std::numeric_limits<float>::max()}
                            : Range{0, std::ldexp(1.0, static_cast<int>(it.bits)) - 1};
    const Value seen = build_.input(read, s.name.at);
    it.input = seen.node;
    bind(s.name, seen, Part::kDecode);
  }

  unsigned bits_of(const Value& width) {
    const Range r = build_.of(width).range;
    if (r.constant() && r.low >= 1 && r.low <= 32 && r.low == std::floor(r.low))
      return static_cast<unsigned>(r.low);
    build_.bad(width.at, "the number of bits is a constant, 1 .. 32",
               "a parameter that is int or one of several numbers");
    return 0;
  }

  void fits(const SendItem& s, const Item& it, const Node& node) {
    if (s.once && node.stage != Stage::kPlan)
      problems_.add(s.name.at, "'once' is for what is known before the values",
                    "leave out 'once': it is sent with each block");
    if (s.once && s.array) problems_.add(s.type_at, "'once' is for one number");
    if (s.once && program().items.size() > 1 && !program().items[program().items.size() - 2].once)
      problems_.add(s.name.at, "what is sent once stands in front of the rest");
    if (!s.array && node.stage == Stage::kValue)
      problems_.add(s.type_at, "there is one of it for each value, and room for one",
                    fmt::format("{}[]", it.is_float ? "f32" : fmt::format("u{}", it.bits)));
    const double most = std::ldexp(1.0, static_cast<int>(it.bits)) - 1;
    if (!it.is_float && (node.range.low < 0 || node.range.high > most))
      problems_.add(
          s.name.at,
          fmt::format("'{}' can be {}, and u{} holds 0 .. {}", it.name, text(node.range), it.bits, most),
          "clamp it, add what it lacks, or send it in more bits");
  }

  void pairs(const SendPairs& p) {
    program().sends_pairs = true;
    const Value where = build_.as(expr(*p.where, Part::kEncode), Type::kBool, "what stands behind 'where'");
    program().pairs.where = where.node;
    const auto count = [&](const ExprPtr& e, int& node) {
      if (!e) return;
      const Value v = build_.as(expr(*e, Part::kPlan), Type::kF64, "how many are sent");
      node = v.node;
      if (!v.bad() && !(build_.of(v).range.low >= 0))
        build_.bad(e->at, fmt::format("this can be {}", text(build_.of(v).range)), "max(0, ...)");
    };
    count(p.most, program().pairs.most);
    count(p.keep, program().pairs.keep);
  }

  const File& file_;
  Problems& problems_;
  Builder build_;
  std::vector<Binding> names_;
  std::size_t steps_ = 0;
  bool in_function_ = false;
  std::size_t inner_ = 0;  // functions that the one being copied sees
};

bool all_numbers(const std::vector<Name>& words) {
  return std::all_of(words.begin(), words.end(),
                     [](const Name& w) { return w.text[0] >= '0' && w.text[0] <= '9'; });
}

void check_param(const Param& p, Problems& problems) {
  if (p.words.empty()) {
    if (!(p.low <= p.fallback && p.fallback <= p.high))
      problems.add(p.name.at, fmt::format("'{}' is {} where none is given, and must lie in {}", p.name.text,
                                          p.fallback, text({p.low, p.high})));
    if (p.whole && (p.low != std::floor(p.low) || p.high != std::floor(p.high) ||
                    p.fallback != std::floor(p.fallback) || p.high - p.low >= kMostCombinations))
      problems.add(p.name.at, "whole numbers are wanted, and not more than 256 of them",
                   "param NAME: int = 4 in 2 .. 8");
  }
  for (std::size_t k = 0; k < p.words.size(); ++k)
    for (std::size_t j = 0; j < k; ++j)
      if (p.words[j].text == p.words[k].text)
        problems.add(p.words[k].at, fmt::format("'{}' stands here twice", p.words[k].text));
}

}  // namespace

std::vector<double> values_of(const Param& param) {
  std::vector<double> all;
  if (!param.whole) return all;
  if (param.words.empty())
    for (double v = param.low; v <= param.high; ++v) all.push_back(v);
  const bool numbers = all_numbers(param.words);
  for (std::size_t k = 0; k < param.words.size(); ++k) {
    double v = static_cast<double>(k);
    if (numbers)
      std::from_chars(param.words[k].text.data(), param.words[k].text.data() + param.words[k].text.size(), v);
    all.push_back(v);
  }
  return all;
}

std::vector<Checked> check(const File& file, Problems& problems) {
  if (file.params.size() > kMaxParams)
    problems.add(file.params[kMaxParams].name.at,
                 fmt::format("a codec has at most {} parameters", kMaxParams));
  double combinations = 1;
  for (const Param& p : file.params) {
    check_param(p, problems);
    if (p.whole) combinations *= static_cast<double>(values_of(p).size());
  }
  if (combinations > kMostCombinations)
    problems.add(file.name.at,
                 fmt::format("its whole numbers and words combine in {} ways, and {} are allowed",
                             combinations, kMostCombinations));
  std::vector<Checked> all;
  if (problems.any()) return all;
  std::vector<std::size_t> turn(file.params.size(), 0);
  for (std::size_t c = 0; c < static_cast<std::size_t>(combinations); ++c) {
    std::size_t rest = c;
    std::vector<double> params(file.params.size());
    for (std::size_t k = file.params.size(); k-- > 0;) {
      const std::vector<double> values = values_of(file.params[k]);
      params[k] = values.empty() ? file.params[k].fallback : values[rest % values.size()];
      if (!values.empty()) rest /= values.size();
    }
    all.push_back(Checker(file, params, problems).run());
    if (problems.any()) return {};
  }
  for (const Claim& claim : file.claims) {
    if (claim.name.text != "unbiased" && claim.name.text != "exact" && claim.name.text != "contraction")
      problems.add(claim.name.at, fmt::format("nobody tests '{}'", claim.name.text),
                   "claim unbiased, exact, or contraction and a bound");
    else if (claim.value)
      for (std::size_t c = 0; c < all.size() && !problems.any(); ++c)
        check_claim(file, claim, all[c], problems);
  }
  return all;
}

Checked check_claim(const File& file, const Claim& claim, const Checked& of, Problems& problems) {
  return Checker(file, of.params, problems).run_claim(claim);
}

}  // namespace tithe::lang
