// SPDX-License-Identifier: Apache-2.0
// Functions are inlined: each call translates the function's body again, with its parameters bound to the nodes of the
// arguments. So a checked program has no calls, and every range is that of one call. Invariants: names_ is a stack, and
// the last visible binding of a name counts; a function sees only functions above it, and kMaxSteps limits all
// translated expressions, so the translation ends.
#include "lang/front/scope.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/nearest.h"
#include "lang/front/checker.h"

namespace tithe::lang {

namespace {

constexpr std::size_t kMaxSteps = 20'000;  // expressions that are translated, including every inlined call

}  // namespace

void Scope::bind(const Name& name, Value value, Part part) {
  for (const Binding& b : names_)
    if (b.name.text == name.text && !b.argument &&
        (b.part == part || (b.part == Part::kBefore && part != Part::kPlan))) {
      const char* text = b.part == part ? "'{}' is defined twice" : "'{}' is an item of the previous phase";
      problems_.add(name.at, fmt::format(fmt::runtime(text), name.text), "use another name");
      return;
    }
  if (name.text == "x" || name.text == "grad" || name.text == "n" || name.text == "len")
    problems_.add(name.at, fmt::format("'{}' is a name of the language", name.text), "use another name");
  if (value.node != kNone) build_.call_it(value.node, name.text);
  names_.push_back({.name = name, .value = value, .part = part});
}

// A built-in value; bad, without a problem, if there is none of this name.
Value Scope::given(std::string_view name, Part part, Span at) {
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
    constexpr double kMaxFloat = std::numeric_limits<float>::max();
    return build_.input({.op = name == "x" ? Op::kTaken : Op::kGrad,
                         .type = Type::kF32,
                         .stage = Stage::kValue,
                         .range = {-kMaxFloat, kMaxFloat}},
                        at);
  }
  return {.at = at};
}

