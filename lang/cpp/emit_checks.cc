// SPDX-License-Identifier: Apache-2.0
// Checks of received items, many values at a time (emit_items.h).
#include <algorithm>

#include "lang/cpp/emit_items.h"

namespace tithe::lang {

bool ItemText::checks_bits() const {
  const auto of_bits = [&](int k) {
    const Node& n = node(k);
    const auto known = [&](int from) {
      return from == kNone || (node(from).type == Type::kBool && node(from).stage == Stage::kValue);
    };
    return n.type == Type::kBool &&
           (n.op == Op::kItem || (n.op >= Op::kBitAnd && n.op <= Op::kBitXor) || n.op == Op::kLogicNot ||
            n.op == Op::kEqual || n.op == Op::kNotEqual) &&
           std::all_of(n.in.begin(), n.in.end(), known);
  };
  const Nodes& work = schedule_.check.value;
  return std::all_of(work.begin(), work.end(), of_bits) &&
         std::all_of(program_.items.begin(), program_.items.end(),
                     [](const Item& item) { return !item.is_float || !item.array; });
}

void ItemText::check_words() {
  const std::vector<bool> before = defined_;
  open("");
  line("typedef Bits M;");
  line("M wrong = {{0}};");
  open("for (; checked + 64 <= len; checked += 64)");
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array || item.input == kNone || node(item.input).type != Type::kBool) return;
    line("const M v{} = bits_at(o{} + checked / 8);", item.input, k);
    known(item.input);
  });
  define_all(schedule_.check.value);
  each(false, [&](std::size_t, const Item& item) {
    if (of_values(item)) line("wrong = or_(wrong, not_({}));", text_.values(item.where));
  });
  close();
  line("if (wrong.v != 0) return 0;");
  close();
  defined_ = before;
}

std::size_t ItemText::checked_halves() const {
  std::size_t found = kNoTable, arrays = 0;
  each(false, [&](std::size_t k, const Item& item) {
    if (!item.array) return;
    ++arrays;
    if (item.coding == Coding::kCodes && (item.bits == 2 || item.bits == 4) && item.input != kNone &&
        node(item.input).type == Type::kU32)
      found = k;
  });
  return arrays == 1 && all_computed(schedule_.check.value) ? found : kNoTable;
}

void ItemText::check_halves(std::size_t k) {
  const Item& item = program_.items[k];
  const std::vector<bool> before = defined_;
  open("");
  line("M wrong = splat(false);");
  for (unsigned shift = 0; shift < 4; shift += item.bits) {
    open("");
    line("const U v{} = and_(shr_by<{}>(lanes()), splat({}U));", item.input, shift, (1U << item.bits) - 1);
    known(item.input);
    before_loop(schedule_.check.value);
    define_all(schedule_.check.value);
    each(false, [&](std::size_t, const Item& other) {
      if (of_values(other)) line("wrong = or_(wrong, not_({}));", text_.values(other.where));
    });
    close();
    defined_ = before;
  }
  line("const size_t bytes = len * {} / 8 / 32 * 32;", item.bits);
  line("if (any_half(o{}, bytes, mask_bits(wrong))) return 0;", k);
  line("checked = bytes * 8 / {};", item.bits);
  close();
}

}  // namespace tithe::lang
