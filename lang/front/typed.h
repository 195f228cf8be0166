// SPDX-License-Identifier: Apache-2.0
#pragma once
// Builds the nodes of a program: the types, stages and ranges of every operator. A mistake adds a problem and yields
// a bad value; operations on a bad value yield a bad value without another problem.
#include <functional>
#include <initializer_list>
#include <string>

#include "lang/front/checked.h"
#include "lang/front/source.h"

namespace tithe::lang {

// The value of an expression: a node, or a literal that takes the type of the other operand.
struct Value {
  int node = kNone;
  bool literal = false;
  bool whole = false;
  double number = 0;
  Span at = {};
  bool bad() const { return node == kNone && !literal; }
};

class Builder {
 public:
  explicit Builder(Problems& problems) : problems_(problems) {}

  Checked program;

  // Names a node that has no name.
  void call_it(int node, std::string_view name) {
    std::string& own = program.nodes[static_cast<std::size_t>(node)].name;
    if (own.empty()) own = name;
  }
  const Node& of(const Value& v) const { return program.nodes[static_cast<std::size_t>(v.node)]; }
  Value literal(double number, bool whole, Span at) const;
  Value bad(Span at, std::string what, std::string help = {});

  // A node without operands.
  Value input(const Node& node, Span at);
  // The operators and functions of the language; `at` is the span of the whole expression.
  Value binary(std::string_view op, Value a, Value b, Span at);
  Value unary(std::string_view op, Value a, Span at);
  Value select(Value condition, Value a, Value b, Span at);
  Value call(std::string_view name, std::vector<Value> args, const Value* where, bool decode, Span at);
  // reduce(body, start, v where ...): body combines two values into one.
  using Body = std::function<Value(Value, Value)>;
  Value fold(const Body& body, Value start, Value v, const Value* where, Span at);
  // The value in this type; `what` names it in the message.
  Value as(Value v, Type type, const std::string& what);
  bool knows(std::string_view function) const;
  std::vector<std::string_view> functions() const;

 private:
  Value add(Op op, Type type, std::initializer_list<Value> in, Span at, unsigned index = 0);
  // A reduction of the values that `where` selects; of all values if it is nullptr.
  Value add_selected(Op op, Type type, const Value& v, const Value* where, Span at, unsigned index = 0);
  Value no_number(const Value& table);
  bool unify(Value& a, Value& b, Span at);
  bool unify_all(std::vector<Value>& all, Span at);
  Value convert(Value v, Type type, Span at);
  Value reduce(std::string_view name, Value v, const Value* where, bool decode, Span at);
  bool one_of_each_block(const Value& v, Span at);
  // scan, rank, sort, histogram and entry.
  Value table(std::string_view name, std::vector<Value> args, const Value* where, bool decode, Span at);
  Value histogram(const std::vector<Value>& args, const Value* where, Span at);
  Value sorted(Op op, Value v, Span at);
  Value entry(Value table, Value index, Span at);
  Value scan(Value v, Span at);
  bool try_body(const Body& body, Type type, Range range, Folding& folding, Span at);
  Value found_in_block(Value found);
  Value random(std::string_view name, const std::vector<Value>& args, bool decode, Span at);
  bool has_type(const Value& v, std::initializer_list<Type> types, std::string_view name);

  Problems& problems_;
  bool draws_ = false;
};

// "0 .. 255"
std::string text(Range range);

}  // namespace tithe::lang