Value Scope::name(const Expr& e, Part part) {
  const auto visible = [&](const Binding& b) {
    if (in_function_) return b.argument || b.part == Part::kPlan;
    return b.part == Part::kPlan || b.part == part || (b.part == Part::kBefore && part != Part::kPlan);
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

// Reports the item of this name that a non-adjacent phase sends; bad, without a problem, if there is none.
Value Scope::of_other_phase(const Expr& e) {
  for (std::size_t p = 0; p < file_.phases.size(); ++p)
    for (const SendItem& s : file_.phases[p].send) {
      if (s.name.text != e.text || p == phase_) continue;
      const std::string_view phase = file_.phases[p].name.text;
      if (p > phase_)
        return build_.bad(e.at, fmt::format("'{}' is sent in the later phase '{}'", e.text, phase),
                          "a phase can read only the items of the previous phase");
      if (p + 1 < phase_)
        return build_.bad(
            e.at,
            fmt::format(
                "'{}' was sent in the phase '{}'; a phase can read only the items of the previous phase",
                e.text, phase),
            fmt::format("send it in the phase '{}' again", file_.phases[phase_ - 1].name.text));
      return build_.bad(e.at, fmt::format("'{}' is the same on all ranks and need not be sent", e.text),
                        "define it with plan");
    }
  return {.at = e.at};
}

Value Scope::unknown(const Expr& e, Part part) {
  if (part == Part::kDecode && !in_function_) {
    bool encoded = e.text == "x" || e.text == "grad";
    for (const Binding& b : names_) encoded = encoded || (b.name.text == e.text && b.part == Part::kEncode);
    if (encoded)
      return build_.bad(e.at, fmt::format("'{}' is not known to the receiver", e.text),
                        "send it, or compute it from sent items");
  }
  if (!in_function_ && part != Part::kPlan) {
    const std::size_t before = problems_.count();
    const Value v = of_other_phase(e);
    if (problems_.count() != before) return v;
  }
  if (in_function_ && (e.text == "x" || e.text == "grad" || e.text == "len"))
    return build_.bad(e.at, fmt::format("a function can use only its arguments, not '{}'", e.text),
                      "make it an argument");
  std::vector<std::string_view> known = {"n"};
  if (part != Part::kPlan) known.push_back("len");
  if (part == Part::kEncode) known.insert(known.end(), {"x", "grad"});
  for (const Binding& b : names_)
    if (b.part == Part::kPlan || b.part == Part::kBefore || b.part == part) known.push_back(b.name.text);
  const std::string_view near = nearest_name(e.text, known);
  return build_.bad(e.at, fmt::format("'{}' is not defined here", e.text),
                    near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

// Translates an expression by structural recursion. kMaxSteps bounds the work, since inlined calls can multiply it.
Value Scope::expr(const Expr& e, Part part) {
  if (++steps_ > kMaxSteps)
    return build_.bad(e.at, "the program is too large", "a function is copied into each call");
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

Value Scope::is(const Expr& e) {
  const Expr& of = *e.args[0];
  for (std::size_t k = 0; k < file_.params.size(); ++k) {
    const Param& p = file_.params[k];
    if (of.kind != ExprKind::kName || of.text != p.name.text || p.words.empty()) continue;
    for (std::size_t w = 0; w < p.words.size(); ++w)
      if (p.words[w].text == e.text) {
        const double truth = values_of(p)[w] == program().params[k] ? 1 : 0;
        return build_.input({.op = Op::kConst, .type = Type::kBool, .number = truth, .range = {truth, truth}},
                            e.at);
      }
    std::vector<std::string_view> words;
    for (const Name& w : p.words) words.push_back(w.text);
    return build_.bad(e.at, fmt::format("'{}' is never '{}'", p.name.text, e.text), suggest(e.text, words));
  }
  return build_.bad(of.at, "'is' compares a word parameter with one of its words",
                    "param NAME: one of a, b \"...\"");
}

Value Scope::unknown_function(const Expr& e) {
  if (in_function_)
    for (const Function& f : file_.functions)
      if (f.name.text == e.text)
        return build_.bad(e.at, fmt::format("'{}' cannot be called here", e.text),
                          "a function can call only functions above it, so every program ends");
  std::vector<std::string_view> known = build_.functions();
  for (const Function& f : file_.functions) known.push_back(f.name.text);
  const std::string_view near = nearest_name(e.text, known);
  return build_.bad(e.at, fmt::format("no function '{}' is defined above this line", e.text),
                    near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

// reduce(NAME, start, values where ...): NAME is a function of the file that combines two values.
Value Scope::reduction(const Expr& e, Part part) {
  constexpr const char* kCure = "fn larger(a, b) = max(a, b), and reduce(larger, 0, x)";
  if (e.args.size() != 3 || e.args[0]->kind != ExprKind::kName)
    return build_.bad(e.at, "expected three arguments: reduce(function, start, value)", kCure);
  if (part == Part::kDecode)
    return build_.bad(e.at, "'reduce' cannot be used in decode, which works value by value",
                      "compute it in encode, and send it");
  const Expr& called = *e.args[0];
  std::size_t k = visible_functions();
  for (std::size_t j = 0; j < visible_functions(); ++j)
    if (file_.functions[j].name.text == called.text) k = j;
  if (k == visible_functions() && build_.knows(called.text))
    return build_.bad(
        called.at,
        fmt::format("'{}' is a function of the language; a function of the file is required", called.text),
        kCure);
  if (k == visible_functions()) return unknown_function(called);
  if (file_.functions[k].args.size() != 2)
    return build_.bad(called.at, fmt::format("'{}' must have two arguments", called.text), kCure);
  const Value start = expr(*e.args[1], part), v = expr(*e.args[2], part);
  Value where;
  if (e.where) {
    where = expr(*e.where, part);
    if (where.bad()) return {.at = e.at};
  }
  const auto body = [&](Value a, Value b) { return inlined(k, {a, b}, called, part); };
  return build_.fold(body, start, v, e.where ? &where : nullptr, e.at);
}

// Functions of the file take precedence over built-in ones.
Value Scope::call(const Expr& e, Part part) {
  const auto own = [&](const Function& f) { return f.name.text == e.text; };
  if (e.text == "reduce" && std::none_of(file_.functions.begin(), file_.functions.end(), own))
    return reduction(e, part);
  std::vector<Value> args;
  for (const ExprPtr& a : e.args) args.push_back(expr(*a, part));
  for (std::size_t k = 0; k < visible_functions(); ++k)
    if (file_.functions[k].name.text == e.text) return inlined(k, args, e, part);
  if (!build_.knows(e.text)) return unknown_function(e);
  if (!e.where) return build_.call(e.text, std::move(args), nullptr, part == Part::kDecode, e.at);
  const Value where = expr(*e.where, part);
  if (where.bad()) return {.at = e.at};
  return build_.call(e.text, std::move(args), &where, part == Part::kDecode, e.at);
}

// Translates the body of function k with the arguments bound to its parameters. Within the body only parameters, plan
// names and functions above it are visible; problems in it also refer to the call.
Value Scope::inlined(std::size_t k, const std::vector<Value>& args, const Expr& e, Part part) {
  const Function& f = file_.functions[k];
  if (args.size() != f.args.size())
    return build_.bad(
        e.at, fmt::format("'{}' takes {} arguments, not {}", f.name.text, f.args.size(), args.size()));
  const std::size_t above = names_.size();
  for (std::size_t a = 0; a < args.size(); ++a)
    names_.push_back({.name = f.args[a], .value = args[a], .argument = true});
  const std::size_t outer = std::exchange(inner_, k);
  const bool was = std::exchange(in_function_, true);
  const std::size_t before = problems_.count();
  Value v = expr(*f.body, part);
  problems_.called_from(before, e.at);
  inner_ = outer;
  in_function_ = was;
  names_.resize(above);
  v.at = e.at;
  return v;
}

}  // namespace tithe::lang
