// SPDX-License-Identifier: Apache-2.0
// Expressions for one value, as CUDA kernels use them. An operator of the language is an operator of C++ if the result
// is the same. A result with one user and without a name in the program is part of its user's expression.
#include <fmt/format.h>

#include "lang/text/emit_nodes.h"

namespace tithe::lang {

namespace {

struct Infix {
  Op op;
  const char* text;
  bool of_u32 = false;  // only for u32: floats must not fuse, and signed sums wrap
};
constexpr Infix kInfixes[] = {{Op::kBitAnd, "&"},    {Op::kBitOr, "|"},      {Op::kBitXor, "^"},
                              {Op::kLess, "<"},      {Op::kLessEqual, "<="}, {Op::kEqual, "=="},
                              {Op::kNotEqual, "!="}, {Op::kAdd, "+", true},  {Op::kSub, "-", true},
                              {Op::kMul, "*", true}};

// The operator of C++ with the same result; nullptr: a function of the prelude.
const char* infix_of(Op op, Type operands) {
  for (const Infix& infix : kInfixes)
    if (infix.op == op && (!infix.of_u32 || operands == Type::kU32)) return infix.text;
  return nullptr;
}

bool is_plain(Op op) { return (op >= Op::kAdd && op <= Op::kConvert) && op != Op::kAdded; }

}  // namespace

// Counts the users of each node; a result that an item or the program needs has a name.
void NodeText::count_users() {
  std::vector<int> users(program_.nodes.size());
  std::vector<bool> same_stage(program_.nodes.size(), true);
  for (const Node& n : program_.nodes)
    for (const int from : n.in) {
      if (from == kNone) continue;
      ++users[static_cast<std::size_t>(from)];
      if (node(from).stage != n.stage || !is_plain(n.op)) same_stage[static_cast<std::size_t>(from)] = false;
    }
  each_result(program_, [&](int k) {
    if (k != kNone) same_stage[static_cast<std::size_t>(k)] = false;
  });
  inlined_.resize(users.size());
  for (std::size_t k = 0; k < users.size(); ++k) {
    const Node& n = program_.nodes[k];
    inlined_[k] = n.name.empty() && users[k] == 1 && same_stage[k] && is_plain(n.op);
  }
}

std::string NodeText::operand(int k) const {
  if (node(k).op == Op::kConst) return literal(node(k).type, node(k).number, false);
  if (!inlined_[static_cast<std::size_t>(k)]) return name(k);
  const std::string text = scalar(k);
  return text.empty() ? expression(k) : fmt::format("({})", text);
}

std::string NodeText::argument(int k) const {
  return is_declared(k) || node(k).op == Op::kConst ? operand(k) : expression(k);
}

std::string NodeText::scalar(int k) const {
  const Node& n = node(k);
  const auto in = [&](std::size_t which) { return operand(n.in[which]); };
  const Type type = n.in[0] == kNone ? n.type : node(n.in[0]).type;
  switch (n.op) {
    case Op::kBitNot:
      return "~" + in(0);
    case Op::kLogicNot:
      return "!" + in(0);
    case Op::kSelect:
      return fmt::format("{} ? {} : {}", in(0), in(1), in(2));
    case Op::kShiftLeft:
    case Op::kShiftRight:
      if (const Node& by = node(n.in[1]);
          type == Type::kU32 && by.op == Op::kConst && by.number >= 0 && by.number < 32)
        return fmt::format("{} {} {:.0f}", in(0), n.op == Op::kShiftLeft ? "<<" : ">>", by.number);
      return "";
    default:
      break;
  }
  if (const char* infix = infix_of(n.op, type)) return fmt::format("{} {} {}", in(0), infix, in(1));
  return "";
}

}  // namespace tithe::lang
