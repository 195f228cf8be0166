// SPDX-License-Identifier: Apache-2.0
// Generates C++ for tables and reductions with a function of the program (lang/run/tables.h).
#include "lang/text/emit_passes.h"

namespace tithe::lang {

void PassText::function_of(int k, const char* attribute) {
  const Folding& by = program_.foldings[node(k).index];
  const std::string type = text_.value_type(by.left);
  const std::vector<bool> before = defined_;
  const std::string left = text_.name(by.left), right = text_.name(by.right);
  open(fmt::format("auto f{0} = [&]({1} {2}, {1} {3}){4}", k, type, left, right, attribute));
  line("static_cast<void>({}), static_cast<void>({});", left, right);
  known(by.left);
  known(by.right);
  define_all(by.body);
  line("return {};", text_.values(by.result));
  close("};");
  defined_ = before;
}

// Runs of sixteen are stored completely, so the array has room for fifteen more values.
void PassText::table(int k) {
  const Node& n = node(k);
  if (n.op == Op::kHistogram) return line("uint32_t t{}[{}] = {{}};", k, n.index);
  line("uint32_t t{}[{}];", k, program_.block + 16);
}

void PassText::add_to_table(int k, const std::string& of, const std::string& which) {
  if (node(k).op == Op::kHistogram)
    return line("count_into<{}>(t{}, as_u({}), {});", node(k).index, k, of, which);
  line("store_u(t{} + i, keys_of({}));", k, of);
}

void PassText::finish_table(int k) {
  const Node& n = node(k);
  if (n.op == Op::kOrder) return line("order_keys<{0}>(t{1}, len);", program_.block, k);
  if (n.op != Op::kSort) return;
  line("sort_keys<{0}>(t{1}, len);", program_.block, k);
  if (n.type == Type::kF32) line("for (size_t i = 0; i < len; ++i) t{0}[i] = float_of_key(t{0}[i]);", k);
  if (n.type == Type::kI32) line("for (size_t i = 0; i < len; ++i) t{}[i] ^= 0x80000000U;", k);
}

std::string PassText::entry(int k) const {
  const Node& n = node(k);
  const Node& from = node(n.in[0]);
  const bool value = n.stage == Stage::kValue;
  const std::string entries =
      from.op == Op::kSort ? std::string("uint32_t(len)") : fmt::format("{}", from.index);
  const std::string index = value ? text_.values(n.in[1]) : text_.number(n.in[1]);
  const char* as = n.type == Type::kF32 ? "float_" : n.type == Type::kI32 ? "as_i" : "as_u";
  return fmt::format("const {} {}{} = {}(entry_of(t{}, {}, as_u({})));",
                     value ? text_.value_type(k) : text_.number_type(k), value ? 'v' : 'b', k, as, n.in[0],
                     entries, index);
}

}  // namespace tithe::lang
